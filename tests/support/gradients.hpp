#pragma once
#include <cmath>
#include <limits>
#include <map>
#include <vector>

#include "redblue/core/operation.hpp"
#include "redblue/core/sizes.hpp"
#include "redblue/core/slow_matrix.hpp"

/// Attention and its gradients as dense matrices, written from the definition and from nothing else in this repository:
/// the whole Jacobian of the softmax, no D, no lse. Any floating-point type.
namespace redblue::test {

template <class R>
struct DenseMatrix {
  index_t rows = 0, cols = 0;
  std::vector<R> words;

  DenseMatrix() = default;
  DenseMatrix(index_t n, index_t m) : rows(n), cols(m), words(static_cast<std::size_t>(n * m), R(0)) {}
  R& operator()(index_t i, index_t j) { return words[static_cast<std::size_t>(i * cols + j)]; }
  R operator()(index_t i, index_t j) const { return words[static_cast<std::size_t>(i * cols + j)]; }
};

template <class R>
using Matrices = std::map<SlowArray, DenseMatrix<R>>;

template <class R>
DenseMatrix<R> transpose_of(const DenseMatrix<R>& a) {
  DenseMatrix<R> t(a.cols, a.rows);
  for (index_t i = 0; i < a.rows; ++i)
    for (index_t j = 0; j < a.cols; ++j) t(j, i) = a(i, j);
  return t;
}
template <class R>
DenseMatrix<R> operator*(const DenseMatrix<R>& a, const DenseMatrix<R>& b) {
  DenseMatrix<R> c(a.rows, b.cols);
  for (index_t i = 0; i < a.rows; ++i)
    for (index_t j = 0; j < b.cols; ++j)
      for (index_t t = 0; t < a.cols; ++t) c(i, j) += a(i, t) * b(t, j);
  return c;
}
template <class R>
DenseMatrix<R> magnitudes(DenseMatrix<R> a) {
  for (R& v : a.words) v = std::abs(v);
  return a;
}

/// One instance of an operation: its inputs by name.
template <class R>
struct DenseProblem {
  Operation op;
  Sizes shape;
  R scale;
  Matrices<R> in;

  DenseMatrix<R> Q() const { return weighted(SlowArray::Q, SlowArray::A1, SlowArray::X, SlowArray::WQ); }
  DenseMatrix<R> K() const {
    if (op == Operation::forward || op == Operation::backward) return in.at(SlowArray::K);
    return op == Operation::backward_w ? in.at(SlowArray::A2) * in.at(SlowArray::WK) : in.at(SlowArray::A2);
  }
  DenseMatrix<R> V() const { return weighted(SlowArray::V, SlowArray::A3, SlowArray::Y, SlowArray::WV); }

