#pragma once
#include <array>
#include <cstddef>
#include <cstdint>

#include "redblue/language/types.hpp"

/// The random numbers of dropout. Philox4x32-10 (Salmon et al., Parallel random numbers: as easy as 1, 2, 3, SC 2011)
/// turns a counter and a key into four random words: the entry of a position depends on nothing else, so every
/// schedule, tiling and thread drops the same entries, forward and backward.
namespace redblue {

/// Four words of a counter, or of a result. W is a word, or as many as lie in the lanes of a vector.
template <class W>
using PhiloxWords = std::array<W, 4>;

/// Both halves of a product of 32-bit words.
template <class W>
struct Product {
  W high, low;
};
constexpr Product<std::uint32_t> product(std::uint32_t a, std::uint32_t b) {
  const std::uint64_t both = std::uint64_t{a} * b;
  return {static_cast<std::uint32_t>(both >> 32), static_cast<std::uint32_t>(both)};
}

/// Another type W of words brings product(std::uint32_t, W), W ^ W and W ^ std::uint32_t.
template <class W>
constexpr PhiloxWords<W> philox(PhiloxWords<W> x, std::uint32_t key_a, std::uint32_t key_b) {
  constexpr int kRounds = 10;
  for (int round = 0; round < kRounds; ++round) {
    const Product<W> a = product(0xD2511F53U, x[0]), b = product(0xCD9E8D57U, x[2]);
    x = {b.high ^ x[1] ^ key_a, b.low, a.high ^ x[3] ^ key_b, a.low};
    key_a += 0x9E3779B9U;
    key_b += 0xBB67AE85U;
  }
  return x;
}
/// The key is the seed of dropout.
template <class W>
constexpr PhiloxWords<W> philox(const PhiloxWords<W>& x, std::uint64_t seed) {
  return philox(x, static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32));
}

/// The counter of four keys, 4 quad to 4 quad + 3, for the query at position p of head h: its batch times the number of
/// heads, plus its place among them. The random word of key j is word j mod 4 of the result.
constexpr PhiloxWords<std::uint32_t> dropout_counter(index_t h, index_t p, index_t quad) {
  const auto position = static_cast<std::uint64_t>(p), keys = static_cast<std::uint64_t>(quad);
  return {static_cast<std::uint32_t>(keys), static_cast<std::uint32_t>(position), static_cast<std::uint32_t>(h),
          static_cast<std::uint32_t>((position >> 32) << 16 | (keys >> 32))};
}

/// A weight is dropped where its random word is below this.
constexpr std::uint32_t dropout_threshold(double share) { return static_cast<std::uint32_t>(share * 0x1p32); }

/// Is the weight of key j kept?
constexpr bool dropout_keeps(std::uint64_t seed, double share, index_t h, index_t p, index_t j) {
  return philox(dropout_counter(h, p, j / 4), seed)[static_cast<std::size_t>(j % 4)] >= dropout_threshold(share);
}

}  // namespace redblue
