#pragma once
#include "redblue/kernels/simd/gemm.hpp"
#include "redblue/kernels/x86/bf16.hpp"

/// Products of f32 operands that are rounded to bf16 on their way in: exactly, where they came from bf16. Two terms of
/// a sum are a pair.
namespace redblue::kernel::simd {
namespace {

/// Terms of a sum whose pairs are made at a time: of a strip of B they fit into the first cache.
inline constexpr index_t kPaired = 192;
/// Rows of A that are made ready at a time: a multiple of all heights of tiles of sums.
inline constexpr index_t kReadyRows = 240;

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

/// C <- [C +] A B, `kPaired` terms summed at a time, for row-major C and B. a.ready(rows, terms) makes these rows and
/// terms of A ready; then a(row, Height<R>, first) is R rows of pairs from the even term `first` on. Terms outside of
/// `depth` are left out.
template <class Mul, class A, class D>
void multiply_paired(const Mul& mul, View<float> C, A&& a, View<const float> B, const D& depth, bool overwrite) {
  using V = F32x16;
  constexpr index_t L = V::kLanes, kWidth = 4 * L;
  alignas(64) float pairs[kPaired / 2 * kWidth];
  const auto steps = [](index_t terms) {  // as many as fill matrix tiles: those beyond the last term are zeros
    const index_t pairs = ceil_div(terms, 2);
    if constexpr (MatrixTiles<Mul>) return ceil_div(pairs, Mul::kTile) * Mul::kTile;
    return pairs;
  };
  for (index_t k = 0; k < B.rows(); k += kPaired, overwrite = false)
    for (index_t top = 0; top < C.rows(); top += kReadyRows) {
      const index_t terms = std::min(kPaired, B.rows() - k), rows = std::min(kReadyRows, C.rows() - top);
      a.ready({top, top + rows}, {k, k + terms});
      for_strips<V>(C.cols(), [&](index_t col, index_t vectors) {
        const index_t cols = std::min(vectors * L, C.cols() - col), made = ceil_div(terms, 2);
        round_pairs(&B(k, col), B.row_stride, {terms, cols}, pairs, kWidth);
        std::fill(pairs + made * kWidth, pairs + steps(terms) * kWidth, 0.0F);
        const auto run = [&]<int NV>(Height<NV>) {
          for_row_blocks<kTileRows<V, NV, Mul>>(rows, [&]<int R>(index_t r, Height<R> height) {
            const index_t row = top + r;
            const Depth d = depth(row, R);
            index_t first = std::max<index_t>(0, d.first - k) / 2, end = ceil_div(std::min(terms, d.end - k), 2);
            if (end <= first && !overwrite) return;
            if constexpr (MatrixTiles<Mul>)
              if constexpr (kIsMatrixTile<Mul, R>) {  // whole tiles: A is 0 outside of `depth`
                first = first / Mul::kTile * Mul::kTile;
                end = ceil_div(end, Mul::kTile) * Mul::kTile;
              }
            for (int i = 0; i < R; ++i)
              for (int v = 0; v < NV; ++v) __builtin_prefetch(&C(row + i, col) + v * L, 1);
            V c[R][NV];
            if (first < end)
              form(c, a(row, height, k + 2 * first), pairs + first * kWidth, kWidth, end - first, mul);
            else
              clear(c);
#pragma GCC unroll 24
            for (int i = 0; i < R; ++i)
#pragma GCC unroll 4
              for (int v = 0; v < NV; ++v) {
                float* const to = &C(row + i, col) + v * L;
                const index_t n = std::min(L, cols - v * L);
                (overwrite ? c[i][v] : V::load_first(to, n) + c[i][v]).store_first(to, n);
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
}

/// A whose pairs were made before: [pair of terms][row], rows up to a whole vector.
struct PairedRows {
  const float* data;
  index_t stride;
  void ready(Range, Range) const {}
  template <int R>
  Side<float> operator()(index_t row, Height<R>, index_t first) const {
    return {data + first / 2 * stride + row, stride};
  }
};

/// A turned for matrix tiles: its pairs lie as rows, with zeros up to a multiple of a tile's pairs.
class TurnedRows {
 public:
  TurnedRows(const float* data, index_t stride) : data_(data), stride_(stride) {}
  void ready(Range rows, Range terms) {
    constexpr index_t L = F32x16::kLanes;
    rows_ = rows.begin, terms_ = terms.begin;
    const index_t pairs = ceil_div(terms.size(), 2);
    for (index_t t = 0; t < pairs; t += L)
      for (index_t r = 0; r < rows.size(); r += L) {
        const float* from = data_ + (terms.begin / 2 + t) * stride_ + rows.begin + r;
        index_t stride = stride_;
        alignas(64) float last[L * L];
        if (t + L > pairs) {
          for (index_t i = 0; i < L; ++i)
            (t + i < pairs ? F32x16::load(from + i * stride_) : F32x16::zero()).store(last + i * L);
          from = last, stride = L;
        }
        transpose_square(F32x16{}, from, stride, memory_ + r * kStride + t, kStride);
      }
  }
  template <int R>
  Rows<float> operator()(index_t row, Height<R>, index_t first) const {
    return {memory_ + (row - rows_) * kStride + (first - terms_) / 2, kStride, 1};
  }

 private:
  static constexpr index_t kStride = kPaired / 2 + F32x16::kLanes;  // odd in lines
  const float* data_;
  index_t stride_, rows_ = 0, terms_ = 0;
  alignas(64) float memory_[kReadyRows * kStride];
};

/// A of f32 words, a row of them side by side.
class RoundedRows {
 public:
  explicit RoundedRows(View<const float> A) : A_(A) {}
  void ready(Range rows, Range terms) {
    rows_ = rows.begin, terms_ = terms.begin;
    round_rows(&A_(rows.begin, terms.begin), A_.row_stride, rows.size(), terms.size(), memory_, kStride);
  }
  template <int R>
  Rows<std::uint16_t> operator()(index_t row, Height<R>, index_t first) const {
    return {memory_ + (row - rows_) * kStride + first - terms_, kStride, 2};
  }

 private:
  static constexpr index_t kStride = kPaired + 32;  // odd in lines
  View<const float> A_;
  index_t rows_ = 0, terms_ = 0;
  alignas(64) std::uint16_t memory_[kReadyRows * kStride];
};

}  // namespace
}  // namespace redblue::kernel::simd
