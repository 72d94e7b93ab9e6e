#pragma once
#include <immintrin.h>

#include "redblue/kernels/x86/squares.hpp"
#include "redblue/kernels/x86/words32.hpp"
#include "redblue/language/types.hpp"

/// Vectors of AVX2 and FMA, with the interface of avx512.hpp. 16 registers: 12 accumulators.
namespace redblue::kernel::simd {
namespace {

/// The first n of the lanes of 32 (64) bits.
inline __m256i first32(index_t n) {
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(n)), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
inline __m256i first64(index_t n) { return _mm256_cmpgt_epi64(_mm256_set1_epi64x(n), _mm256_setr_epi64x(0, 1, 2, 3)); }

struct F32x8 {
  using T = float;
  using Words = Words32x8;
  static constexpr index_t kLanes = 8;
  static constexpr int kAccumulators = 12;
  __m256 v;

  static F32x8 zero() { return {_mm256_setzero_ps()}; }
  static F32x8 all(float x) { return {_mm256_set1_ps(x)}; }
  static F32x8 load(const float* p) { return {_mm256_loadu_ps(p)}; }
  void store(float* p) const { _mm256_storeu_ps(p, v); }
  static F32x8 load_first(const float* p, index_t n) { return {_mm256_maskload_ps(p, first32(n))}; }
  void store_first(float* p, index_t n) const { _mm256_maskstore_ps(p, first32(n), v); }
  F32x8 first_or(index_t n, F32x8 other) const {
    return {_mm256_blendv_ps(other.v, v, _mm256_castsi256_ps(first32(n)))};
  }
  F32x8 where_bit_or(std::uint64_t bits, F32x8 other) const {
    const __m256i lane = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128),
                  there = _mm256_and_si256(_mm256_set1_epi32(static_cast<int>(bits & 0xff)), lane);
    return {_mm256_blendv_ps(other.v, v, _mm256_castsi256_ps(_mm256_cmpeq_epi32(there, lane)))};
  }

