#pragma once
#include <cmath>
#include <limits>
#include <variant>

#include "oracle/matrix.hpp"
#include "redblue/core/method.hpp"
#include "redblue/core/random_features.hpp"

/// The weights of published approximations (core/method.hpp), row by row and key by key, so that outputs are sums of
/// weights times values like those of exact attention. With the random numbers of the schedules, and nothing else of
/// them.
namespace redblue::oracle {

template <class T>
class MethodWeights {
 public:
  MethodWeights() = default;
  MethodWeights(const Method& method, T scale, const Matrix<T>& Q, const Matrix<T>& K, index_t block)
      : method_(method), block_(block) {
    std::visit([&](const auto& m) { prepare(m, scale, Q, K); }, method_);
  }

  /// Of query i on these keys, which are all of them where the method knows no mask.
  std::vector<T> operator()(index_t i, const std::vector<index_t>& keys) const {
    std::vector<T> w;
    w.reserve(keys.size());
    for (const index_t j : keys) w.push_back(weight(i, j));
    const T all = normalised() ? T(1) : sum<T>(static_cast<index_t>(w.size()), block_, [&](index_t k) {
      return w[static_cast<std::size_t>(k)];
    });
    for (T& x : w) x /= all;
    return w;
  }

 private:
  /// left_i . right_j
  T weight(index_t i, index_t j) const {
    return sum<T>(left_.shape.cols, block_, [&](index_t a) { return left_(i, a) * right_(j, a); });
  }
  bool normalised() const { return !std::holds_alternative<LinearAttention>(method_) && !random_features_; }

  void prepare(const std::monostate&, T, const Matrix<T>&, const Matrix<T>&) {}
  void prepare(const LinearAttention&, T, const Matrix<T>& Q, const Matrix<T>& K) {
    left_ = Q;
    right_ = K;
    for (Matrix<T>* m : {&left_, &right_})
      for (T& x : m->words) x = x > 0 ? x + 1 : std::exp(x);
  }
  void prepare(const Performer& p, T scale, const Matrix<T>& Q, const Matrix<T>& K) {
    random_features_ = true;
    const auto table = random_features(p.features, Q.shape.cols, p.seed);
    Matrix<T> omega({Q.shape.cols, p.features});
    for (index_t a = 0; a < p.features; ++a)
      for (index_t t = 0; t < Q.shape.cols; ++t) omega(t, a) = static_cast<T>(table->template row<double>(a)[t]);
    left_ = product(Q, omega, block_);
    right_ = product(K, omega, block_);
    T largest = -std::numeric_limits<T>::infinity();
    for (index_t j = 0; j < K.shape.rows; ++j) {
      const T less = scale / 2 * sum<T>(K.shape.cols, block_, [&](index_t t) { return K(j, t) * K(j, t); });
      for (index_t a = 0; a < p.features; ++a) {
        right_(j, a) = std::sqrt(scale) * right_(j, a) - less;
        largest = std::max(largest, right_(j, a));
      }
    }
    for (T& x : right_.words) x = std::exp(x - largest);  // factors of all weights cancel, and those of a row
    for (index_t i = 0; i < Q.shape.rows; ++i) {
      T most = -std::numeric_limits<T>::infinity();
      for (index_t a = 0; a < p.features; ++a) most = std::max(most, left_(i, a));
      for (index_t a = 0; a < p.features; ++a) left_(i, a) = std::exp(std::sqrt(scale) * (left_(i, a) - most));
    }
  }
  void prepare(const Linformer& l, T scale, const Matrix<T>& Q, const Matrix<T>& K) {
    Matrix<T> E = means(l.rank, K.shape.rows);
    for (index_t a = 0; l.random_signs && a < l.rank; ++a)
      for (index_t j = 0; j < K.shape.rows; ++j)
        E(a, j) = (random_sign_is_negative(l.seed, a, j) ? -1 : 1) / std::sqrt(static_cast<T>(l.rank));
    left_ = softmax(Q, product(E, K, block_), scale);
    right_ = E.transposed();
  }
  void prepare(const Nystroemformer& n, T scale, const Matrix<T>& Q, const Matrix<T>& K) {
    const Matrix<T> few_Q = product(means(n.landmarks, Q.shape.rows), Q, block_),
                    few_K = product(means(n.landmarks, K.shape.rows), K, block_);
    const Matrix<T> A = softmax(few_Q, few_K, scale);
    left_ = softmax(Q, few_K, scale);
    right_ = product(pseudo_inverse(A, n.iterations), softmax(few_Q, K, scale), block_).transposed();
  }

  /// Row a has 1/size on segment a.
  static Matrix<T> means(index_t rank, index_t n) {
    Matrix<T> E({rank, n});
    for (index_t a = 0; a < rank; ++a) {
      const index_t begin = a * n / rank, end = (a + 1) * n / rank;
      for (index_t j = begin; j < end; ++j) E(a, j) = 1 / static_cast<T>(end - begin);
    }
    return E;
  }
  Matrix<T> softmax(const Matrix<T>& Q, const Matrix<T>& K, T scale) const {
    Matrix<T> S = product(Q, K.transposed(), block_);
    for (index_t i = 0; i < S.shape.rows; ++i) {
      T most = -std::numeric_limits<T>::infinity();
      for (index_t j = 0; j < S.shape.cols; ++j) most = std::max(most, scale * S(i, j));
      for (index_t j = 0; j < S.shape.cols; ++j) S(i, j) = std::exp(scale * S(i, j) - most);
      const T all = sum<T>(S.shape.cols, block_, [&](index_t j) { return S(i, j); });
      for (index_t j = 0; j < S.shape.cols; ++j) S(i, j) /= all;
    }
    return S;
  }
  /// Z <- Z (13 I - A Z (15 I - A Z (7 I - A Z))) / 4 from A^T / (|A|_1 |A|_inf).
  Matrix<T> pseudo_inverse(const Matrix<T>& A, index_t iterations) const {
    const index_t n = A.shape.rows;
    const auto largest_row = [&](const Matrix<T>& m) {
      T most = 0;
      for (index_t i = 0; i < n; ++i)
        most = std::max(most, sum<T>(n, block_, [&](index_t j) { return std::abs(m(i, j)); }));
      return most;
    };
    const auto less = [&](T c, Matrix<T> m) {  // c I - m
      for (T& x : m.words) x = -x;
      for (index_t i = 0; i < n; ++i) m(i, i) += c;
      return m;
    };
    Matrix<T> Z = A.transposed();
    const T norms = largest_row(A) * largest_row(Z);
    for (T& x : Z.words) x /= norms;
    for (index_t k = 0; k < iterations; ++k) {
      const Matrix<T> AZ = product(A, Z, block_);
      const Matrix<T> inner = less(15, product(AZ, less(7, AZ), block_));
      Z = product(Z, less(13, product(AZ, inner, block_)), block_);
      for (T& x : Z.words) x /= 4;
    }
    return Z;
  }

  Method method_;
  index_t block_ = 1;
  bool random_features_ = false;
  Matrix<T> left_, right_;  ///< n_q and n_k rows; weights are products of rows
};

}  // namespace redblue::oracle
