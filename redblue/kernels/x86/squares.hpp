#pragma once
#include <immintrin.h>

#include "redblue/language/types.hpp"

/// Transposed copies of squares of words, for AVX2 and wider sets. Internal linkage, as in avx512.hpp.
namespace redblue::kernel::simd {
namespace {

/// Writes 8 x 8 words at `from` transposed to `to`. Each half of a row is loaded into the lane where it belongs, so
/// that what is left to exchange lies inside 128-bit lanes.
[[gnu::always_inline]] inline void transpose_8x8(const float* from, index_t stride, float* to, index_t to_stride) {
#pragma GCC unroll 2
  for (index_t half = 0; half < 2; ++half) {
    __m256 a[4];
#pragma GCC unroll 4
    for (index_t i = 0; i < 4; ++i) {
      const float* const p = from + i * stride + 4 * half;
      a[i] = _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(p)), _mm_loadu_ps(p + 4 * stride), 1);
    }
    const __m256 b0 = _mm256_unpacklo_ps(a[0], a[1]), b1 = _mm256_unpackhi_ps(a[0], a[1]),
                 b2 = _mm256_unpacklo_ps(a[2], a[3]), b3 = _mm256_unpackhi_ps(a[2], a[3]);
    float* const out = to + 4 * half * to_stride;
    _mm256_storeu_ps(out, _mm256_shuffle_ps(b0, b2, 0x44));
    _mm256_storeu_ps(out + to_stride, _mm256_shuffle_ps(b0, b2, 0xee));
    _mm256_storeu_ps(out + 2 * to_stride, _mm256_shuffle_ps(b1, b3, 0x44));
    _mm256_storeu_ps(out + 3 * to_stride, _mm256_shuffle_ps(b1, b3, 0xee));
  }
}

}  // namespace
}  // namespace redblue::kernel::simd
