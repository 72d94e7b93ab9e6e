#include <immintrin.h>

#include <cstdint>
#include <utility>

#include "redblue/hardware/x86/loops.hpp"

namespace redblue::hardware {

namespace {

constexpr int kChains = 24;  // the latency is longer than a multiply-add's

/// kChains sums of products of pairs, x <- x + a b, which start apart.
template <std::size_t... I>
double dot_products(std::int64_t steps, std::index_sequence<I...>) {
  const auto a = __builtin_bit_cast(__m512bh, _mm512_set1_epi32(0x3f803f80));  // pairs of 1
  const auto b = __builtin_bit_cast(__m512bh, _mm512_set1_epi32(0x3a803a80));  // pairs of 2^-10
  __m512 x[] = {_mm512_set1_ps(static_cast<float>(I))...};
  for (std::int64_t s = 0; s < steps; ++s) ((x[I] = _mm512_dpbf16_ps(x[I], a, b)), ...);
  __m512 total = _mm512_setzero_ps();
  ((total = _mm512_add_ps(total, x[I])), ...);
  float parts[16];
  _mm512_storeu_ps(parts, total);
  double sum = 0;
  for (const float p : parts) sum += static_cast<double>(p);
  return sum;
}
double dot_products(std::int64_t steps) { return dot_products(steps, std::make_index_sequence<kChains>()); }

}  // namespace

const Loops kAvx512Bf16 = {Isa::avx512_bf16, DType::bf16, 32, kChains, dot_products, nullptr, nullptr};

}  // namespace redblue::hardware
