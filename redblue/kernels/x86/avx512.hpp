#pragma once
#include <immintrin.h>

#include "redblue/kernels/simd/shared_keys.hpp"
#include "redblue/kernels/x86/squares.hpp"
#include "redblue/kernels/x86/words32.hpp"
#include "redblue/language/types.hpp"

/// Vectors of AVX-512 (F, BW, DQ, VL). Their linkage is internal, and so is that of every template over them: nothing
/// compiled for this instruction set can be picked by the linker for the rest of the program.
namespace redblue::kernel::simd {
namespace {

struct F32x16 {
  using T = float;
  using Words = Words32x16;
  static constexpr index_t kLanes = 16;
  static constexpr int kAccumulators = 24;  // of 32 registers; the rest hold a row of B and a broadcast
  __m512 v;

  static F32x16 zero() { return {_mm512_setzero_ps()}; }
  static F32x16 all(float x) { return {_mm512_set1_ps(x)}; }
  static F32x16 load(const float* p) { return {_mm512_loadu_ps(p)}; }
  void store(float* p) const { _mm512_storeu_ps(p, v); }
  /// The first n lanes; the others are 0, and are not touched in memory.
  static F32x16 load_first(const float* p, index_t n) { return {_mm512_maskz_loadu_ps(first(n), p)}; }
  void store_first(float* p, index_t n) const { _mm512_mask_storeu_ps(p, first(n), v); }
  /// Lanes before n keep their value, the others get `other`.
  F32x16 first_or(index_t n, F32x16 other) const { return {_mm512_mask_blend_ps(first(n), other.v, v)}; }
  /// Lanes whose bit is 1 keep their value, the others get `other`.
  F32x16 where_bit_or(std::uint64_t bits, F32x16 other) const {
    return {_mm512_mask_blend_ps(static_cast<__mmask16>(bits), other.v, v)};
  }

  friend F32x16 operator+(F32x16 a, F32x16 b) { return {_mm512_add_ps(a.v, b.v)}; }
  friend F32x16 operator-(F32x16 a, F32x16 b) { return {_mm512_sub_ps(a.v, b.v)}; }
  friend F32x16 operator*(F32x16 a, F32x16 b) { return {_mm512_mul_ps(a.v, b.v)}; }
  friend F32x16 operator/(F32x16 a, F32x16 b) { return {_mm512_div_ps(a.v, b.v)}; }
  /// a b + c
  friend F32x16 fma(F32x16 a, F32x16 b, F32x16 c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
  /// The larger; `b` where either is NaN.
  friend F32x16 max(F32x16 a, F32x16 b) { return {_mm512_max_ps(a.v, b.v)}; }
  /// Is a > b in any lane? (Not where either is NaN.)
  friend bool any_above(F32x16 a, F32x16 b) { return _mm512_cmp_ps_mask(a.v, b.v, _CMP_GT_OQ) != 0; }
  friend F32x16 min(F32x16 a, F32x16 b) { return {_mm512_min_ps(a.v, b.v)}; }
  /// Where a == b: x, elsewhere (and where either is NaN) y.
  friend F32x16 where_equal(F32x16 a, F32x16 b, F32x16 x, F32x16 y) {
    return {_mm512_mask_blend_ps(_mm512_cmp_ps_mask(a.v, b.v, _CMP_EQ_OQ), y.v, x.v)};
  }
  friend F32x16 round(F32x16 a) { return {_mm512_roundscale_ps(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)}; }
  /// a = mantissa 2^exponent with the mantissa in [3/4, 3/2)
  friend F32x16 mantissa(F32x16 a) { return {_mm512_getmant_ps(a.v, _MM_MANT_NORM_p75_1p5, _MM_MANT_SIGN_src)}; }
  friend F32x16 exponent(F32x16 a) { return {_mm512_getexp_ps(_mm512_div_ps(a.v, mantissa(a).v))}; }
  /// a 2^n, n whole
  friend F32x16 scale_by_power(F32x16 a, F32x16 n) { return {_mm512_scalef_ps(a.v, n.v)}; }
  /// a 2^n; 0 where x < least, and the power is not formed there.
  friend F32x16 scale_unless_below(F32x16 a, F32x16 n, F32x16 x, F32x16 least) {
    return {_mm512_maskz_scalef_ps(_mm512_cmp_ps_mask(x.v, least.v, _CMP_NLT_UQ), a.v, n.v)};
  }
  friend float sum(F32x16 a) { return _mm512_reduce_add_ps(a.v); }
  friend float largest(F32x16 a) { return _mm512_reduce_max_ps(a.v); }

  static F32x16 load_f16(const std::uint16_t* p) { return from_f16(words16(p)); }
  static F32x16 load_bf16(const std::uint16_t* p) { return from_bf16(words16(p)); }
  static F32x16 load_int8(const std::int8_t* p) {
    return {_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))))};
  }
  static F32x16 from_f16(__m256i words) { return {_mm512_cvtph_ps(words)}; }
  static F32x16 from_bf16(__m256i words) {
    return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(words), 16))};
  }
  void store_f16(std::uint16_t* p) const {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p),
                        _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  }
  void store_bf16(std::uint16_t* p) const {
    const __m512i bits = _mm512_castps_si512(v),
                  odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    const __m512i rounded = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
    const __m512i quiet = _mm512_or_si512(bits, _mm512_set1_epi32(0x400000));  // of NaN
    const __m512i kept = _mm512_mask_blend_epi32(_mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q), rounded, quiet);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtepi32_epi16(_mm512_srli_epi32(kept, 16)));
  }

 private:
  static __m256i words16(const std::uint16_t* p) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)); }
  static __mmask16 first(index_t n) { return static_cast<__mmask16>(_bzhi_u32(0xffff, static_cast<unsigned>(n))); }
};

