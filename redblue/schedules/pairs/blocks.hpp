#pragma once
#include "redblue/schedules/parts/visible.hpp"

/// Blocks of rows or keys of a pattern that stay while what they meet passes, with a word for each pair that one key,
/// or one row, has in the block (theory notes 2g).
namespace redblue::schedule {

enum class BlocksOf : bool { keys, rows };

/// The most pairs of one key in the blocks of `size` rows, or of one row in blocks of keys, by the blocks' own sizes.
inline const MostBySize& most_pairs(const Sizes& x, BlocksOf side, index_t size) {
  const bool rows = side == BlocksOf::rows;
  return x.pattern->found(rows ? "pairs of a key" : "pairs of a row", {size}, [&] {
    return rows ? most_in_block(x.pattern->keys(), x.pattern->row_blocks(size))
                : most_in_block(x.pattern->rows(), x.pattern->key_blocks(size));
  });
}

/// The largest words(size, the most pairs that one key or row has in it) over the blocks of each size.
template <class BlockWords>
Words pair_blocks_footprint(const Sizes& x, BlocksOf side, index_t size, const BlockWords& words) {
  return most_pairs(x, side, std::min(size, side == BlocksOf::rows ? x.n_q : x.n_k)).largest(words);
}

/// Sizes of blocks for which words(size, pairs) fit. `pairs` is the most that one key, or row, has in a block; the
/// words grow with both.
template <class BlockWords>
class PairBlocks {
 public:
  PairBlocks(const Sizes& x, BlocksOf side, const Limits& limits, Words prefetch, const BlockWords& words)
      : x_(x), side_(side), limits_(limits), prefetch_(prefetch), words_(words) {}

  /// The largest that fits if no key, or row, has more than one pair in a block; 0 if there is none.
  index_t largest() const {
    return largest_tile(n(), step(), [&](index_t size) { return fits(words_(size, 1)); });
  }
  /// The size with the fewest visits; 0 if none fits. Sizes that fit with a pair for each row or key are tried as
  /// best_block does, larger ones from the largest down as far as there is time.
  index_t choose() const {
    const index_t dense = largest_tile(n(), step(), [&](index_t size) { return fits(words_(size, size)); });
    index_t best = 0;
    if (dense > 0) best = rows() ? best_query_block(x_, dense, step()) : best_key_block(x_, dense, step());
    Words fewest = best > 0 ? visits(best) : Words(0);
    if (x_.pattern->rows().all_alike()) return best;  // each key has all rows of a block
    index_t tries = detail::pattern_tries(*x_.pattern);
    for (index_t size = largest(); size > dense && tries > 0; size = (size - 1) / step() * step(), --tries) {
      if (!fits(pair_blocks_footprint(x_, side_, size, words_))) continue;
      if (const Words v = visits(size); best == 0 || v < fewest) {
        best = size;
        fewest = v;
      }
    }
    return best;
  }

 private:
  bool rows() const { return side_ == BlocksOf::rows; }
  index_t n() const { return rows() ? x_.n_q : x_.n_k; }
  index_t step() const { return rows() ? limits_.multiple.query : limits_.multiple.key; }
  bool fits(Words footprint) const { return limits_.fit(footprint, prefetch_); }
  Words visits(index_t size) const { return rows() ? visited_keys(x_, size) : visited_rows(x_, size); }

  const Sizes& x_;
  BlocksOf side_;
  const Limits& limits_;
  Words prefetch_;
  const BlockWords& words_;
};

}  // namespace redblue::schedule
