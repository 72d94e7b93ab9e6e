#pragma once
#include "kernel/simd/bf16.hpp"
#include "kernel/simd/gemm.hpp"

/// Products of f32 operands that are rounded to bf16 on their way in: exactly, where they came from bf16. Two terms of
/// a sum are a pair.
namespace redblue::kernel::simd {
namespace {

/// Terms of a sum whose pairs are made at a time: of B they fit into the first cache.
inline constexpr index_t kPaired = 192;

/// `rows` rows of `words` words, `stride` apart, as bf16: `to_stride` words apart, zeros up to a multiple of 32.
inline void round_rows(const float* from, index_t stride, index_t rows, index_t words, std::uint16_t* to,
                       index_t to_stride) {
  for (index_t r = 0; r < rows; ++r)
    for (index_t t = 0; t < words; t += 32)
      _mm512_storeu_si512(to + r * to_stride + t, reinterpret_cast<__m512i>(Bf16Rows::queries_first(
                                                      from + r * stride + t, std::min<index_t>(32, words - t))));
}

/// Rows 2i and 2i + 1 become row i of pairs; an odd last row is paired with zeros.
inline void round_pairs(const float* from, index_t stride, Shape s, float* to, index_t to_stride) {
  constexpr index_t L = F32x16::kLanes;
  for (index_t r = 0; r < s.rows; r += 2)
    for (index_t t = 0; t < s.cols; t += L) {
      const index_t n = std::min(L, s.cols - t);
      const float* const row = from + r * stride + t;
      MultiplyBf16::store_pair(F32x16::load_first(row, n),
                               r + 1 < s.rows ? F32x16::load_first(row + stride, n) : F32x16::zero(),
                               to + r / 2 * to_stride + t);
    }
}

/// C <- [C +] A B, `kPaired` terms summed at a time, for row-major C and B. a(row, Height<R>, first, terms) gives the
/// pairs of these rows of A, from the even term `first` on. Terms outside of `depth` may be left out.
template <class A, class D>
void multiply_paired(View<float> C, const A& a, View<const float> B, const D& depth, bool overwrite) {
  using V = F32x16;
  constexpr index_t L = V::kLanes, kWidth = 4 * L;
  alignas(64) float pairs[kPaired / 2 * kWidth];
  for (index_t k = 0; k < B.rows(); k += kPaired, overwrite = false)
    for_strips<V>(C.cols(), [&](index_t col, index_t vectors) {
      const index_t terms = std::min(kPaired, B.rows() - k), cols = std::min(vectors * L, C.cols() - col);
      round_pairs(&B(k, col), B.row_stride, {terms, cols}, pairs, kWidth);
      const auto run = [&]<int NV>(Height<NV>) {
        for_row_blocks<kRows<V, NV>>(C.rows(), [&]<int R>(index_t row, Height<R> height) {
          const Depth d = depth(row, R);
          const index_t first = std::max<index_t>(0, d.first - k) / 2, end = ceil_div(std::min(terms, d.end - k), 2);
          if (end <= first && !overwrite) return;
          for (int r = 0; r < R; ++r)
            for (int v = 0; v < NV; ++v) __builtin_prefetch(&C(row + r, col) + v * L, 1);
          V c[R][NV];
          clear(c);
          if (first < end)
            multiply(c, a(row, height, k + 2 * first, 2 * (end - first)), pairs + first * kWidth, kWidth, end - first,
                     MultiplyBf16{});
#pragma GCC unroll 24
          for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
            for (int v = 0; v < NV; ++v) {
              float* const to = &C(row + r, col) + v * L;
              const index_t n = std::min(L, cols - v * L);
              (overwrite ? c[r][v] : V::load_first(to, n) + c[r][v]).store_first(to, n);
            }
        });
      };
      switch (vectors) {
        case 1:
          return run(Height<1>{});
        case 2:
          return run(Height<2>{});
        case 3:
          return run(Height<3>{});
        default:
          return run(Height<4>{});
      }
    });
}

/// A whose pairs were made before: [pair of terms][row].
struct PairedRows {
  const float* data;
  index_t stride;
  template <int R>
  Side<float> operator()(index_t row, Height<R>, index_t first, index_t) const {
    return {data + first / 2 * stride + row, stride};
  }
};

/// A of f32 words, a row of them side by side; the rows of a register tile are rounded when they are needed.
struct RoundedRows {
  View<const float> A;
  std::uint16_t* memory;  ///< of the rows of a register tile, kPaired words each
  template <int R>
  Rows<std::uint16_t> operator()(index_t row, Height<R>, index_t first, index_t terms) const {
    round_rows(&A(row, first), A.row_stride, R, std::min(terms, A.cols() - first), memory, kPaired);
    return {memory, kPaired, 2};
  }
};

}  // namespace
}  // namespace redblue::kernel::simd
