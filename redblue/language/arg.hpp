#pragma once
#include <span>

#include "redblue/language/slow_matrix.hpp"

namespace redblue {

/// An argument of a tile operation, as a machine sees it: a rectangle of a resident tile, or a block of slow memory
/// that streams past, one word at a time.
struct Arg {
  enum class Kind : std::uint8_t { tile, stream };
  Kind kind = Kind::tile;
  index_t depth = 0;  ///< tile: its place on the stack of fast memory
  Block block{};      ///< tile: the rectangle inside it, array: what it holds; stream: the block

  constexpr Shape shape() const { return block.shape; }
  /// These rows of it.
  constexpr Arg rows(Range r) const {
    Arg a = *this;
    a.block.row += r.begin;
    a.block.shape.rows = r.size();
    return a;
  }
  static constexpr Arg streaming(const Block& b) { return {Kind::stream, 0, b}; }
};

/// Stands in place of an argument that a problem does not have.
inline constexpr Arg kNoWords{};

/// The words of fast memory that these streams take while they pass side by side.
constexpr index_t passing(std::span<const Arg> args) {
  index_t words = 0;
  for (const Arg& a : args) words += a.kind == Arg::Kind::stream && a.shape().words() > 0 ? 1 : 0;
  return words;
}

/// A block consumed word by word: |block| reads, one word of footprint.
struct Stream {
  Block block;
};

}  // namespace redblue
