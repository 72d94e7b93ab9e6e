#pragma once
#include "kernel/simd/gemm.hpp"
#include "redblue/kernel/polynomial.hpp"

/// All monomials of degree at most 2 applied to a state by Horner's rule, so that none of them is formed:
///   SUM_a w_a x^a Z_a = w_0 Z_0 + SUM_t x_t (w_1 Z_t + SUM_s>=t y_s Z_ts),   y_s = w_ts x_s
/// One multiply-add for each monomial and column, but for the constant.
namespace redblue::kernel::simd {

template <class V>
class Quadratics {
 public:
  using T = typename V::T;

  /// Are rows of Z all monomials of degree at most 2, in coordinates for which there is room?
  static bool suits(const Monomials& m, index_t coordinates, index_t rows) {
    return m.degree == 2 && m.constant && m.first == 0 && m.block >= coordinates && coordinates > 0 &&
           width(coordinates) > 0 && rows == (coordinates + 1) * (coordinates + 2) / 2;
  }
  /// Rows of X at a time.
  static index_t width(index_t coordinates) {
    return std::min(kWidth, kCoordinates / coordinates / V::kLanes * V::kLanes);
  }

  explicit Quadratics(const Monomials& m) {
    if (!m.weighted) return;
    constant_ = static_cast<T>(m.c[0]);
    linear_ = static_cast<T>(m.c[1] * m.scale);
    mixed_ = static_cast<T>(2 * (m.c[2] * (m.scale * m.scale)));
    square_ = T(0.5);
  }
  /// These rows x, at most width() of them.
  void begin(View<const T> X) {
    d_ = X.cols();
    n_ = X.rows();
    width_ = ceil_div(n_, V::kLanes) * V::kLanes;
    transpose_in<V>(X, x_, width_);
    for (index_t i = 0; i < d_ * width_; i += V::kLanes) (V::load(x_ + i) * V::all(mixed_)).store(y_ + i);
  }
  /// O <- O + what they make of Z
  void add_to(View<T> O, View<const T> Z) const {
    constexpr index_t kMost = 2 * V::kLanes;
    for (index_t first = 0; first < O.cols(); first += kMost) {
      View<T> part = O;
      part.data += first;
      part.shape.cols = std::min(kMost, O.cols() - first);
      const T* const z = Z.data + first;
      const bool tail = part.cols() % V::kLanes != 0;
      if (part.cols() > V::kLanes)
        tail ? strip_of<2, true>(part, z, Z.row_stride) : strip_of<2, false>(part, z, Z.row_stride);
      else
        tail ? strip_of<1, true>(part, z, Z.row_stride) : strip_of<1, false>(part, z, Z.row_stride);
    }
  }
  /// den <- den + what they make of z
  void add_to_sums(View<T> den, View<const T> z) const {
    alignas(64) T sums[kWidth];
    for_row_blocks<5>(width_ / V::kLanes,
                      [&]<int N>(index_t v, Height<N>) { sums_of_rows<N>(v * V::kLanes, z, sums); });
    for (index_t i = 0; i < n_; ++i) den[i] += sums[i];
  }

 private:
  static constexpr index_t kWidth = 15 * V::kLanes;  ///< no power of two, for caches
  static constexpr index_t kCoordinates = 16384;
  static constexpr index_t kStateVectors = 320;  ///< of Z that one pass over the queries takes: they stay in a cache

