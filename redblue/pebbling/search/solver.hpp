#pragma once
#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "redblue/pebbling/graphs/graph.hpp"
#include "redblue/pebbling/moves.hpp"
#include "redblue/pebbling/rules.hpp"

namespace redblue::pebbling {

struct SolverLimits {
  double seconds = 60;                       ///< of processor time
  std::size_t bytes = std::size_t{4} << 30;  ///< of memory
  /// Told the proved bracket when it gets smaller.
  std::function<void(std::size_t lower, std::size_t upper)> progress = {};
};

/// What is proved of the least I/O of a graph.
struct Optimum {
  std::size_t lower = 0;    ///< no play moves fewer words
  std::size_t upper = 0;    ///< what `moves` move
  std::vector<Move> moves;  ///< a legal play: the referee has played it
  std::size_t positions = 0;
  double seconds = 0;  ///< of processor time

  bool proved() const { return lower == upper; }
};

/// The reads and writes that no play avoids, whatever its M: each input that outputs need once (all inputs, if the
/// rules say so), each output that is no input once.
std::size_t unavoidable_io(const Graph& g, const Rules& rules);

/// The least number of reads and writes of any play of a graph whose outputs need at most 64 nodes (and 64 edges, with
/// partial computations; of P processors, 64 / P nodes). At a limit lower < upper. Throws CapacityError if M is too
/// small for any play, Unsupported if the graph is too large, and, with partial computations, if there are nodes that
/// no output needs.
Optimum solve(const Graph& g, const Rules& rules, std::size_t M, const SolverLimits& limits = {});

/// Why solve() cannot search this graph, which is too large; empty if it can.
std::string why_not_searched(const Graph& g, const Rules& rules);

/// What is known of a graph of any size without a search: the unavoidable reads and writes, and greedy_play(). Throws
/// as that does.
Optimum bracket(const Graph& g, const Rules& rules, std::size_t M);

}  // namespace redblue::pebbling
