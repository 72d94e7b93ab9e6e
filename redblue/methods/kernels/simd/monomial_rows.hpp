#pragma once
#include "redblue/kernels/simd/panels.hpp"
#include "redblue/methods/kernels/polynomial.hpp"

/// Monomials of a block of keys or queries, which lie in vector lanes: one product each.
namespace redblue::kernel::simd {

/// What is added up of Phi as it is formed.
enum class SumsOf {
  rows,    ///< each row over i, in as many parts as a vector has lanes
  columns  ///< each column over a, row a times z_a
};

/// Rows Phi(a, i) = w_a x_i^a of some monomials for a block of at most kWidth rows x_i, in the order of
/// detail::MonomialWalk, kMostRows of them at a time; and their sums.
template <class V, index_t kWidth, index_t kMostRows, SumsOf kSums>
class MonomialRows {
 public:
  using T = typename V::T;
  static constexpr index_t kStride = kWidth + V::kLanes;  ///< between rows of Phi: no power of two, for caches

  /// Rows of X at a time; 0: X has too many coordinates.
  static index_t width(index_t coordinates) {
    return std::min(kWidth, kCoordinates / std::max<index_t>(1, coordinates)) / V::kLanes * V::kLanes;
  }

  /// `z`, for sums of columns: a word for each row of the state, or none where they are not wanted.
  MonomialRows(const Monomials& m, index_t coordinates, index_t rows, const View<T>& z = {})
      : m_(m), z_(z), d_(coordinates), blocks_(ceil_div(d_, m.block)), end_(m.first + rows - (m.constant ? 1 : 0)) {
    double power = 1;
    for (std::size_t l = 0; l < weight_.size(); ++l, power *= m.scale) weight_[l] = m.weighted ? m.c[l] * power : 1;
  }

  /// f(first row of the state, rows, Phi, sums of these rows): all of them for these rows of X, kMostRows at a time but
  /// for the end. Returns the sums of columns.
  template <class F>
  const T* operator()(View<const T> X, const F& f) {
    width_ = ceil_div(X.rows(), V::kLanes) * V::kLanes;
    begin_ = held_ = next_ = 0;
    if (kSums == SumsOf::columns) std::fill_n(sums_, width_, T(0));
    transpose_in<V, Fetch::nothing>(X, x_, width_);
    next_rows_ = {X.data + width_ * X.row_stride, X.rows(), X.cols(), X.row_stride};
    lines_ = next_rows_.lines_of((end_ - m_.first) / kMostRows);
    std::fill_n(parents_, X.rows(), T(1));
    std::fill(parents_ + X.rows(), parents_ + width_, T(0));
    if (m_.constant) product(held_++, parents_, V::all(static_cast<T>(weight_[0])));
    if (d_ > 0 && m_.degree == 1) {
      scale_row(parents_ + kStride, parents_, weight(1, 1));
      leaves(0, d_, parents_ + kStride, f);
    }
    if (d_ > 0 && m_.degree > 1) extend(0, 0, 0, 1, f);
    if (held_ > 0) f(begin_, held_, static_cast<const T*>(phi_), static_cast<const T*>(sums_));
    return sums_;
  }

 private:
  static constexpr index_t kCoordinates = 16384;
  static constexpr T kNoSum = 0;
  /// Vectors of a parent that registers hold, with sums of columns if there are such: a sum of rows is stored once for
  /// all of them.
  static constexpr int kMost = V::kAccumulators < 24 ? 4 : kSums == SumsOf::rows ? 8 : 12;

