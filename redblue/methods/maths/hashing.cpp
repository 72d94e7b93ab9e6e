#include "redblue/methods/maths/hashing.hpp"

#include <set>

namespace redblue {

namespace detail {

// Not inline: every machine runs this one body.
void add_hash_products(double* sums, const double* x, const double* a, index_t words) {
  index_t t = 0;
  for (; t + 4 <= words; t += 4)
    for (index_t lane = 0; lane < 4; ++lane) sums[lane] += x[t + lane] * a[t + lane];
  for (; t < words; ++t) sums[0] += x[t] * a[t];
}

}  // namespace detail

namespace {

/// A number from 0 to n - 1, n at most 2^53, for draw `step` of this use of random numbers (others:
/// random_features.cpp).
index_t draw_below(index_t n, index_t step, std::uint32_t use, index_t seed) {
  const auto place = static_cast<std::uint64_t>(step);
  const PhiloxWords<std::uint32_t> words = philox(
      PhiloxWords<std::uint32_t>{static_cast<std::uint32_t>(place), static_cast<std::uint32_t>(place >> 32), 0, use},
      static_cast<std::uint64_t>(seed));
  const double draw = (static_cast<double>(words[0]) + static_cast<double>(words[1]) * 0x1p-32) * 0x1p-32;
  return std::min(n - 1, static_cast<index_t>(draw * static_cast<double>(n)));
}

}  // namespace

std::vector<index_t> random_subset(index_t count, index_t n, index_t seed) {
  constexpr std::uint32_t kUse = 4;
  std::set<index_t> chosen;
  for (index_t last = n - count; last < n; ++last)
    if (!chosen.insert(draw_below(last + 1, last, kUse, seed)).second) chosen.insert(last);
  return {chosen.begin(), chosen.end()};
}

std::vector<index_t> random_ranks(index_t samples, index_t n, index_t seed) {
  constexpr std::uint32_t kUse = 3;  // others: random_features.cpp
  std::vector<index_t> ranks;
  ranks.reserve(static_cast<std::size_t>(samples));
  for (index_t u = 0; u < samples; ++u) {
    const PhiloxWords<std::uint32_t> words =
        philox(PhiloxWords<std::uint32_t>{static_cast<std::uint32_t>(u), 0, 0, kUse}, static_cast<std::uint64_t>(seed));
    ranks.push_back(static_cast<index_t>(words[0]) * n >> 32);  // n is at most 2^24
  }
  std::sort(ranks.begin(), ranks.end());
  return ranks;
}

}  // namespace redblue
