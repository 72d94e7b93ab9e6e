#pragma once
#include <cmath>
#include <limits>
#include <map>
#include <vector>

#include "redblue/problem.hpp"

/// Plain attention and its gradients, one instance at a time and row by row, in any floating-point type: what the
/// definition says and nothing else.
namespace redblue::oracle {

/// A dense row-major matrix.
template <class T>
struct Matrix {
  Shape shape{0, 0};
  std::vector<T> words;

  Matrix() = default;
  explicit Matrix(Shape s) : shape(s), words(static_cast<std::size_t>(s.words()), T(0)) {}
  T& operator()(index_t i, index_t j) { return words[static_cast<std::size_t>(i * shape.cols + j)]; }
  T operator()(index_t i, index_t j) const { return words[static_cast<std::size_t>(i * shape.cols + j)]; }
  Matrix transposed() const {
    Matrix t({shape.cols, shape.rows});
    for (index_t i = 0; i < shape.rows; ++i)
      for (index_t j = 0; j < shape.cols; ++j) t(j, i) = (*this)(i, j);
    return t;
  }
};

template <class T>
Matrix<T> product(const Matrix<T>& a, const Matrix<T>& b) {
  Matrix<T> c({a.shape.rows, b.shape.cols});
  for (index_t i = 0; i < a.shape.rows; ++i)
    for (index_t k = 0; k < a.shape.cols; ++k) {
      const T x = a(i, k);
      for (index_t j = 0; j < b.shape.cols; ++j) c(i, j) += x * b(k, j);
    }
  return c;
}

template <class T>
using Matrices = std::map<SlowArray, Matrix<T>>;

template <class T>
struct Row {
  std::vector<T> p;  ///< weights of the visible keys
  std::vector<T> o;
  T lse = -std::numeric_limits<T>::infinity();
};

/// One query: scores, weights, weighted sum. With `lse` the weights are exp(s - *lse).
template <class T>
Row<T> attend(const Matrix<T>& Q, const Matrix<T>& K, const Matrix<T>& V, index_t i, index_t seen, T scale, Score score,
              const T* lse = nullptr) {
  Row<T> r;
  r.o.assign(static_cast<std::size_t>(V.shape.cols), T(0));
  T m = -std::numeric_limits<T>::infinity(), l = 0;
  for (index_t j = 0; j < seen; ++j) {
    T s = 0;
    for (index_t t = 0; t < Q.shape.cols; ++t) s += Q(i, t) * K(j, t);
    r.p.push_back(scale * s);
    if (r.p.back() > m || std::isnan(r.p.back())) m = r.p.back();
  }
  if (seen == 0) return r;
  for (T& p : r.p) switch (score) {
      case Score::softmax:
        l += p = std::exp(p - (lse != nullptr ? *lse : m));
        break;
      case Score::sigmoid:
        p = 1 / (1 + std::exp(-p));
        break;
      case Score::relu:
        p = p > 0 || std::isnan(p) ? p : T(0);
        break;
      case Score::identity:
        break;
    }
  if (score == Score::softmax && lse == nullptr) {
    for (T& p : r.p) p /= l;
    r.lse = m + std::log(l);
  }
  for (index_t j = 0; j < seen; ++j)
    for (index_t t = 0; t < V.shape.cols; ++t)
      r.o[static_cast<std::size_t>(t)] += r.p[static_cast<std::size_t>(j)] * V(j, t);
  return r;
}

/// One instance of a problem: its inputs, and from them everything else.
template <class T>
class Dense {
 public:
  Dense(const Problem& p, Matrices<T> inputs)
      : p_(p), x_(p.sizes()), scale_(static_cast<T>(p.scale_or_default())), in_(std::move(inputs)) {
    project();
  }

  const Matrix<T>& at(SlowArray a) const { return in_.at(a); }
  /// Changes an input.
  void set(SlowArray a, const Matrix<T>& value) {
    in_[a] = value;
    project();
  }

