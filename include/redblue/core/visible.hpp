#pragma once
#include <utility>

#include "redblue/core/mask.hpp"
#include "redblue/core/words.hpp"

/// Sums of visible keys over rows and blocks of rows, in closed form: O(log n), for n up to 2^40 and beyond.
namespace redblue {

namespace detail {
/// SUM_{i < n} floor((a i + b) / m) for a, b >= 0, by Euclid's algorithm on (a, m).
inline Words floor_sum(Words n, Words m, Words a, Words b) {
  Words sum = 0;
  while (true) {
    sum += n * (n - 1) / 2 * (a / m) + n * (b / m);
    a -= a / m * m;
    b -= b / m * m;
    const Words last = a * n + b;
    if (last < m) return sum;
    n = last / m;
    b = last - n * m;
    std::swap(a, m);
  }
}

/// The first i in [0, n) for which holds(i), n if none; holds must be monotone.
template <class Holds>
index_t first_that(index_t n, const Holds& holds) {
  index_t low = 0, high = n;
  while (low < high) {
    const index_t mid = low + (high - low) / 2;
    if (holds(mid))
      high = mid;
    else
      low = mid + 1;
  }
  return low;
}
}  // namespace detail

/// The first of n_q rows that sees at least `keys` keys (n_q if none does). Later rows see no fewer.
inline index_t first_row_seeing(const Mask& mask, index_t n_q, index_t n_k, index_t keys) {
  return detail::first_that(n_q, [&](index_t r) { return mask.visible(r, n_k) >= keys; });
}

/// The keys that the first `blocks` blocks of Br rows see, summed over the blocks. A block sees what its last row sees.
inline Words visited_by_blocks(const Mask& mask, index_t n_k, index_t Br, index_t blocks) {
  if (!mask.causal) return Words(blocks) * n_k;
  const auto kappa = [&](index_t i) { return mask.visible((i + 1) * Br - 1, n_k); };  // nondecreasing in i
  const index_t some = detail::first_that(blocks, [&](index_t i) { return kappa(i) > 0; });
  const index_t all = detail::first_that(blocks, [&](index_t i) { return kappa(i) == n_k; });
  // In between kappa_i = floor(((i + 1) Br - 1) / group) + 1 + offset.
  const Words between = all - some;
  Words sum = Words(blocks - all) * n_k + between * (Words(1) + mask.offset);
  if (between > 0) sum += detail::floor_sum(between, mask.group, Br, (Words(some) + 1) * Br - 1);
  return sum;
}

/// The keys that n_q rows see, summed over the rows: the pairs that the mask leaves.
inline Words visible_pairs(const Mask& mask, index_t n_q, index_t n_k) { return visited_by_blocks(mask, n_k, 1, n_q); }

}  // namespace redblue