struct F64x8 {
  using T = double;
  using Words = Words32x8;
  static constexpr index_t kLanes = 8;
  static constexpr int kAccumulators = 24;
  __m512d v;

  static F64x8 zero() { return {_mm512_setzero_pd()}; }
  static F64x8 all(double x) { return {_mm512_set1_pd(x)}; }
  static F64x8 load(const double* p) { return {_mm512_loadu_pd(p)}; }
  void store(double* p) const { _mm512_storeu_pd(p, v); }
  static F64x8 load_first(const double* p, index_t n) { return {_mm512_maskz_loadu_pd(first(n), p)}; }
  void store_first(double* p, index_t n) const { _mm512_mask_storeu_pd(p, first(n), v); }
  F64x8 first_or(index_t n, F64x8 other) const { return {_mm512_mask_blend_pd(first(n), other.v, v)}; }
  F64x8 where_bit_or(std::uint64_t bits, F64x8 other) const {
    return {_mm512_mask_blend_pd(static_cast<__mmask8>(bits), other.v, v)};
  }

  friend F64x8 operator+(F64x8 a, F64x8 b) { return {_mm512_add_pd(a.v, b.v)}; }
  friend F64x8 operator-(F64x8 a, F64x8 b) { return {_mm512_sub_pd(a.v, b.v)}; }
  friend F64x8 operator*(F64x8 a, F64x8 b) { return {_mm512_mul_pd(a.v, b.v)}; }
  friend F64x8 operator/(F64x8 a, F64x8 b) { return {_mm512_div_pd(a.v, b.v)}; }
  friend F64x8 fma(F64x8 a, F64x8 b, F64x8 c) { return {_mm512_fmadd_pd(a.v, b.v, c.v)}; }
  friend F64x8 max(F64x8 a, F64x8 b) { return {_mm512_max_pd(a.v, b.v)}; }
  friend bool any_above(F64x8 a, F64x8 b) { return _mm512_cmp_pd_mask(a.v, b.v, _CMP_GT_OQ) != 0; }
  friend F64x8 min(F64x8 a, F64x8 b) { return {_mm512_min_pd(a.v, b.v)}; }
  friend F64x8 where_equal(F64x8 a, F64x8 b, F64x8 x, F64x8 y) {
    return {_mm512_mask_blend_pd(_mm512_cmp_pd_mask(a.v, b.v, _CMP_EQ_OQ), y.v, x.v)};
  }
  friend F64x8 round(F64x8 a) { return {_mm512_roundscale_pd(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)}; }
  /// a = mantissa 2^exponent with the mantissa in [3/4, 3/2)
  friend F64x8 mantissa(F64x8 a) { return {_mm512_getmant_pd(a.v, _MM_MANT_NORM_p75_1p5, _MM_MANT_SIGN_src)}; }
  friend F64x8 exponent(F64x8 a) { return {_mm512_getexp_pd(_mm512_div_pd(a.v, mantissa(a).v))}; }
  friend F64x8 scale_by_power(F64x8 a, F64x8 n) { return {_mm512_scalef_pd(a.v, n.v)}; }
  friend F64x8 scale_unless_below(F64x8 a, F64x8 n, F64x8 x, F64x8 least) {
    return {_mm512_maskz_scalef_pd(_mm512_cmp_pd_mask(x.v, least.v, _CMP_NLT_UQ), a.v, n.v)};
  }
  friend double sum(F64x8 a) { return _mm512_reduce_add_pd(a.v); }
  friend double largest(F64x8 a) { return _mm512_reduce_max_pd(a.v); }

 private:
  static __mmask8 first(index_t n) { return static_cast<__mmask8>(_bzhi_u32(0xff, static_cast<unsigned>(n))); }
};

/// Writes a square of L x L words at `from` transposed to `to`, in vectors of half the width: 44 cycles on Zen 4, where
/// whole vectors take 62.
inline void transpose_square(F32x16, const float* from, index_t stride, float* to, index_t to_stride) {
  for (index_t row = 0; row < 16; row += 8)
    for (index_t col = 0; col < 16; col += 8)
      transpose_8x8(from + row * stride + col, stride, to + col * to_stride + row, to_stride);
}

