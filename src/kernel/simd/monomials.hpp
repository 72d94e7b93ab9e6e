#pragma once
#include "kernel/simd/gemm.hpp"
#include "kernel/simd/rows.hpp"
#include "redblue/kernel/polynomial_weights.hpp"

/// Polynomial attention: monomials are formed some at a time for a block of keys or queries, which lie in vector lanes,
/// with one product each; what comes of them is a product of matrices.
namespace redblue::kernel::simd {

/// Rows Phi(a, i) = w_a x_i^a of some monomials for a block of rows x_i, in the order of detail::MonomialWalk.
template <class V>
class MonomialRows {
 public:
  using T = typename V::T;
  static constexpr index_t kMostWidth = 256, kCoordinates = 16384, kPhi = 6144;

  /// Rows of X at a time where `wanted` are wanted; 0: X has too many coordinates.
  static index_t width(index_t coordinates, index_t wanted) {
    const index_t most = std::min({kMostWidth, wanted, kCoordinates / std::max<index_t>(1, coordinates)});
    return most / V::kLanes * V::kLanes;
  }

  MonomialRows(const Monomials& m, index_t coordinates, index_t rows) : m_(m), d_(coordinates), rows_(rows) {
    double power = 1;
    for (std::size_t l = 0; l < weight_.size(); ++l, power *= m.scale) weight_[l] = m.weighted ? m.c[l] * power : 1;
  }

  /// f(first row of the state, rows, Phi): all of them for these rows of X, `width` of Phi or fewer, `most` at a time.
  template <class F>
  void operator()(View<const T> X, index_t width, index_t most, const F& f) {
    width_ = ceil_div(X.rows(), V::kLanes) * V::kLanes;
    most_ = std::min(most, kPhi / width);
    begin_ = held_ = next_ = 0;
    transpose_in<V>(X, x_, width_);
    std::fill_n(parents_, X.rows(), T(1));
    std::fill(parents_ + X.rows(), parents_ + width_, T(0));
    if (m_.constant) {
      product(phi_, parents_, V::all(static_cast<T>(weight_[0])));
      ++held_;
    }
    if (d_ > 0) extend(0, 0, 0, 1, f);
    if (held_ > 0) flush(f);
  }
  index_t stride() const { return width_; }  ///< between rows of Phi

 private:
  template <class F>
  void flush(const F& f) {
    f(begin_, held_, static_cast<const T*>(phi_));
    begin_ += held_;
    held_ = 0;
  }
  /// One row: to <- from times a vector.
  [[gnu::always_inline]] void product(T* to, const T* from, V by) const {
    for (index_t i = 0; i < width_; i += V::kLanes) (V::load(from + i) * by).store(to + i);
  }
  [[gnu::always_inline]] void product(T* to, const T* a, const T* b) const {
    for (index_t i = 0; i < width_; i += V::kLanes) (V::load(a + i) * V::load(b + i)).store(to + i);
  }
  V weight(index_t degree, double ways) const {
    return V::all(m_.weighted ? static_cast<T>(weight_[static_cast<std::size_t>(degree)] * ways) : T(1));
  }
  /// Where the next row of Phi goes; null for a monomial before the first of this group.
  template <class F>
  T* row(const F& f) {
    if (next_++ < m_.first) return nullptr;
    if (held_ == most_) flush(f);
    return phi_ + held_++ * width_;
  }
  index_t end() const { return m_.first + rows_ - (m_.constant ? 1 : 0); }

  template <class F>
  void extend(index_t level, index_t from, index_t times, double orders, const F& f) {
    const index_t blocks = ceil_div(d_, m_.block), reached = level == 0 ? -1 : from / m_.block;
    const index_t to = std::min(d_, (reached + 2) * m_.block);  // no block may be passed over
    const double once = orders * static_cast<double>(level + 1), again = once / static_cast<double>(times + 1);
    const T* const parent = parents_ + level * kMostWidth;
    if (level + 1 == m_.degree) return last(parent, from, to, {once, again}, f);
    T* const value = parents_ + (level + 1) * kMostWidth;
    for (index_t t = from; t < to && next_ < end(); ++t) {
      const index_t missing = blocks - 1 - t / m_.block;
      if (missing > m_.degree - level - 1) continue;
      const double ways = t == from ? again : once;
      product(value, parent, x_ + t * width_);
      if (missing == 0)
        if (T* const to_phi = row(f)) product(to_phi, value, weight(level + 1, ways));
      extend(level + 1, t, t == from ? times + 1 : 1, ways, f);
    }
  }
  struct Ways {
    double once, again;
  };
  /// The monomials of full degree that this one begins: they have all blocks.
  template <class F>
  void last(const T* parent, index_t from, index_t to, Ways ways, const F& f) {
    index_t t = std::max(from, (ceil_div(d_, m_.block) - 1) * m_.block);
    if (t == from && t < to && next_ < end()) {
      weigh(parent, ways.again);
      if (T* const to_phi = row(f)) product(to_phi, weighed_, x_ + t * width_);
      ++t;
    }
    const index_t skipped = std::clamp<index_t>(m_.first - next_, 0, std::max<index_t>(0, to - t));
    next_ += skipped;
    t += skipped;
    index_t left = std::min(to - t, end() - next_);
    if (left > 0) weigh(parent, ways.once);
    while (left > 0) {
      if (held_ == most_) flush(f);
      const index_t now = std::min(left, most_ - held_);
      T* phi = phi_ + held_ * width_;
      const T* x = x_ + t * width_;
      for (index_t i = 0; i < width_; i += V::kLanes) {
        const V w = V::load(weighed_ + i);
        for (index_t r = 0; r < now; ++r) (w * V::load(x + r * width_ + i)).store(phi + r * width_ + i);
      }
      held_ += now;
      next_ += now;
      t += now;
      left -= now;
    }
  }
  void weigh(const T* parent, double ways) { product(weighed_, parent, weight(m_.degree, ways)); }

