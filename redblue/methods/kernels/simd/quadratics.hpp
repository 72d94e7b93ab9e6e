#pragma once
#include "redblue/kernels/simd/gemm.hpp"
#include "redblue/methods/kernels/polynomial.hpp"

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
    const index_t most = std::min(kWidth, kCoordinates / coordinates), step = most < kTiles ? V::kLanes : kTiles;
    return most / step * step;
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
    transpose_in<V, Fetch::nothing>(X, x_, width_);
    next_rows_ = {X.data + width_ * X.row_stride, n_, d_, X.row_stride};
    for (index_t i = 0; i < d_ * width_; i += V::kLanes) (V::load(x_ + i) * V::all(mixed_)).store(y_ + i);
  }
  /// O <- O + what they make of Z
  void add_to(View<T> O, View<const T> Z) {
    constexpr index_t kMost = kVectors * V::kLanes;
    for (index_t first = 0; first < O.cols(); first += kMost) {
      View<T> part = O;
      part.data += first;
      part.shape.cols = std::min(kMost, O.cols() - first);
      const T* const z = Z.data + first;
      const bool tail = part.cols() % V::kLanes != 0;
      if constexpr (kVectors == 2)
        if (part.cols() > V::kLanes) {
          tail ? strip_of<2, true>(part, z, Z.row_stride) : strip_of<2, false>(part, z, Z.row_stride);
          continue;
        }
      tail ? strip_of<1, true>(part, z, Z.row_stride) : strip_of<1, false>(part, z, Z.row_stride);
    }
  }
  /// den <- den + what they make of z
  void add_to_sums(View<T> den, View<const T> z) const {
    alignas(64) T sums[kWidth];
    for_row_blocks<4>(width_ / V::kLanes,
                      [&]<int N>(index_t v, Height<N>) { sums_of_rows<N>(v * V::kLanes, z, sums); });
    for (index_t i = 0; i < n_; ++i) den[i] += sums[i];
  }

 private:
  static constexpr index_t kTiles = 48;  ///< a multiple of the lanes, and of the rows of all full register tiles
  static constexpr index_t kWidth = 4 * kTiles;
  /// The most coordinates of all rows: each pair of factors reads them anew, so they are to stay in L1 beside the rows
  /// of Z of that pair.
  static constexpr index_t kCoordinates = index_t{36} * 1024 / index_t{sizeof(T)};
  /// Vectors of a row of Z at a time: both brackets of a pair have that many for each row of X.
  static constexpr int kVectors = V::kAccumulators == 24 ? 2 : 1;

  static constexpr index_t kStateVectors = 320;  ///< of Z that one pass of single factors takes: they stay in a cache
  static constexpr int kFactors = V::kAccumulators == 24 ? 4 : 2;  ///< at a time, in one column

  template <int NV, bool kTail>
  void strip_of(View<T> O, const T* Z, index_t ldz) {
    for (int v = 0; v < NV; ++v) {
      const V constant = vector<NV, kTail>(O, Z, v) * V::all(constant_);
      for (index_t i = 0; i < n_; ++i) keep<NV, kTail>(O, i, v, vector<NV, kTail>(O, &O(i, 0), v) + constant);
    }
    const T* z = Z + ldz;
    index_t t = 0;
    // One wide vector: registers hold a bracket and its sums for twelve rows, which costs less than pairs of factors.
    if constexpr (NV == 1 && V::kAccumulators == 24) {
      while (t < d_) {
        index_t rows = 0, end = t;
        do rows += d_ - end++ + 1;
        while (end < d_ && rows + d_ - end + 1 <= kStateVectors);
        for_row_blocks<kRows<V, 2>>(
            n_, [&]<int N>(index_t i, Height<N>) { one_by_one<N, NV, kTail>(O, i, {t, end}, z, ldz); });
        z += rows * ldz;
        t = end;
      }
    } else {
      constexpr int R = kRows<V, 2 * NV>;
      for (; t + 2 <= d_; t += 2) {
        for_row_blocks<R>(n_, [&]<int N>(index_t i, Height<N>) { pair<N, NV, kTail>(O, i, t, z, ldz); });
        z += (2 * (d_ - t) + 1) * ldz;
      }
      if (t < d_)
        for_row_blocks<R>(n_, [&]<int N>(index_t i, Height<N>) { one_by_one<N, NV, kTail>(O, i, {t, d_}, z, ldz); });
    }
  }
  /// Vector v of a row of Z or O, and its way back.
  template <int NV, bool kTail>
  [[gnu::always_inline]] static V vector(const View<T>& O, const T* p, int v) {
    if constexpr (kTail)
      if (v == NV - 1) return V::load_first(p + v * V::kLanes, O.cols() - v * V::kLanes);
    return V::load(p + v * V::kLanes);
  }
  template <int NV, bool kTail>
  [[gnu::always_inline]] static void keep(const View<T>& O, index_t row, int v, V x) {
    T* const to = O.data + row * O.row_stride + v * V::kLanes;
    if (kTail && v == NV - 1)
      x.store_first(to, O.cols() - v * V::kLanes);
    else
      x.store(to);
  }
  /// Adds the terms of the factors x_t and x_t+1, whose rows of Z begin at z, to the rows from i on. What multiplies
  /// both brackets is read once for two products.
  template <int N, int NV, bool kTail>
  void pair(const View<T>& O, index_t i, index_t t, const T* z, index_t ldz) {
    const auto load = [&](const T* p, int v) __attribute__((always_inline)) { return vector<NV, kTail>(O, p, v); };
    next_rows_.some(1);
    const T *const x = x_ + t * width_ + i, *const y = y_ + t * width_ + i, *const next = z + (d_ - t + 1) * ldz;
    V bracket[N][2 * NV], one[NV], two[NV], mixed[NV];
#pragma GCC unroll 2
    for (int v = 0; v < NV; ++v) {
      one[v] = load(z, v) * V::all(linear_);
      two[v] = load(z + ldz, v) * V::all(square_);
      mixed[v] = load(z + 2 * ldz, v);
    }
#pragma GCC unroll 12
    for (int r = 0; r < N; ++r)
#pragma GCC unroll 2
      for (int v = 0; v < NV; ++v)
        bracket[r][v] = fma(V::all(y[width_ + r]), mixed[v], fma(V::all(y[r]), two[v], one[v]));
#pragma GCC unroll 2
    for (int v = 0; v < NV; ++v) {
      one[v] = load(next, v) * V::all(linear_);
      two[v] = load(next + ldz, v) * V::all(square_);
    }
#pragma GCC unroll 12
    for (int r = 0; r < N; ++r)
#pragma GCC unroll 2
      for (int v = 0; v < NV; ++v) bracket[r][NV + v] = fma(V::all(y[width_ + r]), two[v], one[v]);
    const index_t apart = (d_ - t) * ldz;
    const auto of_both = [&](const T* p, int v)
                             __attribute__((always_inline)) { return v < NV ? load(p, v) : load(p + apart, v - NV); };
    multiply(bracket, Side<T>{y + 2 * width_, width_}, z + 3 * ldz, ldz, d_ - t - 2, Multiply<V>{}, of_both);
#pragma GCC unroll 12
    for (int r = 0; r < N; ++r)
#pragma GCC unroll 2
      for (int v = 0; v < NV; ++v) {
        const V first = fma(V::all(x[r]), bracket[r][v], load(O.data + (i + r) * O.row_stride, v));
        keep<NV, kTail>(O, i + r, v, fma(V::all(x[width_ + r]), bracket[r][NV + v], first));
      }
  }
  /// Adds the terms of these factors, one after another.
  template <int N, int NV, bool kTail>
  void one_by_one(const View<T>& O, index_t i, Range factors, const T* z, index_t ldz) const {
    const auto load = [&](const T* p, int v) __attribute__((always_inline)) { return vector<NV, kTail>(O, p, v); };
    V sum[N][NV], bracket[N][NV], one[NV], two[NV];
#pragma GCC unroll 12
    for (int r = 0; r < N; ++r)
#pragma GCC unroll 2
      for (int v = 0; v < NV; ++v) sum[r][v] = load(O.data + (i + r) * O.row_stride, v);
    for (index_t t = factors.begin; t < factors.end; ++t) {
      const T *const x = x_ + t * width_ + i, *const y = y_ + t * width_ + i;
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
      for (int v = 0; v < NV; ++v) keep<NV, kTail>(O, i + r, v, sum[r][v]);
  }
  /// Brackets of factors x_t, t in rows, in one column of the state: words z_ts of a triangle, one row of which is a
  /// word shorter than the one before.
  struct Triangle {
    const T* p;
    index_t step, next;  ///< from s to s + 1, and from x_t to the next factor of the first row

    [[gnu::always_inline]] const T* at(int r) const { return p + (r * next - index_t{r} * (r - 1) / 2 * step); }
    [[gnu::always_inline]] void advance() { p += step; }
  };
  /// The sums of one column, in NV vectors of rows from i on.
  template <int NV>
  void sums_of_rows(index_t i, View<const T> z, T* sums) const {
    V sum[1][NV];
    const auto word = [&](index_t a) { return z.data[a * z.row_stride]; };
    for (int v = 0; v < NV; ++v) sum[0][v] = V::all(constant_ * word(0));
    index_t first = 1;  // the word of x_t
    for_row_blocks<kFactors>(d_, [&]<int R>(index_t t, Height<R>) {
      V bracket[R][NV];
      T corner[R * R] = {};
      index_t a = first;
      for (int r = 0; r < R; a += d_ - t - r + 1, ++r) {
        const V one = V::all(linear_ * word(a));
        for (int v = 0; v < NV; ++v) bracket[r][v] = one;
        corner[r * R + r] = square_ * word(a + 1);
        for (int s = r + 1; s < R; ++s) corner[r * R + s] = word(a + 1 + s - r);
      }
      const T *const x = x_ + t * width_ + i, *const y = y_ + t * width_ + i;
      multiply(bracket, RowsApart<T, R>{corner}, y, width_, R);
      const Triangle rest{&z.data[(first + 1 + R) * z.row_stride], z.row_stride, (d_ - t) * z.row_stride};
      multiply(bracket, rest, y + R * width_, width_, d_ - t - R);
      for (int r = 0; r < R; ++r)
        for (int v = 0; v < NV; ++v) sum[0][v] = fma(V::load(x + r * width_ + v * V::kLanes), bracket[r][v], sum[0][v]);
      first = a;
    });
    for (int v = 0; v < NV; ++v) sum[0][v].store(sums + i + v * V::kLanes);
  }

  T constant_ = 1, linear_ = 1, mixed_ = 1, square_ = 1;  ///< weights; square_ relative to mixed_
  index_t d_ = 0, n_ = 0, width_ = 0;
  FetchInTurn<T> next_rows_;  ///< the next rows of X
  alignas(64) T x_[kCoordinates];
  alignas(64) T y_[kCoordinates];
};

}  // namespace redblue::kernel::simd
