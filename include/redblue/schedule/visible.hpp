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

/// Of all legal Br up to `largest`, the one with the fewest visited keys. Without a mask: the largest, balanced.
/// Causal, the sum is not monotone in Br; for one number of blocks the smallest Br is best, and Br SUM kappa >= visible
/// pairs tells when fewer queries at a time cannot win any more.
inline index_t fewest_visits(const ForwardShape& x, index_t largest, index_t step) {
  index_t Br = balanced(x.n_q, largest, step), best = Br;
  Words fewest = visited_keys(x, Br);
  const Words pairs = visible_pairs(x.mask, x.n_q, x.n_k);
  while (x.mask.causal && Br > smallest_tile(x.n_q, step)) {
    Br = balanced(x.n_q, (ceil_div(Br, step) - 1) * step, step);
    if (pairs >= fewest * Br) break;
    const Words visits = visited_keys(x, Br);
    if (visits < fewest) {
      fewest = visits;
      best = Br;
    }
  }
  return best;
}

}  // namespace redblue::schedule
