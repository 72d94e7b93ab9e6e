#pragma once
#include "redblue/core/visible.hpp"
#include "redblue/schedule/forward.hpp"
#include "redblue/schedule/limits.hpp"

/// What the blocks of a query-outer schedule see.
namespace redblue::schedule {

/// SUM_I kappa_I over all blocks of Br queries.
inline Words visited_keys(const ForwardShape& x, index_t Br) {
  const Words last = x.n_q % Br > 0 ? x.mask.visible(x.n_q - 1, x.n_k) : 0;
  return visited_by_blocks(x.mask, x.n_k, Br, x.n_q / Br) + last;
}

/// SUM_I |I| kappa_I: the pairs whose scores are formed.
inline Words visited_pairs(const ForwardShape& x, index_t Br) {
  const index_t ragged = x.n_q % Br;
  const Words last = ragged > 0 ? x.mask.visible(x.n_q - 1, x.n_k) : 0;
  return visited_by_blocks(x.mask, x.n_k, Br, x.n_q / Br) * Br + last * ragged;
}

/// What a query-outer schedule moves when all its blocks together visit `visits` keys, in each of `passes` passes over
/// the queries; a value is visited in one pass only.
inline Io query_outer_io(const ForwardShape& x, Words visits, Words passes = 1) {
  return Io()
      .read(SlowArray::Q, passes * x.n_q * x.d)
      .read(SlowArray::K, passes * visits * x.d)
      .read(SlowArray::V, visits * x.d_v)
      .write(SlowArray::O, Words(x.n_q) * x.d_v)
      .write(SlowArray::lse, x.n_q);
}

/// Of all legal Br up to `largest` for which fits(Br) holds, the one with the fewest visited keys; 0 if there is none.
/// Without a mask: the largest, balanced. Causal, the sum is not monotone in Br; for one number of blocks the smallest
/// Br is best, Br SUM kappa >= visible pairs tells when fewer queries at a time cannot win any more, and nothing can
/// once no more keys are visited than the last row sees.
template <class Fits>
index_t fewest_visits(const ForwardShape& x, index_t largest, index_t step, const Fits& fits) {
  // Under a mask the smallest Br for a number of blocks may see more keys, and not fit where a few more queries do.
  constexpr index_t kTries = 64;
  const Words pairs = visible_pairs(x.mask, x.n_q, x.n_k), least = x.mask.visible(x.n_q - 1, x.n_k);
  index_t best = 0;
  Words fewest;
  for (index_t top = largest; top > 0;) {
    if (best > 0 && pairs >= fewest * top) break;
    const index_t even = balanced(x.n_q, top, step);
    index_t Br = even;
    for (index_t tries = 0; tries < kTries && Br < top && !fits(Br); ++tries) Br = std::min(top, Br + step);
    if (fits(Br)) {
      const Words visits = visited_keys(x, Br);
      if (best == 0 || visits < fewest) {
        fewest = visits;
        best = Br;
      }
      if (!x.mask.causal || fewest == least) break;
    }
    top = (ceil_div(even, step) - 1) * step;
  }
  return best;
}

}  // namespace redblue::schedule