/// Lane i: the sum of the lanes of x[i]. Each pass halves what is left of each x and brings two of them together.
inline F32x16 sums(const F32x16 (&x)[16]) {
  __m512 a[16];
#pragma GCC unroll 8
  for (index_t i = 0; i < 8; ++i)
    a[i] =
        _mm512_add_ps(_mm512_unpacklo_ps(x[2 * i].v, x[2 * i + 1].v), _mm512_unpackhi_ps(x[2 * i].v, x[2 * i + 1].v));
#pragma GCC unroll 4
  for (index_t i = 0; i < 4; ++i)
    a[i] =
        _mm512_add_ps(_mm512_shuffle_ps(a[2 * i], a[2 * i + 1], 0x44), _mm512_shuffle_ps(a[2 * i], a[2 * i + 1], 0xee));
#pragma GCC unroll 2
  for (index_t n = 2; n > 0; n /= 2)
    for (index_t i = 0; i < n; ++i)
      a[i] = _mm512_add_ps(_mm512_shuffle_f32x4(a[2 * i], a[2 * i + 1], 0x88),
                           _mm512_shuffle_f32x4(a[2 * i], a[2 * i + 1], 0xdd));
  return {a[0]};
}

/// 64 / kCopies bytes, kCopies times.
template <int kCopies>
__m512i repeated(const void* p) {
  if constexpr (kCopies == 8) {
    long long bits;
    __builtin_memcpy(&bits, p, sizeof bits);
    return _mm512_set1_epi64(bits);
  } else if constexpr (kCopies == 4) {
    return _mm512_broadcast_i32x4(_mm_loadu_si128(static_cast<const __m128i*>(p)));
  } else if constexpr (kCopies == 2) {
    return _mm512_broadcast_i64x4(_mm256_loadu_si256(static_cast<const __m256i*>(p)));
  } else {
    static_assert(kCopies == 1);
    return _mm512_loadu_si512(p);
  }
}
template <int kCopies>
F32x16 repeated(F32x16, const float* p, Together<kCopies>) {
  return {_mm512_castsi512_ps(repeated<kCopies>(p))};
}
/// 32 / kCopies bytes, kCopies times.
template <int kCopies>
__m256i repeated(F32x16, const std::uint16_t* p, Together<kCopies>) {
  if constexpr (kCopies == 8) {
    int bits;
    __builtin_memcpy(&bits, p, sizeof bits);
    return _mm256_set1_epi32(bits);
  } else if constexpr (kCopies == 4) {
    long long bits;
    __builtin_memcpy(&bits, p, sizeof bits);
    return _mm256_set1_epi64x(bits);
  } else {
    static_assert(kCopies == 2);
    return _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  }
}

/// s[q], lane i: the sum of those lanes of x[i] that belong to query q, each query having as many side by side. Passes
/// bring vectors together as in `sums`, until a score is one lane; the others turn quarters of vectors, 4 keys each.
template <int kQueries>
void scores_of_queries(const F32x16 (&x)[16], F32x16 (&s)[kQueries]) {
  __m512 a[8], b[kQueries == 8 ? 8 : 4];
#pragma GCC unroll 8
  for (index_t i = 0; i < 8; ++i) {
    const __m512 one = x[2 * i].v, two = x[2 * i + 1].v;
    a[i] = kQueries == 8 ? _mm512_add_ps(_mm512_shuffle_ps(one, two, 0x88), _mm512_shuffle_ps(one, two, 0xdd))
                         : _mm512_add_ps(_mm512_unpacklo_ps(one, two), _mm512_unpackhi_ps(one, two));
  }
#pragma GCC unroll 4
  for (index_t i = 0; i < 4; ++i) {
    const __m512 one = a[2 * i], two = a[2 * i + 1];
    if constexpr (kQueries == 8) {
      b[i] = _mm512_shuffle_ps(one, two, 0x88);  // a quarter has two queries
      b[4 + i] = _mm512_shuffle_ps(one, two, 0xdd);
    } else {
      b[i] = _mm512_add_ps(_mm512_shuffle_ps(one, two, 0x44), _mm512_shuffle_ps(one, two, 0xee));
    }
  }
  const auto even = [](__m512 u, __m512 w) { return _mm512_shuffle_f32x4(u, w, 0x88); };
  const auto odd = [](__m512 u, __m512 w) { return _mm512_shuffle_f32x4(u, w, 0xdd); };
  if constexpr (kQueries == 2) {
    const __m512 low = _mm512_add_ps(even(b[0], b[1]), odd(b[0], b[1]));
    const __m512 high = _mm512_add_ps(even(b[2], b[3]), odd(b[2], b[3]));
    s[0].v = even(low, high);
    s[1].v = odd(low, high);
  } else {
    constexpr index_t kApart = kQueries / 4;
#pragma GCC unroll 2
    for (index_t h = 0; h < kApart; ++h) {
      const __m512* const q = b + 4 * h;
      const __m512 u = even(q[0], q[1]), v = odd(q[0], q[1]), w = even(q[2], q[3]), z = odd(q[2], q[3]);
      s[h].v = even(u, w);
      s[kApart + h].v = even(v, z);
      s[2 * kApart + h].v = odd(u, w);
      s[3 * kApart + h].v = odd(v, z);
    }
  }
}

}  // namespace
}  // namespace redblue::kernel::simd