  /// O and lse.
  Matrices<T> forward() const {
    Matrix<T> O({x_.n_q, x_.d_v}), lse({x_.n_q, x_.statistics()});
    for (index_t i = 0; i < x_.n_q; ++i) {
      const Row<T> r = row(i);
      for (index_t t = 0; t < x_.d_v; ++t) O(i, t) = r.o[static_cast<std::size_t>(t)];
      if (x_.statistics() > 0) lse(i, 0) = r.lse;
    }
    return {{SlowArray::O, O}, {SlowArray::lse, lse}};
  }

  /// SUM dO o O
  T loss() const {
    T sum = 0;
    for (index_t i = 0; i < x_.n_q; ++i) {
      const Row<T> r = row(i);
      for (index_t t = 0; t < x_.d_v; ++t) sum += at(SlowArray::dO)(i, t) * r.o[static_cast<std::size_t>(t)];
    }
    return sum;
  }

  /// Every gradient of the operation, as functions of O and lse where those are among the inputs.
  Matrices<T> gradients() const {
    Matrix<T> dQ(Q_.shape), dK(K_.shape), dV(V_.shape);
    const Matrix<T>& dO = at(SlowArray::dO);
    const bool given = in_.count(SlowArray::lse) > 0 && x_.statistics() > 0;
    for (index_t i = 0; i < x_.n_q; ++i) {
      const T lse = given ? at(SlowArray::lse)(i, 0) : T(0);
      const Row<T> r = attend(Q_, K_, V_, i, seen(i), scale_, p_.score, given ? &lse : nullptr);
      T D = 0;
      for (index_t t = 0; t < x_.d_v && x_.statistics() > 0; ++t)
        D += dO(i, t) * (given ? at(SlowArray::O)(i, t) : r.o[static_cast<std::size_t>(t)]);
      for (index_t j = 0; j < seen(i); ++j) {
        const T p = r.p[static_cast<std::size_t>(j)];
        T dP = 0;
        for (index_t t = 0; t < x_.d_v; ++t) {
          dP += dO(i, t) * V_(j, t);
          dV(j, t) += p * dO(i, t);
        }
        const T dS = scale_ * score_gradient(p, dP, D);
        for (index_t t = 0; t < x_.d; ++t) {
          dQ(i, t) += dS * K_(j, t);
          dK(j, t) += dS * Q_(i, t);
        }
      }
    }
    return chained(dQ, dK, dV);
  }

  /// What a rounding of each term of every sum is relative to: the gradients with every sum taken over absolute values
  /// (softmax).
  Matrices<T> gradient_sizes() const {
    const Dense sizes = of_magnitudes();
    const Matrix<T>& dO = sizes.at(SlowArray::dO);
    Matrix<T> dQ(Q_.shape), dK(K_.shape), dV(V_.shape);
    for (index_t i = 0; i < x_.n_q; ++i) {
      const Row<T> r = row(i);
      std::vector<T> dP(r.p.size());
      T mean = 0;
      for (std::size_t k = 0; k < r.p.size(); ++k) {
        for (index_t t = 0; t < x_.d_v; ++t) dP[k] += dO(i, t) * sizes.V_(static_cast<index_t>(k), t);
        mean += r.p[k] * dP[k];
      }
      for (std::size_t k = 0; k < r.p.size(); ++k) {
        const index_t j = static_cast<index_t>(k);
        const T dS = scale_ * r.p[k] * (dP[k] + mean);
        for (index_t t = 0; t < x_.d_v; ++t) dV(j, t) += r.p[k] * dO(i, t);
        for (index_t t = 0; t < x_.d; ++t) {
          dQ(i, t) += dS * sizes.K_(j, t);
          dK(j, t) += dS * sizes.Q_(i, t);
        }
      }
    }
    return sizes.chained(dQ, dK, dV);
  }
  /// The largest sum of absolute values behind a score: a score may be off by this many roundings.
  T score_size() const {
    const Dense sizes = of_magnitudes();
    T most = 0;
    for (index_t i = 0; i < x_.n_q; ++i)
      for (index_t j = 0; j < x_.n_k; ++j) {
        T sum = 0;
        for (index_t t = 0; t < x_.d; ++t) sum += sizes.Q_(i, t) * sizes.K_(j, t);
        most = std::max(most, scale_ * sum);
      }
    return most;
  }