  const Monomials& m_;
  index_t d_, rows_;
  index_t width_ = 0, most_ = 0, begin_ = 0, held_ = 0, next_ = 0;
  std::array<double, Monomials::kMostDegree + 1> weight_{};
  alignas(64) T parents_[Monomials::kMostDegree * kMostWidth];  ///< 1, and the products on the way to a monomial
  alignas(64) T weighed_[kMostWidth];
  alignas(64) T phi_[kPhi];
  alignas(64) T x_[kCoordinates];
};

/// Z <- Z + Phi U, z <- z + Phi u: monomials in rows, keys summed over.
template <class V>
bool add_monomials_body(const AddMonomials& k, std::span<const View<typename V::T>> v) {
  using T = typename V::T;
  const auto &Z = v[0], &z = v[1], &X = v[3], &U = v[4], &u = v[5];
  constexpr index_t kValues = 6144;  // words of U that stay in L1
  const index_t width = MonomialRows<V>::width(
      X.cols(), std::max<index_t>(64, kValues / std::max<index_t>(1, U.cols()) / V::kLanes * V::kLanes));
  if (width == 0 || Z.packed() || U.packed() || X.packed() || Z.col_stride != 1 || U.col_stride != 1) return false;
  MonomialRows<V> monomials(k, X.cols(), Z.rows());
  for (index_t i = 0; i < X.rows(); i += width) {
    const index_t n = std::min(width, X.rows() - i);
    alignas(64) T weight[MonomialRows<V>::kMostWidth]{};
    for (index_t j = 0; j < n && u.words() > 0; ++j) weight[j] = u[i + j];
    monomials(rows_of(View<const T>(X), i, n), width, index_t{96}, [&](index_t first, index_t rows, const T* phi) {
      const index_t stride = monomials.stride();
      multiply_into<V>(rows_of(Z, first, rows), Rows<T>{phi, stride, 1}, U.data + i * U.row_stride, U.row_stride,
                       whole(n), Into::add);
      for (index_t a = 0; a < rows && z.words() > 0; ++a) {
        V sums = V::zero();
        for (index_t j = 0; j < stride; j += V::kLanes) {
          const V x = V::load(phi + a * stride + j);
          sums = sums + (u.words() > 0 ? x * V::load(weight + j) : x);
        }
        z[first + a] += sum(sums);
      }
    });
  }
  return true;
}

/// O <- O + Phi^T Z, den <- den + Phi^T z: queries in rows, monomials summed over.
template <class V>
bool apply_monomials_body(const ApplyMonomials& k, std::span<const View<typename V::T>> v) {
  using T = typename V::T;
  const auto &O = v[0], &den = v[1], &X = v[3], &Z = v[4], &z = v[5];
  const index_t width = MonomialRows<V>::width(X.cols(), index_t{64});
  if (width == 0 || O.packed() || Z.packed() || X.packed() || O.col_stride != 1 || Z.col_stride != 1) return false;
  MonomialRows<V> monomials(k, X.cols(), Z.rows());
  for (index_t i = 0; i < X.rows(); i += width) {
    const index_t n = std::min(width, X.rows() - i);
    alignas(64) T sums[MonomialRows<V>::kMostWidth]{};
    monomials(rows_of(View<const T>(X), i, n), width, kPiece, [&](index_t first, index_t rows, const T* phi) {
      const index_t stride = monomials.stride();
      multiply_into<V>(rows_of(O, i, n), Side<T>{phi, stride}, Z.data + first * Z.row_stride, Z.row_stride, whole(rows),
                       Into::add);
      if (z.words() > 0)
        multiply_into<V>(View<T>(sums, {1, stride}, stride), Rows<T>{z.data + first * z.row_stride, 0, z.row_stride},
                         phi, stride, whole(rows), Into::add);
    });
    for (index_t j = 0; j < n && z.words() > 0; ++j) den[i + j] += sums[j];
  }
  return true;
}

/// S <- p(S), 0 where hidden; den <- den + row sums of S
template <class V>
bool polynomial_weights_body(const PolynomialWeights& k, std::span<const View<typename V::T>> v) {
  using T = typename V::T;
  const auto &S = v[0], &den = v[1];
  if (S.packed() || S.col_stride != 1) return false;
  const auto c = [&](index_t l) { return V::all(static_cast<T>(k.c[static_cast<std::size_t>(l)])); };
  for (index_t r = 0; r < S.rows(); ++r) {
    V sums = V::zero();
    for_vectors<V>(&S(r, 0), S.cols(), [&](T* at, index_t n) {
      const V s = V::load_first(at, n);
      V p = c(k.degree);
      for (index_t l = k.degree - 1; l >= 0; --l) p = fma(p, s, c(l));
      p = where_equal(s, V::all(kMinusInf<T>), V::zero(), p).first_or(n, V::zero());
      p.store_first(at, n);
      sums = sums + p;
    });
    den[r] += sum(sums);
  }
  return true;
}

}  // namespace redblue::kernel::simd
