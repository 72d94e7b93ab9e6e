#pragma once
#include <algorithm>
#include <bit>
#include <cstdint>
#include <span>
#include <vector>

#include "redblue/masks/pattern.hpp"

/// Tiles of pairs: keys of a block of rows, as far as there is room for their pairs, however sparse these lie (theory
/// notes 2g).
namespace redblue::schedule {

/// A tile: the pairs of these rows and keys.
struct PairTile {
  Range rows, keys;
  index_t pairs = 0;
  index_t r = 0, c = 0;  ///< rows and keys that have a pair
};

/// Some rows of a block, as bits.
class RowSet {
 public:
  explicit RowSet(index_t rows) : words_(static_cast<std::size_t>(ceil_div(rows, kBits))) {}

  void clear() {
    if (touched_.size() > 0) std::fill_n(words_.begin() + touched_.begin, touched_.size(), 0);
    touched_ = {};
  }
  /// How many of these are not there.
  index_t missing(Range rows) const {
    index_t count = rows.size();
    for_words(rows, [&](index_t word, std::uint64_t bits) {
      count -= std::popcount(words_[static_cast<std::size_t>(word)] & bits);
    });
    return count;
  }
  void add(Range rows) {
    if (rows.size() == 0) return;
    for_words(rows, [&](index_t word, std::uint64_t bits) { words_[static_cast<std::size_t>(word)] |= bits; });
    const Range now{rows.begin / kBits, ceil_div(rows.end, kBits)};
    touched_ = touched_.size() == 0 ? now : Range{std::min(touched_.begin, now.begin), std::max(touched_.end, now.end)};
  }

 private:
  static constexpr index_t kBits = 64;
  /// f(word, its bits) for the words that these rows lie in.
  template <class F>
  void for_words(Range rows, const F& f) const {
    for (index_t r = rows.begin; r < rows.end;) {
      const index_t from = r % kBits, bits = std::min(kBits - from, rows.end - r);
      f(r / kBits, ~std::uint64_t{0} >> (kBits - bits) << from);
      r += bits;
    }
  }

  std::vector<std::uint64_t> words_;
  Range touched_{};  ///< words that may have bits
};

/// f(tile, count) for the tiles of the rows I, from the first key on: each stands for `count` tiles of as many keys,
/// one after another, which the same rows see.
template <class F>
void for_like_pair_tiles(const Pattern& pattern, Range I, index_t room, const F& f) {
  PairTile tile{I, {}, 0, 0, 0};
  RowSet has(I.size());
  const auto new_rows = [&](std::span<const Range> runs) {
    index_t rows = 0;
    for_inside(runs, I, [&](Range run) { rows += has.missing(run); });
    return rows;
  };
  const auto finish = [&] {
    if (tile.pairs > 0) f(tile, 1);
    has.clear();
    tile = {I, {}, 0, 0, 0};
  };
  for (const Range& seen : union_of(pattern.rows(), I))
    pattern.keys().for_groups(seen, [&](Range keys, std::span<const Range> runs) {
      const index_t each = pattern.keys().count(keys.begin, I);  // pairs of one key
      while (keys.size() > 0) {
        const index_t rows = tile.r == I.size() ? 0 : new_rows(runs), left = room - tile.pairs;
        // Beside the pairs a tile needs a word for each row or for each key, whichever are fewer.
        const index_t beside_rows = (left - tile.r - rows) / each, beside_keys = (left - tile.c) / (each + 1);
        index_t fitting = std::clamp<index_t>(std::max(beside_rows, beside_keys), 0, keys.size());
        if (fitting == 0 && tile.pairs > 0) {
          finish();
          continue;
        }
        fitting = std::max<index_t>(1, fitting);
        if (tile.pairs == 0 && keys.size() > fitting) {  // full ones
          const index_t count = (keys.size() - 1) / fitting, end = keys.begin + fitting;
          f(PairTile{I, {keys.begin, end}, fitting * each, rows, fitting}, count);
          keys.begin += count * fitting;
          continue;
        }
        if (tile.pairs == 0) tile.keys.begin = keys.begin;
        if (rows > 0) for_inside(runs, I, [&](Range run) { has.add(run); });
        tile.r += rows;
        tile.c += fitting;
        tile.pairs += fitting * each;
        keys.begin += fitting;
        tile.keys.end = keys.begin;
      }
    });
  finish();
}
/// f(tile) for all of them.
template <class F>
void for_pair_tiles(const Pattern& pattern, Range I, index_t room, const F& f) {
  for_like_pair_tiles(pattern, I, room, [&](PairTile tile, index_t count) {
    for (; count > 0; --count, tile.keys = tile.keys.shifted(tile.c)) f(tile);
  });
}

}  // namespace redblue::schedule
