#include "redblue/core/hashing.hpp"

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
