#pragma once
#include "redblue/kernels/simd/fetch.hpp"
#include "redblue/kernels/simd/few_rows.hpp"
#include "redblue/kernels/simd/panels.hpp"
#include "redblue/kernels/x86/avx512.hpp"

/// Products of bf16 pairs summed in fp32 (vdpbf16ps), for AVX-512 BF16. A pair is two words of k: two features of a
/// query or key, or one feature of two values.
namespace redblue::kernel::simd {
namespace {

/// A pair of A times a vector of pairs of B.
struct MultiplyBf16 {
  static constexpr index_t kDepth = 2;
  static constexpr Layout kValues = Layout::bf16_pairs;
  using Element = std::uint16_t;
  struct Session {
    explicit Session(index_t) {}
    MultiplyBf16 multiply() const { return {}; }
  };
  using B = __m512i;  // pairs as bits: clang 19 -O0 loses vectors of bf16 that functions pass to each other

  static B broadcast(const void* pair) {
    int bits;
    __builtin_memcpy(&bits, pair, sizeof bits);
    return _mm512_set1_epi32(bits);
  }
  static B load(const float* pairs) { return _mm512_loadu_si512(pairs); }
  static F32x16 add(B a, B b, F32x16 c) {
    return {_mm512_dpbf16_ps(c.v, reinterpret_cast<__m512bh>(a), reinterpret_cast<__m512bh>(b))};
  }
  /// The last word of an odd k: its pair is half empty.
  template <int R, int NV>
  [[gnu::always_inline]] static void add_last(F32x16 (&c)[R][NV], const Element* a, index_t stride, const float* b) {
#pragma GCC unroll 24
    for (int r = 0; r < R; ++r) {
      const std::uint32_t half = a[r * stride];
      const B x = broadcast(&half);
#pragma GCC unroll 4
      for (int v = 0; v < NV; ++v) c[r][v] = add(x, load(b + v * F32x16::kLanes), c[r][v]);
    }
  }
  /// 2^x = 2^n p(x - n) with n = floor(x), for words that will be rounded to 8 bits. p minimises the largest relative
  /// error on [0, 1] under p(0) = 1: degree 3, 8.6e-5. The instructions take -inf and NaN as they should.
  [[gnu::always_inline]] static F32x16 exp2(F32x16 x) {
    const F32x16 f{_mm512_reduce_ps(x.v, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC)};
    F32x16 p = F32x16::all(0.07706653326749802F);
    p = fma(p, f, F32x16::all(0.22764571011066437F));
    p = fma(p, f, F32x16::all(0.6951165795326233F));
    return scale_unless_below(fma(p, f, F32x16::all(1)), x, x, F32x16::all(kLeastPower<float>));
  }
  /// Rounds to nearest even and interleaves: lane q gets the pair (a[q], b[q]).
  static void store_pair(F32x16 a, F32x16 b, float* to) {
    const __m512i order = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22, 6,
                                           21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
    const auto both = reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(b.v, a.v));
    _mm512_storeu_si512(to, _mm512_permutexvar_epi16(order, both));
  }
};

/// Rows of bf16 where queries are few; weights, sums and the words of queries are f32. Values of two keys are paired as
/// they come: that leaves features 0..3, 8..11, .. of a unit in one vector and the others in the other.
struct Bf16Rows : MultiplyBf16 {
  using Wide = Bf16Rows;
  static constexpr int kVectors = 2;
  static constexpr int kMostRows = 4;
  static constexpr index_t kWords = kVectors * F32x16::kLanes;
  static B keys(const Element* p) { return _mm512_loadu_si512(p); }
  static B keys_first(const Element* p, index_t n) { return _mm512_maskz_loadu_epi16(first(n), p); }
  static void store_keys(B unit, Element* to, index_t n) { _mm512_mask_storeu_epi16(to, first(n), unit); }
  static B queries(const float* p) {
    return reinterpret_cast<B>(_mm512_cvtne2ps_pbh(_mm512_loadu_ps(p + 16), _mm512_loadu_ps(p)));
  }
  static B queries_first(const float* p, index_t n) {
    const index_t low = std::min<index_t>(n, 16);
    return reinterpret_cast<B>(
        _mm512_cvtne2ps_pbh(F32x16::load_first(p + low, n - low).v, F32x16::load_first(p, low).v));
  }
  template <int kQueries>
  static B repeat(const Element* p, Together<kQueries>) {
    return repeated<kQueries>(p);
  }
  static void values(const Element* p, index_t stride, B (&unit)[2]) {
    pair(_mm512_loadu_si512(p), _mm512_loadu_si512(p + stride), unit);
  }
  static void values_first(const Element* p, index_t stride, index_t n, bool both, B (&unit)[2]) {
    pair(_mm512_maskz_loadu_epi16(first(n), p), _mm512_maskz_loadu_epi16(first(both ? n : 0), p + stride), unit);
  }
  static void load_outputs(const float* p, index_t n, F32x16 (&unit)[2]) {
    const index_t low = std::min<index_t>(n, 16);
    const __m512 a = F32x16::load_first(p, low).v, b = F32x16::load_first(p + low, n - low).v;
    unit[0].v = _mm512_shuffle_f32x4(a, b, 0x88);
    unit[1].v = _mm512_shuffle_f32x4(a, b, 0xdd);
  }
  static void store_outputs(const F32x16 (&unit)[2], float* p, index_t n) {
    const index_t low = std::min<index_t>(n, 16);
    const __m512 a = _mm512_shuffle_f32x4(unit[0].v, unit[1].v, 0x44);
    const __m512 b = _mm512_shuffle_f32x4(unit[0].v, unit[1].v, 0xee);
    F32x16{_mm512_shuffle_f32x4(a, a, 0xd8)}.store_first(p, low);
    F32x16{_mm512_shuffle_f32x4(b, b, 0xd8)}.store_first(p + low, n - low);
  }
  static const float* weights(const float* p, index_t n, float* buffer) {
    for (index_t i = 0; i < n; i += F32x16::kLanes)
      _mm256_storeu_si256(
          reinterpret_cast<__m256i*>(buffer + i / kDepth),
          reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(F32x16::load_first(p + i, std::min(n - i, F32x16::kLanes)).v)));
    return buffer;
  }

