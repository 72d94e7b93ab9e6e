#pragma once
#include "redblue/core/visible.hpp"
#include "redblue/schedule/parts/limits.hpp"

/// The keys that the blocks of a schedule see whose outer loop goes over queries.
namespace redblue::schedule {

/// SUM_I kappa_I over all blocks of Br queries.
inline Words visited_keys(const Sizes& x, index_t Br) {
  const Words last = x.n_q % Br > 0 ? x.mask.visible(x.n_q - 1, x.n_k) : 0;
  return visited_by_blocks(x.mask, x.n_k, Br, x.n_q / Br) + last;
}

/// SUM_I |I| kappa_I: the pairs whose scores are formed.
inline Words visited_pairs(const Sizes& x, index_t Br) {
  const index_t ragged = x.n_q % Br;
  const Words last = ragged > 0 ? x.mask.visible(x.n_q - 1, x.n_k) : 0;
  return visited_by_blocks(x.mask, x.n_k, Br, x.n_q / Br) * Br + last * ragged;
}

/// The words that such a schedule moves when all its blocks together visit `visits` keys in each of `passes` passes
/// over the queries. A value is visited in one pass only.
inline Io query_outer_io(const Sizes& x, Words visits, Words passes = 1) {
  return Io()
      .read(SlowArray::Q, passes * x.n_q * x.d)
      .read(SlowArray::K, passes * visits * x.d)
      .read(SlowArray::V, visits * x.d_v)
      .write(SlowArray::O, Words(x.n_q) * x.d_v)
      .write(SlowArray::lse, x.row_statistics());
}

/// The footprint: the larger of words(rows, kappa) for the last full block of queries and for the ragged block. The
/// last full block sees the most keys of all full blocks.
template <class BlockWords>
Words query_blocks_footprint(const Sizes& x, index_t largest, const BlockWords& words) {
  const index_t Br = std::min(largest, x.n_q), ragged = x.n_q % Br;
  const auto block = [&](index_t rows, index_t end) { return words(rows, x.mask.visible(end - 1, x.n_k)); };
  return std::max(block(Br, x.n_q - ragged), ragged > 0 ? block(ragged, x.n_q) : Words(0));
}

/// The largest Br to try where Bc keys are resident beside the tiles of Br queries, which take rows(Br). If a full
/// block may see fewer than Bc keys, the footprint is not monotone in Br (more queries at a time, but fewer keys); the
/// result is then a limit that no tiling can exceed.
template <class Rows, class Fits>
index_t largest_query_block(const Sizes& x, const Limits& limits, index_t Bc, const Rows& rows, const Fits& fits) {
  const index_t step = limits.multiple.query;
  const index_t largest = largest_tile(x.n_q, step, [&](index_t Br) { return limits.fit(rows(Br), 0); });
  return x.mask.visible(x.n_q - largest, x.n_k) >= Bc ? largest_tile(x.n_q, step, fits) : largest;
}

/// The cost of a Br: `visit` for every key that a block visits, and `block` for every block.
struct VisitPrices {
  Words visit = 1;
  Words block = 0;
};

/// The cheapest legal Br up to `largest` for which fits(Br) holds; 0 if there is none. Without a mask this is the
/// largest Br, reduced as far as the number of blocks stays the same. Under a causal mask the number of visited keys is
/// not monotone in Br. Among all Br with the same number of blocks the smallest is best. The search ends where a
/// smaller Br cannot win, because Br SUM kappa >= visible pairs, or as soon as the blocks visit no more keys than the
/// last row sees, which is the minimum.
template <class Fits>
index_t fewest_visits(const Sizes& x, index_t largest, index_t step, const Fits& fits, const VisitPrices& price = {}) {
  // Under a mask the smallest Br for a number of blocks may see more keys, and not fit where a few more queries do.
  constexpr index_t kTries = 64;
  const Words pairs = visible_pairs(x.mask, x.n_q, x.n_k), least = x.mask.visible(x.n_q - 1, x.n_k);
  index_t best = 0;
  Words cheapest;
  for (index_t top = largest; top > 0;) {
    const Words blocks = ceil_div(x.n_q, top);
    if (best > 0 && price.visit * pairs >= (cheapest - price.block * blocks) * top) break;
    const index_t even = balanced(x.n_q, top, step);
    index_t Br = even;
    for (index_t tries = 0; tries < kTries && Br < top && !fits(Br); ++tries) Br = std::min(top, Br + step);
    if (fits(Br)) {
      const Words visits = visited_keys(x, Br), cost = price.visit * visits + price.block * blocks;
      if (best == 0 || cost < cheapest) {
        cheapest = cost;
        best = Br;
      }
      if (!x.mask.causal || visits == least) break;
    }
    top = (ceil_div(even, step) - 1) * step;
  }
  return best;
}

}  // namespace redblue::schedule