  friend F32x8 operator+(F32x8 a, F32x8 b) { return {_mm256_add_ps(a.v, b.v)}; }
  friend F32x8 operator-(F32x8 a, F32x8 b) { return {_mm256_sub_ps(a.v, b.v)}; }
  friend F32x8 operator*(F32x8 a, F32x8 b) { return {_mm256_mul_ps(a.v, b.v)}; }
  friend F32x8 operator/(F32x8 a, F32x8 b) { return {_mm256_div_ps(a.v, b.v)}; }
  friend F32x8 fma(F32x8 a, F32x8 b, F32x8 c) { return {_mm256_fmadd_ps(a.v, b.v, c.v)}; }
  friend F32x8 max(F32x8 a, F32x8 b) { return {_mm256_max_ps(a.v, b.v)}; }
  friend bool any_above(F32x8 a, F32x8 b) { return _mm256_movemask_ps(_mm256_cmp_ps(a.v, b.v, _CMP_GT_OQ)) != 0; }
  friend F32x8 min(F32x8 a, F32x8 b) { return {_mm256_min_ps(a.v, b.v)}; }
  friend F32x8 where_equal(F32x8 a, F32x8 b, F32x8 x, F32x8 y) {
    return {_mm256_blendv_ps(y.v, x.v, _mm256_cmp_ps(a.v, b.v, _CMP_EQ_OQ))};
  }
  friend F32x8 round(F32x8 a) { return {_mm256_round_ps(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)}; }
  /// a = mantissa 2^exponent with the mantissa in [3/4, 3/2), for normal a > 0: the bits above those of 3/4 count.
  friend F32x8 mantissa(F32x8 a) {
    const __m256i bits = _mm256_castps_si256(a.v), base = _mm256_set1_epi32(0x3f400000);
    const __m256i low = _mm256_and_si256(_mm256_sub_epi32(bits, base), _mm256_set1_epi32(0x007fffff));
    return {_mm256_castsi256_ps(_mm256_add_epi32(low, base))};
  }
  friend F32x8 exponent(F32x8 a) {
    const __m256i above = _mm256_sub_epi32(_mm256_castps_si256(a.v), _mm256_set1_epi32(0x3f400000));
    return {_mm256_cvtepi32_ps(_mm256_srai_epi32(above, 23))};
  }
  /// In two steps, so that powers below the normal ones are reached.
  friend F32x8 scale_by_power(F32x8 a, F32x8 n) {
    const __m256i k = _mm256_cvtps_epi32(n.v), half = _mm256_srai_epi32(k, 1);
    const auto power = [](__m256i e) {
      return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(e, _mm256_set1_epi32(127)), 23));
    };
    return {_mm256_mul_ps(_mm256_mul_ps(a.v, power(half)), power(_mm256_sub_epi32(k, half)))};
  }
  /// a 2^n; 0 where x < least, and the power is not formed there.
  friend F32x8 scale_unless_below(F32x8 a, F32x8 n, F32x8 x, F32x8 least) {
    const __m256 kept = _mm256_cmp_ps(x.v, least.v, _CMP_NLT_UQ);
    return {_mm256_and_ps(scale_by_power(a, F32x8{_mm256_and_ps(n.v, kept)}).v, kept)};
  }
  friend float sum(F32x8 a) {
    const __m128 x = _mm_add_ps(_mm256_castps256_ps128(a.v), _mm256_extractf128_ps(a.v, 1));
    const __m128 y = _mm_add_ps(x, _mm_movehl_ps(x, x));
    return _mm_cvtss_f32(_mm_add_ss(y, _mm_movehdup_ps(y)));
  }
  friend float largest(F32x8 a) {
    const __m128 x = _mm_max_ps(_mm256_castps256_ps128(a.v), _mm256_extractf128_ps(a.v, 1));
    const __m128 y = _mm_max_ps(x, _mm_movehl_ps(x, x));
    return _mm_cvtss_f32(_mm_max_ss(y, _mm_movehdup_ps(y)));
  }

  static F32x8 load_int8(const std::int8_t* p) {
    return {_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))))};
  }
  static F32x8 load_f16(const std::uint16_t* p) { return {_mm256_cvtph_ps(words16(p))}; }
  static F32x8 load_bf16(const std::uint16_t* p) {
    return {_mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(words16(p)), 16))};
  }
  void store_f16(std::uint16_t* p) const {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  }
  void store_bf16(std::uint16_t* p) const {
    const __m256i bits = _mm256_castps_si256(v);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    const __m256i rounded = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
    const __m256i quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));  // of NaN
    const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(v, v, _CMP_UNORD_Q));
    const __m256i kept = _mm256_srli_epi32(_mm256_blendv_epi8(rounded, quiet, nan), 16);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p),
                     _mm_packus_epi32(_mm256_castsi256_si128(kept), _mm256_extracti128_si256(kept, 1)));
  }

 private:
  static __m128i words16(const std::uint16_t* p) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p)); }
};

struct F64x4 {
  using T = double;
  using Words = Words32x4;
  static constexpr index_t kLanes = 4;
  static constexpr int kAccumulators = 12;
  __m256d v;

  static F64x4 zero() { return {_mm256_setzero_pd()}; }
  static F64x4 all(double x) { return {_mm256_set1_pd(x)}; }
  static F64x4 load(const double* p) { return {_mm256_loadu_pd(p)}; }
  void store(double* p) const { _mm256_storeu_pd(p, v); }
  static F64x4 load_first(const double* p, index_t n) { return {_mm256_maskload_pd(p, first64(n))}; }
  void store_first(double* p, index_t n) const { _mm256_maskstore_pd(p, first64(n), v); }
  F64x4 first_or(index_t n, F64x4 other) const {
    return {_mm256_blendv_pd(other.v, v, _mm256_castsi256_pd(first64(n)))};
  }
  F64x4 where_bit_or(std::uint64_t bits, F64x4 other) const {
    const __m256i lane = _mm256_setr_epi64x(1, 2, 4, 8),
                  there = _mm256_and_si256(_mm256_set1_epi64x(static_cast<long long>(bits & 0xf)), lane);
    return {_mm256_blendv_pd(other.v, v, _mm256_castsi256_pd(_mm256_cmpeq_epi64(there, lane)))};
  }

