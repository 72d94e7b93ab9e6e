#pragma once
#include <algorithm>
#include <vector>

#include "redblue/kernels/implementations.hpp"
#include "redblue/language/error.hpp"

namespace redblue::machine {

/// Where the tiles of one worker lie, as numbers: a stack of tiles that together hold at most M words. Each begins on a
/// cache line of its own and takes the words that its placement asks for; words left out or added for that are not
/// counted among the M.
class TileStack {
 public:
  struct Tile {
    index_t first;  ///< word of the memory where it begins
    Shape shape;
    kernel::Placement place;
  };

  /// `word_bytes`: what a word of a tile takes.
  TileStack(index_t M, std::size_t word_bytes) : M_(M), line_(static_cast<index_t>(kLineBytes / word_bytes)) {}

  /// As a new one, in the memory of this list.
  void begin(index_t M) {
    M_ = M;
    used_ = top_ = most_ = most_used_ = most_skipped_ = 0;
    tiles_.clear();
  }
  /// Throws CapacityError unless `more` further words fit.
  void require(index_t more) const {
    if (used_ + more > M_) redblue::detail::throw_capacity(used_ + more, M_);
  }
  /// Holds `more` further words for a moment. Throws as require().
  void hold(index_t more) {
    require(more);
    most_used_ = std::max(most_used_, used_ + more);
  }
  /// What a tile counts: a level of memory below has the words of one that takes none here.
  static index_t words_of(Shape s, const kernel::Placement& place) { return place.words == 0 ? 0 : s.words(); }
  /// Opens a tile on top of the stack, which counts the words of its shape, or none where `place` has none, and lies as
  /// that says. Returns its depth.
  index_t open(Shape s, const kernel::Placement& place) {
    const index_t counted = words_of(s, place);
    require(counted);
    const index_t first = next();
    tiles_.push_back({first, s, place});
    used_ += counted;
    most_used_ = std::max(most_used_, used_);
    top_ = first + place.words;
    most_ = std::max(most_, top_);
    most_skipped_ = std::max(most_skipped_, top_ - used_);
    return static_cast<index_t>(tiles_.size()) - 1;
  }
  /// Closes the topmost tile.
  void close(index_t depth, Shape s) {
    used_ -= words_of(s, tiles_.back().place);
    tiles_.resize(static_cast<std::size_t>(depth));
    top_ = tiles_.empty() ? 0 : tiles_.back().first + tiles_.back().place.words;
  }

  const Tile& operator[](index_t depth) const { return tiles_[static_cast<std::size_t>(depth)]; }
  index_t M() const { return M_; }
  index_t used() const { return used_; }            ///< words of the tiles that are open
  index_t most_used() const { return most_used_; }  ///< the most that were held at a time
  index_t top() const { return top_; }              ///< the end of the topmost tile in memory
  /// Where the next tile will begin. (The words of a line are a power of 2.)
  index_t next() const { return (top_ + line_ - 1) & -line_; }
  index_t most() const { return most_; }                  ///< the most memory that was taken at a time
  index_t most_skipped() const { return most_skipped_; }  ///< the most words that layouts and cache lines take beside

  static constexpr std::size_t kLineBytes = 64;

 private:
  index_t M_;
  index_t line_;  ///< words of a cache line
  index_t used_ = 0;
  index_t top_ = 0;
  index_t most_ = 0;
  index_t most_used_ = 0;
  index_t most_skipped_ = 0;
  std::vector<Tile> tiles_;
};

}  // namespace redblue::machine