 private:
  Dense of_magnitudes() const {
    Matrices<T> in = in_;
    for (auto& [array, m] : in)
      for (T& v : m.words) v = std::abs(v);
    return {p_, std::move(in)};
  }
  index_t seen(index_t i) const { return x_.mask.visible(i, x_.n_k); }
  Row<T> row(index_t i) const { return attend(Q_, K_, V_, i, seen(i), scale_, p_.score); }

  T score_gradient(T p, T dP, T D) const {
    switch (p_.score) {
      case Score::softmax:
        return p == 0 ? T(0) : p * (dP - D);
      case Score::sigmoid:
        return p * (1 - p) * dP;
      case Score::relu:
        return p > 0 ? dP : T(0);
      case Score::identity:
        return dP;
    }
    return dP;
  }

  const Matrix<T>& source(SlowArray a) const {
    if (a == SlowArray::A3 && p_.sources != Sources::distinct) a = SlowArray::A2;
    if (a == SlowArray::A2 && p_.sources == Sources::self) a = SlowArray::A1;
    return at(a);
  }

  void project() {
    if (!is_projected(p_.op)) {
      Q_ = at(SlowArray::Q);
      K_ = at(SlowArray::K);
      V_ = at(SlowArray::V);
    } else if (p_.op == Operation::backward_w) {
      Q_ = product(source(SlowArray::A1), at(SlowArray::WQ));
      K_ = product(source(SlowArray::A2), at(SlowArray::WK));
      V_ = product(source(SlowArray::A3), at(SlowArray::WV));
    } else {
      Q_ = product(source(SlowArray::A1), at(SlowArray::X));
      K_ = source(SlowArray::A2);
      V_ = product(source(SlowArray::A3), at(SlowArray::Y));
    }
  }

  /// From dQ, dK, dV to the gradients of what Q, K, V were made of.
  Matrices<T> chained(const Matrix<T>& dQ, const Matrix<T>& dK, const Matrix<T>& dV) const {
    if (!is_projected(p_.op)) return {{SlowArray::dQ, dQ}, {SlowArray::dK, dK}, {SlowArray::dV, dV}};
    const Matrix<T> A1t = source(SlowArray::A1).transposed(), A3t = source(SlowArray::A3).transposed();
    if (p_.op == Operation::gradient_x) return {{SlowArray::g, product(A1t, dQ)}};
    if (p_.op == Operation::backward_x)
      return {{SlowArray::dX, product(A1t, dQ)},
              {SlowArray::dY, product(A3t, dV)},
              {SlowArray::dA1, product(dQ, at(SlowArray::X).transposed())},
              {SlowArray::dA2, dK},
              {SlowArray::dA3, product(dV, at(SlowArray::Y).transposed())}};
    return {{SlowArray::dWQ, product(A1t, dQ)},
            {SlowArray::dWK, product(source(SlowArray::A2).transposed(), dK)},
            {SlowArray::dWV, product(A3t, dV)},
            {SlowArray::dA1, product(dQ, at(SlowArray::WQ).transposed())},
            {SlowArray::dA2, product(dK, at(SlowArray::WK).transposed())},
            {SlowArray::dA3, product(dV, at(SlowArray::WV).transposed())}};
  }

  Problem p_;
  Sizes x_;
  T scale_;
  Matrices<T> in_;
  Matrix<T> Q_, K_, V_;
};

}  // namespace redblue::oracle