  V weight(index_t degree, double ways) const {
    return V::all(m_.weighted ? static_cast<T>(weight_[static_cast<std::size_t>(degree)] * ways) : T(1));
  }
  /// The next row of Phi; one that nobody reads for a monomial that is not among these.
  index_t row(bool is_one) {
    if (!is_one) return kMostRows + 1;
    return next_++ < m_.first ? kMostRows + 1 : held_++;
  }
  /// Hands out full rows. One more may be there already.
  template <class F>
  void settle(const F& f) {
    if (held_ < kMostRows) return;
    next_rows_.some(lines_);
    f(begin_, kMostRows, static_cast<const T*>(phi_), static_cast<const T*>(sums_));
    begin_ += kMostRows;
    held_ -= kMostRows;
    if (held_ == 0) return;
    std::copy_n(phi_ + kMostRows * kStride, width_, phi_);
    if (kSums == SumsOf::rows) std::copy_n(sums_ + kMostRows * V::kLanes, V::kLanes, sums_);
  }
  /// z_a of a row of Phi; 0 for one that nobody reads.
  V z_of(index_t row) const { return V::all(z_.words() > 0 && row <= kMostRows ? z_(begin_ + row, 0) : T(0)); }
  void keep_sum(index_t row, V sum) {
    if constexpr (kSums == SumsOf::rows) sum.store(sums_ + row * V::kLanes);
  }
  void add_to_column(index_t i, V terms) {
    if constexpr (kSums == SumsOf::columns) (V::load(sums_ + i) + terms).store(sums_ + i);
  }
  void scale_row(T* to, const T* from, V w) const {
    for (index_t i = 0; i < width_; i += V::kLanes) (V::load(from + i) * w).store(to + i);
  }
  /// A row of Phi <- a row times w.
  [[gnu::always_inline]] void product(index_t row, const T* from, V w) {
    V sum = V::zero();
    const V z = z_of(row);
    for (index_t i = 0; i < width_; i += V::kLanes) {
      const V p = V::load(from + i) * w;
      p.store(phi_ + row * kStride + i);
      sum = sum + p;
      add_to_column(i, p * z);
    }
    keep_sum(row, sum);
  }