  template <int NV, bool kTail>
  void strip_of(View<T> O, const T* Z, index_t ldz) const {
    constexpr int R = kRows<V, NV> / 2;  // the other half of the accumulators has the sums of the brackets
    const T* z = Z + ldz;
    for (index_t t = 0, end = 0; t < d_; t = end) {
      index_t rows = 0;
      do rows += d_ - end++ + 1;
      while (end < d_ && (rows + d_ - end + 1) * NV <= kStateVectors);
      const auto of_rows = [&]<int N>(index_t i, Height<N>) {
        tile<N, NV, kTail>(O, i, {t, end}, z, ldz, t == 0 ? Z : nullptr);
      };
      // Two low tiles rather than a tall one and a very low one, which would wait for its few sums.
      const index_t tall = n_ / R * R, low = n_ - tall,
                    done = NV == 1 && low > 0 && low <= 4 && tall > 0 ? tall - R : tall;
      for (index_t i = 0; i < done; i += R) of_rows(i, Height<R>{});
      for_row_blocks<8>(n_ - done, [&]<int N>(index_t i, Height<N> h) { of_rows(done + i, h); });
      z += rows * ldz;
    }
  }
  /// Of the rows from i on: the terms of these factors x_t, whose rows of Z begin at z, and of the constant.
  template <int N, int NV, bool kTail>
  void tile(View<T> O, index_t i, Range factors, const T* z, index_t ldz, const T* constant) const {
    const index_t last = O.cols() - (NV - 1) * V::kLanes;  // lanes of the last vector
    const auto load = [&](const T* p, int v) __attribute__((always_inline)) {
      if constexpr (kTail)
        if (v == NV - 1) return V::load_first(p + v * V::kLanes, last);
      return V::load(p + v * V::kLanes);
    };
    V sum[N][NV], one[NV], two[NV];
    T* const out = &O(i, 0);
#pragma GCC unroll 2
    for (int v = 0; v < NV; ++v) one[v] = constant == nullptr ? V::zero() : load(constant, v) * V::all(constant_);
#pragma GCC unroll 12
    for (int r = 0; r < N; ++r)
#pragma GCC unroll 2
      for (int v = 0; v < NV; ++v) sum[r][v] = load(out + r * O.row_stride, v) + one[v];
    for (index_t t = factors.begin; t < factors.end; ++t) {
      const T *const x = x_ + t * width_ + i, *const y = y_ + t * width_ + i;
      V bracket[N][NV];
#pragma GCC unroll 2
      for (int v = 0; v < NV; ++v) {
        one[v] = load(z, v) * V::all(linear_);
        two[v] = load(z + ldz, v) * V::all(square_);
      }
#pragma GCC unroll 12
      for (int r = 0; r < N; ++r)
#pragma GCC unroll 2
        for (int v = 0; v < NV; ++v) bracket[r][v] = fma(V::all(y[r]), two[v], one[v]);
      z += 2 * ldz;
      multiply(bracket, Side<T>{y + width_, width_}, z, ldz, d_ - t - 1, Multiply<V>{}, load);
      z += (d_ - t - 1) * ldz;
#pragma GCC unroll 12
      for (int r = 0; r < N; ++r)
#pragma GCC unroll 2
        for (int v = 0; v < NV; ++v) sum[r][v] = fma(V::all(x[r]), bracket[r][v], sum[r][v]);
    }
#pragma GCC unroll 12
    for (int r = 0; r < N; ++r)
#pragma GCC unroll 2
      for (int v = 0; v < NV; ++v) {
        T* const to = out + r * O.row_stride + v * V::kLanes;
        if (kTail && v == NV - 1)
          sum[r][v].store_first(to, last);
        else
          sum[r][v].store(to);
      }
  }
  /// The same of one column, in N vectors of rows from i on. Every second product has a sum of its own: few vectors
  /// would wait for one.
  template <int N>
  void sums_of_rows(index_t i, View<const T> z, T* sums) const {
    const auto word = [&](index_t a) __attribute__((always_inline)) { return z.data[a * z.row_stride]; };
    V sum[N];
#pragma GCC unroll 5
    for (int v = 0; v < N; ++v) sum[v] = V::all(constant_ * word(0));
    for (index_t t = 0, a = 1; t < d_; ++t) {
      const T *x = x_ + t * width_ + i, *y = y_ + t * width_ + i;
      V even[N], odd[N];
      const V one = V::all(linear_ * word(a)), two = V::all(square_ * word(a + 1));
#pragma GCC unroll 5
      for (int v = 0; v < N; ++v) even[v] = fma(V::load(y + v * V::kLanes), two, one), odd[v] = V::zero();
      a += 2;
      y += width_;
      index_t left = d_ - t - 1;
      for (; left >= 2; left -= 2, a += 2, y += 2 * width_) {
        const V first = V::all(word(a)), second = V::all(word(a + 1));
#pragma GCC unroll 5
        for (int v = 0; v < N; ++v) {
          even[v] = fma(V::load(y + v * V::kLanes), first, even[v]);
          odd[v] = fma(V::load(y + width_ + v * V::kLanes), second, odd[v]);
        }
      }
      if (left > 0) {
        const V first = V::all(word(a++));
#pragma GCC unroll 5
        for (int v = 0; v < N; ++v) even[v] = fma(V::load(y + v * V::kLanes), first, even[v]);
      }
#pragma GCC unroll 5
      for (int v = 0; v < N; ++v) sum[v] = fma(V::load(x + v * V::kLanes), even[v] + odd[v], sum[v]);
    }
#pragma GCC unroll 5
    for (int v = 0; v < N; ++v) sum[v].store(sums + i + v * V::kLanes);
  }

  T constant_ = 1, linear_ = 1, mixed_ = 1, square_ = 1;  ///< weights; square_ relative to mixed_
  index_t d_ = 0, n_ = 0, width_ = 0;
  alignas(64) T x_[kCoordinates];
  alignas(64) T y_[kCoordinates];
};

}  // namespace redblue::kernel::simd
