#pragma once
#include "redblue/kernels/simd/few_rows.hpp"
#include "redblue/kernels/simd/gemm.hpp"
#include "redblue/methods/kernels/simd/monomial_rows.hpp"
#include "redblue/methods/kernels/simd/quadratics.hpp"

/// Polynomial attention: what comes of monomials is a product of matrices.
namespace redblue::kernel::simd {

/// z <- z + the sums of the lanes of one vector for each word
template <class V>
void add_lane_sums(const View<typename V::T>& z, const typename V::T* sums) {
  constexpr index_t L = V::kLanes;
  for (index_t a = 0; a < z.rows(); a += L) {
    alignas(64) typename V::T total[L];
    V x[L];
    for (index_t i = 0; i < L; ++i) x[i] = V::load(sums + (a + i) * L);
    sums_of<V>(x).store(total);
    for (index_t i = 0; i < std::min(L, z.rows() - a); ++i) z(a + i, 0) += total[i];
  }
}

/// Z <- Z + Phi U, z <- z + Phi u: monomials in rows, keys summed over.
template <class V>
bool add_monomials_implementation(const AddMonomials& k, std::span<const View<typename V::T>> v) {
  using T = typename V::T;
  constexpr index_t kRows = 24;
  using Monomials = MonomialRows<V, 128, kRows, SumsOf::rows>;
  const auto &Z = v[0], &z = v[1], &X = v[3], &U = v[4], &u = v[5];
  const index_t width = Monomials::width(X.cols());
  if (width == 0 || Z.packed() || U.packed() || X.packed() || Z.col_stride != 1 || U.col_stride != 1) return false;
  Monomials monomials(k, X.cols(), Z.rows());
  for (index_t i = 0; i < X.rows(); i += width) {
    const index_t n = std::min(width, X.rows() - i);
    alignas(64) T weight[Monomials::kStride]{};
    for (index_t j = 0; j < n && u.words() > 0; ++j) weight[j] = u(i + j, 0);
    const T* const U_i = U.data + i * U.row_stride;
    FetchInTurn<T> next(U_i + width * U.row_stride, n, U.cols(), U.row_stride);
    const index_t lines = next.lines_of(Z.rows() / kRows);
    const auto add = [&](index_t first, index_t rows, const T* phi, const T* sums) {
      multiply_into<V>(rows_of(Z, first, rows), RowsApart<T, Monomials::kStride>{phi}, U_i, U.row_stride, Depth{0, n},
                       Into::add);
      next.some(lines);
      if (z.words() == 0) return;
      if (u.words() == 0) return add_lane_sums<V>(rows_of(z, first, rows), sums);
      for (index_t a = 0; a < rows; ++a) {
        V total = V::zero();
        for (index_t j = 0; j < n; j += V::kLanes)
          total = fma(V::load(phi + a * Monomials::kStride + j), V::load(weight + j), total);
        z(first + a, 0) += sum(total);
      }
    };
    monomials(rows_of(View<const T>(X), i, n), add);
  }
  return true;
}

/// apply_monomials_implementation for all monomials of degree at most 2.
template <class V>
void apply_quadratics(const ApplyMonomials& k, std::span<const View<typename V::T>> v) {
  using T = typename V::T;
  const auto &O = v[0], &den = v[1];
  const View<const T> X = v[3], Z = v[4], z = v[5];
  Quadratics<V> quadratics(k);
  const index_t width = Quadratics<V>::width(X.cols());
  for (index_t i = 0; i < X.rows(); i += width) {
    const index_t n = std::min(width, X.rows() - i);
    quadratics.begin(rows_of(X, i, n));
    quadratics.add_to(rows_of(O, i, n), Z);
    if (z.words() > 0) quadratics.add_to_sums(rows_of(den, i, n), z);
  }
}

/// O <- O + Phi^T Z, den <- den + Phi^T z: queries in rows, monomials summed over.
template <class V>
bool apply_monomials_implementation(const ApplyMonomials& k, std::span<const View<typename V::T>> v) {
  using T = typename V::T;
  constexpr index_t kRows = 160;  // all monomials of degree 2 in 16 coordinates: O is read and written once
  using Monomials = MonomialRows<V, 192, kRows, SumsOf::columns>;
  const auto &O = v[0], &den = v[1], &X = v[3], &Z = v[4], &z = v[5];
  const index_t width = Monomials::width(X.cols());
  if (width == 0 || O.packed() || Z.packed() || X.packed() || O.col_stride != 1 || Z.col_stride != 1) return false;
  if (Quadratics<V>::suits(k, X.cols(), Z.rows())) {
    apply_quadratics<V>(k, v);
    return true;
  }
  Monomials monomials(k, X.cols(), Z.rows(), z);
  for (index_t i = 0; i < X.rows(); i += width) {
    const index_t n = std::min(width, X.rows() - i);
    const T* sums =
        monomials(rows_of(View<const T>(X), i, n), [&](index_t first, index_t rows, const T* phi, const T*) {
          multiply_into<V>(rows_of(O, i, n), Side<T>{phi, Monomials::kStride}, Z.data + first * Z.row_stride,
                           Z.row_stride, Depth{0, rows}, Into::add);
        });
    for (index_t j = 0; j < n && z.words() > 0; ++j) den[i + j] += sums[j];
  }
  return true;
}

}  // namespace redblue::kernel::simd