 protected:
  static __mmask32 first(index_t n) { return _bzhi_u32(~0U, static_cast<unsigned>(n)); }

 private:
  static void pair(__m512i a, __m512i b, B (&unit)[2]) {
    unit[0] = _mm512_unpacklo_epi16(a, b);
    unit[1] = _mm512_unpackhi_epi16(a, b);
  }
};

/// Rows of int8 where queries are few and came from bf16: words of int8 are bf16 without rounding. Values of two keys
/// are paired as they are widened, once for up to 8 queries, and leave features in their order.
struct Int8Rows : Bf16Rows {
  using Element = std::int8_t;
  static constexpr int kMostRows = 8;
  static B keys(const Element* p) { return halves(F32x16::load_int8(p), F32x16::load_int8(p + 16)); }
  static B keys_first(const Element* p, index_t n) {
    const index_t low = std::min<index_t>(n, 16);
    return halves(load_first(p, low), load_first(p + low, n - low));
  }
  template <int kQueries>
  static B repeat(const Element*, Together<kQueries>) = delete;
  static void values(const Element* p, index_t stride, B (&unit)[2]) {
    unit[0] = pair(F32x16::load_int8(p), F32x16::load_int8(p + stride));
    unit[1] = pair(F32x16::load_int8(p + 16), F32x16::load_int8(p + stride + 16));
  }
  static void values_first(const Element* p, index_t stride, index_t n, bool both, B (&unit)[2]) {
    const index_t low = std::min<index_t>(n, 16), high = n - low;
    const Element* const second = both ? p + stride : p;
    unit[0] = pair(load_first(p, low), load_first(second, both ? low : 0));
    unit[1] = pair(load_first(p + low, high), load_first(second + low, both ? high : 0));
  }
  static void load_outputs(const float* p, index_t n, F32x16 (&unit)[2]) {
    const index_t low = std::min<index_t>(n, 16);
    unit[0] = F32x16::load_first(p, low);
    unit[1] = F32x16::load_first(p + low, n - low);
  }
  static void store_outputs(const F32x16 (&unit)[2], float* p, index_t n) {
    const index_t low = std::min<index_t>(n, 16);
    unit[0].store_first(p, low);
    unit[1].store_first(p + low, n - low);
  }

 private:
  static F32x16 load_first(const Element* p, index_t n) {
    const auto mask = static_cast<__mmask16>(_bzhi_u32(0xffff, static_cast<unsigned>(n)));
    return {_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_maskz_loadu_epi8(mask, p)))};
  }
  static B halves(F32x16 low, F32x16 high) { return reinterpret_cast<B>(_mm512_cvtne2ps_pbh(high.v, low.v)); }
  static B pair(F32x16 a, F32x16 b) {
    return _mm512_or_si512(_mm512_srli_epi32(_mm512_castps_si512(a.v), 16), _mm512_castps_si512(b.v));
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

/// Rows become rows of pairs; the words that lie `ahead` of each are fetched.
inline void pair_rows(const std::uint16_t* from, Shape shape, index_t stride, View<float> pairs, index_t ahead) {
  constexpr index_t kWords = 32;
  const __m512i low = _mm512_set_epi16(47, 15, 46, 14, 45, 13, 44, 12, 43, 11, 42, 10, 41, 9, 40, 8, 39, 7, 38, 6, 37,
                                       5, 36, 4, 35, 3, 34, 2, 33, 1, 32, 0);
  const __m512i high = _mm512_or_si512(low, _mm512_set1_epi16(16));
  for (index_t r = 0; r < shape.rows; r += 2)
    for (index_t t = 0; t < shape.cols; t += kWords) {
      const std::uint16_t* const a = from + r * stride + t;
      const auto n = static_cast<unsigned>(std::min(kWords, shape.cols - t));
      const __mmask32 mask = _bzhi_u32(~0U, n), second = r + 1 < shape.rows ? mask : 0;
      const __m512i x = _mm512_maskz_loadu_epi16(mask, a), y = _mm512_maskz_loadu_epi16(second, a + stride);
      fetch(a + ahead);
      fetch(a + ahead + stride);
      float* const to = &pairs(r / 2, t);
      _mm512_mask_storeu_epi32(to, static_cast<__mmask16>(_bzhi_u32(0xffff, n)), _mm512_permutex2var_epi16(x, low, y));
      _mm512_mask_storeu_epi32(to + 16, static_cast<__mmask16>(mask >> 16), _mm512_permutex2var_epi16(x, high, y));
    }
}
inline void pair_rows(const std::uint16_t* from, Shape shape, index_t stride, View<float> pairs) {
  pair_rows(from, shape, stride, pairs, rows_ahead<std::uint16_t>(shape.cols) * stride);
}

}  // namespace
}  // namespace redblue::kernel::simd