  /// How many monomials begin with a parent times x_t, where coordinates are one block: C(n + k, k), for n coordinates
  /// from t on, of which at most k = g - level - 1 more may follow.
  index_t monomials_from(index_t level, index_t t) const {
    index_t count = 1;
    for (index_t k = 1; k < m_.degree - level; ++k) count = count * (d_ - t + k) / k;
    return count;
  }
  /// One more coordinate, from `from` on; it occurs `times` times already. `orders`: |a|!/a! so far.
  template <class F>
  void extend(index_t level, index_t from, index_t times, double orders, const F& f) {
    const index_t reached = level == 0 ? -1 : from / m_.block;
    const index_t to = std::min(d_, (reached + 2) * m_.block);  // no block may be passed over
    const T* const parent = parents_ + level * kStride;
    T* const value = parents_ + (level + 1) * kStride;
    for (index_t t = from; t < to && next_ < end_; ++t) {
      const index_t missing = blocks_ - 1 - t / m_.block, again = t == from ? times + 1 : 1;
      if (missing > m_.degree - level - 1) continue;
      if (blocks_ == 1 && next_ < m_.first)
        if (const index_t these = monomials_from(level, t); next_ + these <= m_.first) {
          next_ += these;
          continue;
        }
      const double ways = orders * static_cast<double>(level + 1) / static_cast<double>(again);
      if (level + 2 == m_.degree) {
        last_two(level, t, again, ways, f);
        continue;
      }
      for (index_t i = 0; i < width_; i += V::kLanes)
        (V::load(parent + i) * V::load(x_ + t * width_ + i)).store(value + i);
      if (missing == 0) product(row(true), value, weight(level + 1, ways)), settle(f);
      extend(level + 1, t, again, ways, f);
    }
  }
  /// Monomials of degree g - 1 and g: this parent times x_t, the same times x_t again, and times each x after t.
  template <class F>
  void last_two(index_t level, index_t t, index_t times, double ways, const F& f) {
    const bool has_all = t / m_.block == blocks_ - 1;
    const double once = ways * static_cast<double>(m_.degree), again = once / static_cast<double>(times + 1);
    const T *const parent = parents_ + level * kStride, *const x = x_ + t * width_;
    T* const value = parents_ + (level + 1) * kStride;
    const index_t one = row(has_all), two = row(has_all && next_ < end_);
    // What nobody reads is 0: it must not make a sum of columns infinite.
    const V w = one > kMostRows ? V::zero() : weight(level + 1, ways),
            w_again = two > kMostRows ? V::zero() : weight(m_.degree, again), w_once = weight(m_.degree, once);
    const V z_one = z_of(one), z_two = z_of(two);
    V sum_one = V::zero(), sum_two = V::zero();
    for (index_t i = 0; i < width_; i += V::kLanes) {
      const V x_i = V::load(x + i), p = V::load(parent + i) * x_i, p_one = p * w, p_two = p * w_again * x_i;
      (p * w_once).store(value + i);
      p_one.store(phi_ + one * kStride + i);
      p_two.store(phi_ + two * kStride + i);
      sum_one = sum_one + p_one;
      sum_two = sum_two + p_two;
      add_to_column(i, fma(p_one, z_one, p_two * z_two));
    }
    keep_sum(one, sum_one);
    keep_sum(two, sum_two);
    settle(f);
    const index_t to = std::min(d_, (t / m_.block + 2) * m_.block);
    leaves(std::max(t + 1, (blocks_ - 1) * m_.block), to, value, f);
  }
  /// The next rows of Phi, in NV vectors of columns from i on: this parent times each x from t on.
  template <int NV>
  void products(index_t rows, const T* parent, index_t t, index_t i) {
    constexpr bool kRowSums = kSums == SumsOf::rows;
    V p[NV], column[NV];
#pragma GCC unroll 16
    for (int v = 0; v < NV; ++v) p[v] = V::load(parent + v * V::kLanes), column[v] = V::zero();
    const T* x = x_ + t * width_ + i;
    const index_t z_step = z_.words() > 0 ? z_.row_stride : 0;
    const T* z = z_.words() > 0 ? &z_(begin_ + held_, 0) : &kNoSum;
    constexpr index_t kSumStep = kRowSums ? V::kLanes : 0;
    T *phi = phi_ + held_ * kStride + i, *sums = sums_ + held_ * kSumStep;
    for (index_t r = 0; r < rows; ++r, x += width_, phi += kStride, sums += kSumStep, z += z_step) {
      V sum = i == 0 || !kRowSums ? V::zero() : V::load(sums);
#pragma GCC unroll 16
      for (int v = 0; v < NV; ++v) {
        const V product = p[v] * V::load(x + v * V::kLanes);
        product.store(phi + v * V::kLanes);
        if constexpr (kRowSums)
          sum = sum + product;
        else
          column[v] = fma(product, V::all(*z), column[v]);
      }
      if constexpr (kRowSums) sum.store(sums);
    }
#pragma GCC unroll 16
    for (int v = 0; v < NV; ++v) add_to_column(i + v * V::kLanes, column[v]);
  }
  /// This parent times each of these coordinates.
  template <class F>
  void leaves(index_t t, index_t to, const T* parent, const F& f) {
    const index_t skipped = std::clamp<index_t>(m_.first - next_, 0, std::max<index_t>(0, to - t));
    next_ += skipped;
    t += skipped;
    for (index_t left = std::min(to - t, end_ - next_); left > 0;) {
      const index_t now = std::min(left, kMostRows - held_);
      index_t i = 0;
      for (; i + kMost * V::kLanes <= width_; i += kMost * V::kLanes) products<kMost>(now, parent + i, t, i);
      if constexpr (kMost > 4)
        for (; i + 4 * V::kLanes <= width_; i += 4 * V::kLanes) products<4>(now, parent + i, t, i);
      for (; i < width_; i += V::kLanes) products<1>(now, parent + i, t, i);
      t += now;
      held_ += now;
      next_ += now;
      left -= now;
      settle(f);
    }
  }

  const Monomials& m_;
  View<T> z_;
  index_t d_, blocks_, end_;
  index_t width_ = 0, begin_ = 0, held_ = 0, next_ = 0;
  FetchInTurn<T> next_rows_;  ///< the next rows of X,
  index_t lines_ = 0;         ///< this many lines beside kMostRows monomials
  std::array<double, Monomials::kMostDegree + 1> weight_{};
  alignas(64) T parents_[Monomials::kMostDegree * kStride];  ///< 1, and the products on the way to a monomial
  alignas(64) T phi_[(kMostRows + 2) * kStride];
  alignas(64) T sums_[std::max(kSums == SumsOf::rows ? (kMostRows + 2) * V::kLanes : 0, kWidth)];
  alignas(64) T x_[kCoordinates];
};

}  // namespace redblue::kernel::simd
