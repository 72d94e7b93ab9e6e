#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "redblue/pebbling/graphs/graph.hpp"

namespace redblue::pebbling {

/// One step of the game.
struct Move {
  enum class Kind : std::uint8_t {
    read,     ///< node has a blue pebble and gets a red one; costs 1
    write,    ///< node has a red pebble and gets a blue one; costs 1
    compute,  ///< all parents are red; node gets a red pebble
    slide,    ///< all parents are red; the red pebble of `parent` moves to node
    update,   ///< the edge parent -> node is computed (partial computations)
    remove,   ///< node loses its red pebble
  };
  Kind kind;
  Node node;
  Node parent = 0;  ///< slide and update
  std::uint16_t processor = 0;

  friend bool operator==(const Move&, const Move&) = default;
};

/// What a play has cost.
struct Cost {
  std::size_t reads = 0;
  std::size_t writes = 0;
  std::size_t computed = 0;  ///< nodes, or edges with partial computations
  std::size_t peak = 0;      ///< most red pebbles at once on one processor

  std::size_t io() const { return reads + writes; }
  friend bool operator==(const Cost&, const Cost&) = default;
};

}  // namespace redblue::pebbling