  friend F64x4 operator+(F64x4 a, F64x4 b) { return {_mm256_add_pd(a.v, b.v)}; }
  friend F64x4 operator-(F64x4 a, F64x4 b) { return {_mm256_sub_pd(a.v, b.v)}; }
  friend F64x4 operator*(F64x4 a, F64x4 b) { return {_mm256_mul_pd(a.v, b.v)}; }
  friend F64x4 operator/(F64x4 a, F64x4 b) { return {_mm256_div_pd(a.v, b.v)}; }
  friend F64x4 fma(F64x4 a, F64x4 b, F64x4 c) { return {_mm256_fmadd_pd(a.v, b.v, c.v)}; }
  friend F64x4 max(F64x4 a, F64x4 b) { return {_mm256_max_pd(a.v, b.v)}; }
  friend bool any_above(F64x4 a, F64x4 b) { return _mm256_movemask_pd(_mm256_cmp_pd(a.v, b.v, _CMP_GT_OQ)) != 0; }
  friend F64x4 min(F64x4 a, F64x4 b) { return {_mm256_min_pd(a.v, b.v)}; }
  friend F64x4 where_equal(F64x4 a, F64x4 b, F64x4 x, F64x4 y) {
    return {_mm256_blendv_pd(y.v, x.v, _mm256_cmp_pd(a.v, b.v, _CMP_EQ_OQ))};
  }
  friend F64x4 round(F64x4 a) { return {_mm256_round_pd(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)}; }
  friend F64x4 mantissa(F64x4 a) {
    const __m256i bits = _mm256_castpd_si256(a.v), base = _mm256_set1_epi64x(0x3fe8000000000000);
    const __m256i low = _mm256_and_si256(_mm256_sub_epi64(bits, base), _mm256_set1_epi64x(0x000fffffffffffff));
    return {_mm256_castsi256_pd(_mm256_add_epi64(low, base))};
  }
  friend F64x4 exponent(F64x4 a) {
    // The high halves of the words hold the exponent.
    const __m256i above = _mm256_sub_epi64(_mm256_castpd_si256(a.v), _mm256_set1_epi64x(0x3fe8000000000000));
    const __m256i high = _mm256_permutevar8x32_epi32(above, _mm256_setr_epi32(1, 3, 5, 7, 1, 3, 5, 7));
    return {_mm256_cvtepi32_pd(_mm_srai_epi32(_mm256_castsi256_si128(high), 20))};
  }
  friend F64x4 scale_by_power(F64x4 a, F64x4 n) {
    // 1.5 2^52 + k holds k in its low bits.
    const __m256d magic = _mm256_set1_pd(6755399441055744.0);
    const __m256d half = _mm256_floor_pd(_mm256_mul_pd(n.v, _mm256_set1_pd(0.5)));
    const auto power = [&](__m256d e) {
      const __m256i k = _mm256_castpd_si256(_mm256_add_pd(_mm256_add_pd(e, _mm256_set1_pd(1023)), magic));
      return _mm256_castsi256_pd(_mm256_slli_epi64(k, 52));
    };
    return {_mm256_mul_pd(_mm256_mul_pd(a.v, power(half)), power(_mm256_sub_pd(n.v, half)))};
  }
  friend F64x4 scale_unless_below(F64x4 a, F64x4 n, F64x4 x, F64x4 least) {
    const __m256d kept = _mm256_cmp_pd(x.v, least.v, _CMP_NLT_UQ);
    return {_mm256_and_pd(scale_by_power(a, F64x4{_mm256_and_pd(n.v, kept)}).v, kept)};
  }
  friend double sum(F64x4 a) {
    const __m128d x = _mm_add_pd(_mm256_castpd256_pd128(a.v), _mm256_extractf128_pd(a.v, 1));
    return _mm_cvtsd_f64(_mm_add_sd(x, _mm_unpackhi_pd(x, x)));
  }
  friend double largest(F64x4 a) {
    const __m128d x = _mm_max_pd(_mm256_castpd256_pd128(a.v), _mm256_extractf128_pd(a.v, 1));
    return _mm_cvtsd_f64(_mm_max_sd(x, _mm_unpackhi_pd(x, x)));
  }
};

/// Writes a square of L x L words at `from` transposed to `to`.
inline void transpose_square(F32x8, const float* from, index_t stride, float* to, index_t to_stride) {
  transpose_8x8(from, stride, to, to_stride);
}

}  // namespace
}  // namespace redblue::kernel::simd
