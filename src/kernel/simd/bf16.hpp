#pragma once
#include "kernel/simd/avx512.hpp"
#include "kernel/simd/panels.hpp"

/// Products of bf16 pairs summed in fp32 (vdpbf16ps), for AVX-512 BF16. A pair is two words of k: two features of a
/// query or key, or one feature of two values.
namespace redblue::kernel::simd {
namespace {

/// A pair of A times a vector of pairs of B.
struct MultiplyBf16 {
  static constexpr index_t kDepth = 2;
  using Element = std::uint16_t;
  using B = __m512bh;

  static B broadcast(const void* pair) {
    int bits;
    __builtin_memcpy(&bits, pair, sizeof bits);
    return reinterpret_cast<B>(_mm512_set1_epi32(bits));
  }
  static B load(const float* pairs) { return reinterpret_cast<B>(_mm512_loadu_si512(pairs)); }
  static F32x16 add(B a, B b, F32x16 c) { return {_mm512_dpbf16_ps(c.v, a, b)}; }
  /// The last word of an odd k: its pair is half empty.
  template <int R, int NV>
  static void add_last(F32x16 (&c)[R][NV], const Element* a, index_t stride, const float* b) {
    for (int r = 0; r < R; ++r)
      for (int v = 0; v < NV; ++v) {
        const std::uint32_t half = a[r * stride];
        c[r][v] = add(broadcast(&half), load(b + v * F32x16::kLanes), c[r][v]);
      }
  }
  /// Rounds to nearest even and interleaves: lane q gets the pair (a[q], b[q]).
  static void store_pair(F32x16 a, F32x16 b, float* to) {
    const __m512i order = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22, 6,
                                           21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
    const auto both = reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(b.v, a.v));
    _mm512_storeu_si512(to, _mm512_permutexvar_epi16(order, both));
  }
};

/// Panels of queries in pairs: [panel][pair of columns][row].
inline void pack_bf16(View<const float> from, float* panels) {
  constexpr index_t L = F32x16::kLanes;
  const index_t pairs = ceil_div(from.cols(), 2);
  alignas(64) float block[L * L];
  for_panels<F32x16>({from.rows(), pairs}, [&](index_t first, index_t rows, index_t width, index_t offset) {
    for (index_t r = 0; r < width; r += L)
      for (index_t t = 0; t < from.cols(); t += L) {
        const index_t cols = std::min(L, from.cols() - t), count = std::clamp<index_t>(rows - r, 0, L);
        View<const float> part = from;
        part.data += (first + r) * from.row_stride + t * from.col_stride;
        part.shape = {count, cols};
        transpose_in<F32x16>(part, block, L);
        for (index_t i = 0; i < cols; i += 2)
          MultiplyBf16::store_pair(F32x16::load(block + i * L),
                                   i + 1 < cols ? F32x16::load(block + (i + 1) * L) : F32x16::zero(),
                                   panels + offset + (t + i) / 2 * width + r);
      }
  });
}

inline void pair_rows(const std::uint16_t* from, Shape shape, index_t stride, float* pairs) {
  const __m512i zero = _mm512_setzero_si512();
  for (index_t r = 0; r < shape.rows; r += 2)
    for (index_t t = 0; t < shape.cols; t += 16) {
      const std::uint16_t* const a = from + r * stride + t;
      const auto mask =
          static_cast<__mmask16>(_bzhi_u32(0xffff, static_cast<unsigned>(std::min<index_t>(16, shape.cols - t))));
      const __m512i low = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, a));
      const __m512i high =
          r + 1 < shape.rows ? _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, a + stride)) : zero;
      _mm512_mask_storeu_epi32(pairs + r / 2 * shape.cols + t, mask, _mm512_or_si512(low, _mm512_slli_epi32(high, 16)));
    }
}

}  // namespace
}  // namespace redblue::kernel::simd
