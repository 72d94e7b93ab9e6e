#pragma once
#include <immintrin.h>

#include <cstdint>

#include "redblue/masks/philox.hpp"

/// A 32-bit word in each lane, for philox(). AVX2; 16 words: AVX-512. Their linkage is internal, like that of
/// avx512.hpp.
namespace redblue::kernel::simd {
namespace {

/// Products of 32-bit words at even places, in 64 bits: odd places take part after a shift, and the halves are
/// blended.
struct Words32x4 {
  __m128i v;
  static Words32x4 all(std::uint32_t x) { return {_mm_set1_epi32(static_cast<int>(x))}; }
  static Words32x4 load(const std::uint32_t* p) { return {_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))}; }
  void store(std::uint32_t* p) const { _mm_storeu_si128(reinterpret_cast<__m128i*>(p), v); }
  friend Words32x4 operator^(Words32x4 a, Words32x4 b) { return {_mm_xor_si128(a.v, b.v)}; }
  friend Words32x4 operator^(Words32x4 a, std::uint32_t b) { return a ^ all(b); }
  friend Product<Words32x4> product(std::uint32_t a, Words32x4 b) {
    const __m128i x = _mm_set1_epi32(static_cast<int>(a)), even = _mm_mul_epu32(x, b.v),
                  odd = _mm_mul_epu32(x, _mm_srli_epi64(b.v, 32));
    return {{_mm_blend_epi32(_mm_srli_epi64(even, 32), odd, 0b1010)},
            {_mm_blend_epi32(even, _mm_slli_epi64(odd, 32), 0b1010)}};
  }
};

struct Words32x8 {
  __m256i v;
  static Words32x8 all(std::uint32_t x) { return {_mm256_set1_epi32(static_cast<int>(x))}; }
  static Words32x8 load(const std::uint32_t* p) { return {_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))}; }
  void store(std::uint32_t* p) const { _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), v); }
  friend Words32x8 operator^(Words32x8 a, Words32x8 b) { return {_mm256_xor_si256(a.v, b.v)}; }
  friend Words32x8 operator^(Words32x8 a, std::uint32_t b) { return a ^ all(b); }
  friend Product<Words32x8> product(std::uint32_t a, Words32x8 b) {
    const __m256i x = _mm256_set1_epi32(static_cast<int>(a)), even = _mm256_mul_epu32(x, b.v),
                  odd = _mm256_mul_epu32(x, _mm256_srli_epi64(b.v, 32));
    return {{_mm256_blend_epi32(_mm256_srli_epi64(even, 32), odd, 0b10101010)},
            {_mm256_blend_epi32(even, _mm256_slli_epi64(odd, 32), 0b10101010)}};
  }
};

#ifdef __AVX512F__
struct Words32x16 {
  __m512i v;
  static Words32x16 all(std::uint32_t x) { return {_mm512_set1_epi32(static_cast<int>(x))}; }
  static Words32x16 load(const std::uint32_t* p) { return {_mm512_loadu_si512(p)}; }
  void store(std::uint32_t* p) const { _mm512_storeu_si512(p, v); }
  friend Words32x16 operator^(Words32x16 a, Words32x16 b) { return {_mm512_xor_si512(a.v, b.v)}; }
  friend Words32x16 operator^(Words32x16 a, std::uint32_t b) { return a ^ all(b); }
  friend Product<Words32x16> product(std::uint32_t a, Words32x16 b) {
    const __m512i x = _mm512_set1_epi32(static_cast<int>(a)), even = _mm512_mul_epu32(x, b.v),
                  odd = _mm512_mul_epu32(x, _mm512_srli_epi64(b.v, 32));
    return {{_mm512_mask_blend_epi32(0xaaaa, _mm512_srli_epi64(even, 32), odd)},
            {_mm512_mask_blend_epi32(0xaaaa, even, _mm512_slli_epi64(odd, 32))}};
  }
};
#endif

}  // namespace
}  // namespace redblue::kernel::simd
