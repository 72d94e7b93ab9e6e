#pragma once
#include <cstddef>
#include <vector>

#include "redblue/pebbling/graphs/graph.hpp"
#include "redblue/pebbling/moves.hpp"
#include "redblue/pebbling/rules.hpp"

namespace redblue::pebbling {

/// A legal play of a graph of any size, by one processor: the nodes that outputs need are computed once, in their order
/// in the graph; what leaves is what is used again last. By placing or sliding: throws Unsupported for partial
/// computations, and CapacityError if M is too small for any play.
std::vector<Move> greedy_play(const Graph& g, const Rules& rules, std::size_t M);

}  // namespace redblue::pebbling