 private:
  DenseMatrix<R> weighted(SlowArray plain, SlowArray source, SlowArray xy, SlowArray w) const {
    if (op == Operation::forward || op == Operation::backward) return in.at(plain);
    return in.at(source) * in.at(op == Operation::backward_w ? w : xy);
  }
};

/// Scores of visible keys, the weights they become, and the log of the sum of their exponentials.
template <class R>
struct DenseRow {
  std::vector<R> s, p;
  R lse = -std::numeric_limits<R>::infinity();
};
template <class R>
DenseRow<R> row_of(const DenseProblem<R>& x, const DenseMatrix<R>& Q, const DenseMatrix<R>& K, index_t i) {
  DenseRow<R> r;
  const index_t seen = x.shape.mask.visible(i, x.shape.n_k);
  R top = -std::numeric_limits<R>::infinity(), sum = 0;
  for (index_t j = 0; j < seen; ++j) {
    R s = 0;
    for (index_t t = 0; t < Q.cols; ++t) s += Q(i, t) * K(j, t);
    r.s.push_back(x.scale * s);
    top = std::max(top, r.s.back());
  }
  for (const R s : r.s) switch (x.shape.score) {
      case Score::softmax:
        r.p.push_back(std::exp(s - top));
        sum += r.p.back();
        break;
      case Score::sigmoid:
        r.p.push_back(1 / (1 + std::exp(-s)));
        break;
      case Score::relu:
        r.p.push_back(std::max(s, R(0)));
        break;
      case Score::identity:
        r.p.push_back(s);
        break;
    }
  if (x.shape.score == Score::softmax && seen > 0) {
    for (R& p : r.p) p /= sum;
    r.lse = top + std::log(sum);
  }
  return r;
}

/// O, and lse where there is one.
template <class R>
Matrices<R> forward_of(const DenseProblem<R>& x) {
  const DenseMatrix<R> Q = x.Q(), K = x.K(), V = x.V();
  DenseMatrix<R> O(x.shape.n_q, x.shape.d_v), lse(x.shape.n_q, x.shape.statistics());
  for (index_t i = 0; i < x.shape.n_q; ++i) {
    const DenseRow<R> r = row_of(x, Q, K, i);
    for (std::size_t j = 0; j < r.p.size(); ++j)
      for (index_t t = 0; t < O.cols; ++t) O(i, t) += r.p[j] * V(static_cast<index_t>(j), t);
    if (lse.cols > 0) lse(i, 0) = r.lse;
  }
  return {{SlowArray::O, O}, {SlowArray::lse, lse}};
}

/// SUM dO o O, whose gradients are asked for.
template <class R>
R loss_of(const DenseProblem<R>& x) {
  const DenseMatrix<R> O = forward_of(x).at(SlowArray::O);
  R sum = 0;
  for (std::size_t k = 0; k < O.words.size(); ++k) sum += x.in.at(SlowArray::dO).words[k] * O.words[k];
  return sum;
}

/// From gradients of Q, K and V to those of what they are made of.
template <class R>
Matrices<R> chained(const DenseProblem<R>& x, const DenseMatrix<R>& to_Q, const DenseMatrix<R>& to_K,
                    const DenseMatrix<R>& to_V) {
  using enum SlowArray;
  const auto at = [&](SlowArray a) -> const DenseMatrix<R>& { return x.in.at(a); };
  switch (x.op) {
    case Operation::gradient_x:
      return {{g, transpose_of(at(A1)) * to_Q}};
    case Operation::backward_x:
      return {{dX, transpose_of(at(A1)) * to_Q},
              {dA1, to_Q * transpose_of(at(X))},
              {dA2, to_K},
              {dY, transpose_of(at(A3)) * to_V},
              {dA3, to_V * transpose_of(at(Y))}};
    case Operation::backward_w:
      return {{dWQ, transpose_of(at(A1)) * to_Q}, {dA1, to_Q * transpose_of(at(WQ))},
              {dWK, transpose_of(at(A2)) * to_K}, {dA2, to_K * transpose_of(at(WK))},
              {dWV, transpose_of(at(A3)) * to_V}, {dA3, to_V * transpose_of(at(WV))}};
    default:
      return {{SlowArray::dQ, to_Q}, {SlowArray::dK, to_K}, {SlowArray::dV, to_V}};
  }
}

/// Every gradient of the operation. dS_ij = SUM_k dp_ik/ds_ij dP_ik; for the softmax p_ij (dP_ij - SUM_k p_ik dP_ik).
template <class R>
Matrices<R> gradients_of(const DenseProblem<R>& x) {
  const DenseMatrix<R> Q = x.Q(), K = x.K(), V = x.V(), &dO = x.in.at(SlowArray::dO);
  DenseMatrix<R> dQ(Q.rows, Q.cols), dK(K.rows, K.cols), dV(V.rows, V.cols);
  for (index_t i = 0; i < x.shape.n_q; ++i) {
    const DenseRow<R> r = row_of(x, Q, K, i);
    std::vector<R> dP;
    R mean = 0;
    for (std::size_t j = 0; j < r.p.size(); ++j) {
      R dot = 0;
      for (index_t t = 0; t < V.cols; ++t) dot += dO(i, t) * V(static_cast<index_t>(j), t);
      dP.push_back(dot);
      mean += r.p[j] * dot;
    }
    for (std::size_t k = 0; k < r.p.size(); ++k) {
      const index_t j = static_cast<index_t>(k);
      const R slope = x.shape.score == Score::softmax   ? r.p[k] * (dP[k] - mean)
                      : x.shape.score == Score::sigmoid ? r.p[k] * (1 - r.p[k]) * dP[k]
                      : x.shape.score == Score::relu    ? (r.s[k] > 0 ? dP[k] : R(0))
                                                        : dP[k];
      for (index_t t = 0; t < V.cols; ++t) dV(j, t) += r.p[k] * dO(i, t);
      for (index_t t = 0; t < Q.cols; ++t) {
        dQ(i, t) += x.scale * slope * K(j, t);
        dK(j, t) += x.scale * slope * Q(i, t);
      }
    }
  }
  return chained(x, dQ, dK, dV);
}

/// The same for softmax as a schedule must do it: from the O and lse of a forward pass, rounded as they are.
template <class R>
Matrices<R> gradients_from_statistics(const DenseProblem<R>& x, const DenseMatrix<R>& O, const DenseMatrix<R>& lse) {
  const DenseMatrix<R> Q = x.Q(), K = x.K(), V = x.V(), &dO = x.in.at(SlowArray::dO);
  DenseMatrix<R> dQ(Q.rows, Q.cols), dK(K.rows, K.cols), dV(V.rows, V.cols);
  for (index_t i = 0; i < x.shape.n_q; ++i) {
    const DenseRow<R> r = row_of(x, Q, K, i);
    R D = 0;
    for (index_t t = 0; t < V.cols; ++t) D += dO(i, t) * O(i, t);
    for (std::size_t k = 0; k < r.s.size(); ++k) {
      const index_t j = static_cast<index_t>(k);
      const R p = std::exp(r.s[k] - lse(i, 0));
      R dP = 0;
      for (index_t t = 0; t < V.cols; ++t) {
        dP += dO(i, t) * V(j, t);
        dV(j, t) += p * dO(i, t);
      }
      for (index_t t = 0; t < Q.cols; ++t) {
        dQ(i, t) += x.scale * p * (dP - D) * K(j, t);
        dK(j, t) += x.scale * p * (dP - D) * Q(i, t);
      }
    }
  }
  return chained(x, dQ, dK, dV);
}

/// What a rounding of each term of every sum is relative to: the gradients with every sum taken over absolute values
/// (softmax).
template <class R>
Matrices<R> gradient_sizes(const DenseProblem<R>& x) {
  DenseProblem<R> sizes = x;
  for (auto& [array, m] : sizes.in) m = magnitudes(m);
  const DenseMatrix<R> Q = sizes.Q(), K = sizes.K(), V = sizes.V(), &dO = sizes.in.at(SlowArray::dO);
  const DenseMatrix<R> true_Q = x.Q(), true_K = x.K();
  DenseMatrix<R> dQ(Q.rows, Q.cols), dK(K.rows, K.cols), dV(V.rows, V.cols);
  for (index_t i = 0; i < x.shape.n_q; ++i) {
    const DenseRow<R> r = row_of(x, true_Q, true_K, i);
    std::vector<R> dP;
    R mean = 0;
    for (std::size_t k = 0; k < r.p.size(); ++k) {
      R dot = 0;
      for (index_t t = 0; t < V.cols; ++t) dot += dO(i, t) * V(static_cast<index_t>(k), t);
      dP.push_back(dot);
      mean += r.p[k] * dot;
    }
    for (std::size_t k = 0; k < r.p.size(); ++k) {
      const index_t j = static_cast<index_t>(k);
      for (index_t t = 0; t < V.cols; ++t) dV(j, t) += r.p[k] * dO(i, t);
      for (index_t t = 0; t < Q.cols; ++t) {
        dQ(i, t) += x.scale * r.p[k] * (dP[k] + mean) * K(j, t);
        dK(j, t) += x.scale * r.p[k] * (dP[k] + mean) * Q(i, t);
      }
    }
  }
  return chained(sizes, dQ, dK, dV);
}

/// The largest sum of absolute values behind a score, which bounds its rounding error.
template <class R>
R score_size(const DenseProblem<R>& x) {
  DenseProblem<R> sizes = x;
  for (auto& [array, m] : sizes.in) m = magnitudes(m);
  const DenseMatrix<R> s = sizes.Q() * transpose_of(sizes.K());
  R most = 0;
  for (const R v : s.words) most = std::max(most, x.scale * v);
  return most;
}

}  // namespace redblue::test
