#pragma once
#include <array>
#include <cstddef>
#include <vector>

#include "redblue/pebbling/search/board.hpp"

namespace redblue::pebbling {

/// A renaming of at most 64 things, applied to sets of them byte by byte.
class Renaming {
 public:
  /// image[v] is the new name of v.
  explicit Renaming(std::vector<std::size_t> image);
  Set operator()(Set s) const {
    Set result = 0;
    for (std::size_t byte = 0; s != 0; ++byte, s >>= 8) result |= table_[byte][s & 255];
    return result;
  }
  std::size_t of(std::size_t v) const { return image_[v]; }
  std::size_t size() const { return image_.size(); }

 private:
  std::vector<std::size_t> image_;
  std::array<std::array<Set, 256>, 8> table_{};
};

/// A symmetry of a board: a renaming of nodes that keeps edges, inputs and outputs, and what it does to the edges.
struct Symmetry {
  Renaming nodes, edges;
};

/// Symmetries of the board but for the one that changes nothing, at most `most` of them: all if there are no more. (A
/// search may use any of them.) Their `edges` are empty when the board has no
/// sets of edges.
std::vector<Symmetry> symmetries_of(const Board& b, std::size_t most);

}  // namespace redblue::pebbling
