#pragma once
#include <algorithm>

#include "redblue/kernels/gradient.hpp"
#include "redblue/kernels/second.hpp"
#include "redblue/kernels/simd/row_dots.hpp"
#include "redblue/kernels/simd/rows.hpp"

/// Tiles of tangents and of gradients of gradients, entry by entry, with keys in vector lanes.
namespace redblue::kernel::simd {

/// Do the words of a row lie side by side in all of them?
template <class T>
bool rows_lie(std::span<const View<T>> x) {
  return std::ranges::all_of(x, [](const View<T>& v) { return !v.packed() && (v.col_stride == 1 || v.cols() <= 1); });
}

/// f(row, first column, columns of a vector) for all of a tile.
template <class V, class F>
[[gnu::always_inline]] inline void for_vectors_of(Shape s, const F& f) {
  for (index_t r = 0; r < s.rows; ++r)
    for (index_t j = 0; j < s.cols; j += V::kLanes) f(r, j, std::min(V::kLanes, s.cols - j));
}

/// T <- factor T
template <class V>
bool scale_implementation(const Scale& k, std::span<const View<typename V::T>> x) {
  if (!rows_lie(x)) return false;
  const V factor = V::all(static_cast<typename V::T>(k.factor));
  for_vectors_of<V>(x[0].shape, [&](index_t r, index_t j, index_t n) {
    (V::load_first(&x[0](r, j), n) * factor).store_first(&x[0](r, j), n);
  });
  return true;
}

/// B <- A
template <class V>
bool copy_implementation(const Copy&, std::span<const View<typename V::T>> x) {
  if (!rows_lie(x)) return false;
  for_vectors_of<V>(
      x[0].shape, [&](index_t r, index_t j, index_t n) { V::load_first(&x[1](r, j), n).store_first(&x[0](r, j), n); });
  return true;
}

/// l <- l + row sums of A
template <class V>
bool add_row_sums_implementation(const AddRowSums&, std::span<const View<typename V::T>> x) {
  if (!rows_lie(x)) return false;
  for (index_t r = 0; r < x[1].rows(); ++r) {
    V sums = V::zero();
    for (index_t j = 0; j < x[1].cols(); j += V::kLanes)
      sums = sums + V::load_first(&x[1](r, j), std::min(V::kLanes, x[1].cols() - j));
    x[0][r] += sum(sums);
  }
  return true;
}

/// A <- A - r o B, row by row
template <class V>
bool subtract_scaled_rows_implementation(const SubtractScaledRows&, std::span<const View<typename V::T>> x) {
  if (!rows_lie(x)) return false;
  for (index_t r = 0; r < x[0].rows(); ++r) {
    const V factor = V::zero() - V::all(x[1][r]);
    for (index_t j = 0; j < x[0].cols(); j += V::kLanes) {
      const index_t n = std::min(V::kLanes, x[0].cols() - j);
      fma(factor, V::load_first(&x[2](r, j), n), V::load_first(&x[0](r, j), n)).store_first(&x[0](r, j), n);
    }
  }
  return true;
}

/// A <- A - r o O, D <- row sums of dO o O and x <- those of dO o A, which are summed as dP and E are.
template <class V>
bool row_dots_and_rest_implementation(const RowDotsAndRest&, std::span<const View<typename V::T>> x) {
  const std::array rest{x[2], x[3], x[5]}, D{x[0], x[4], x[5]}, sums{x[1], x[4], x[2]};
  if (!rows_lie(x)) return false;
  subtract_scaled_rows_implementation<V>(SubtractScaledRows{}, rest);
  return row_dots<V>(RowDots{}, D) && row_dots<V>(RowDots{}, sums);
}

/// H <- H (1 - t^2), t = C / softcap
template <class V>
bool through_softcap_implementation(const ThroughSoftcap& k, std::span<const View<typename V::T>> x) {
  using T = typename V::T;
  if (!rows_lie(x)) return false;
  const V one = V::all(T(1)), inverse = V::all(T(1) / static_cast<T>(k.softcap));
  for_vectors_of<V>(x[0].shape, [&](index_t r, index_t j, index_t n) {
    const V t = V::load_first(&x[1](r, j), n) * inverse;
    (V::load_first(&x[0](r, j), n) * (one - t * t)).store_first(&x[0](r, j), n);
  });
  return true;
}

}  // namespace redblue::kernel::simd
