#pragma once
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "redblue/pebbling/certificate.hpp"
#include "redblue/pebbling/graphs/graph.hpp"
#include "redblue/pebbling/moves.hpp"

/// Schedules of OneStopParallel (Algebraic-Programming/OneStopParallel on GitHub), as it writes its PebblingSchedule: a
/// line for each move, in supersteps that compute, send up (write), evict and send down (read).
namespace redblue::pebbling {

struct OspSchedule {
  std::size_t processors = 1;
  std::vector<Move> moves;
};

/// The moves of this text, in its order. A node's number is its name, if one is called so, or its place in the graph.
/// Throws Error, with the line, for a text that is not in the format, and for nodes and processors that there are not.
OspSchedule parse_osp(const Graph& g, std::string_view text);

/// The play of a certificate. Throws Error for moves and graphs that the format does not know: slides, updates, and
/// constants, for nodes without parents are inputs there.
std::string to_osp(const Certificate& c);

}  // namespace redblue::pebbling
