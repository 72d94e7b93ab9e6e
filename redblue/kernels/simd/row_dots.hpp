#pragma once
#include "redblue/kernels/backward.hpp"
#include "redblue/kernels/simd/panels.hpp"

namespace redblue::kernel::simd {

/// D <- row sums of dO o O, rows in vector lanes: each sum is one chain of multiply-adds, as dP = dO V^T is.
template <class V>
bool row_dots(const RowDots&, std::span<const View<typename V::T>> x) {
  using T = typename V::T;
  constexpr index_t L = V::kLanes, kCols = 64;
  const auto &D = x[0], &dO = x[1], &O = x[2];
  alignas(64) T a[kCols * L], b[kCols * L];
  for (index_t r = 0; r < dO.rows(); r += L) {
    const index_t rows = std::min(L, dO.rows() - r);
    V sum = V::zero();
    for (index_t t = 0; t < dO.cols(); t += kCols) {
      const index_t cols = std::min(kCols, dO.cols() - t);
      const auto block = [&](const View<T>& m) {
        return View<const T>(&m(r, t), {rows, cols}, m.row_stride, m.col_stride);
      };
      transpose_in<V>(block(dO), a, L);
      transpose_in<V>(block(O), b, L);
      for (index_t i = 0; i < cols; ++i) sum = fma(V::load(a + i * L), V::load(b + i * L), sum);
    }
    alignas(64) T sums[L];
    sum.store(sums);
    for (index_t i = 0; i < rows; ++i) D[r + i] = sums[i];
  }
  return true;
}

}  // namespace redblue::kernel::simd
