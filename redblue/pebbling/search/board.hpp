#pragma once
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "redblue/pebbling/graphs/graph.hpp"

namespace redblue::pebbling {

/// A set of at most 64 nodes, or edges, of a board.
using Set = std::uint64_t;

inline constexpr Set only(std::size_t v) { return Set{1} << v; }
inline std::size_t first_of(Set s) { return static_cast<std::size_t>(std::countr_zero(s)); }
inline int number_in(Set s) { return std::popcount(s); }

template <class F>
void for_each(Set s, F f) {
  for (; s != 0; s &= s - 1) f(first_of(s));
}

/// The part of a graph that its outputs need, as sets, for the search of its optimum.
struct Board {
  struct Edge {
    std::size_t from = 0, to = 0;
  };

  std::vector<Node> nodes;  ///< their numbers in the graph
  std::vector<Set> parents, children;
  Set inputs = 0;
  Set outputs = 0;                       ///< without inputs, which are blue from the start
  Set computed = 0;                      ///< the nodes that are no inputs
  std::vector<Edge> edges;               ///< a constant has one from itself to itself, which is computed like others
  std::vector<Set> edges_in, edges_out;  ///< of each node; empty if there are more than 64 edges

  std::size_t size() const { return nodes.size(); }
};

inline constexpr std::size_t kMostOnBoard = 64;

/// Throws Unsupported if outputs need more than 64 nodes.
Board board_of(const Graph& g);

}  // namespace redblue::pebbling
