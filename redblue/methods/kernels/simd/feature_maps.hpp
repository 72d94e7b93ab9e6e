#pragma once
#include "redblue/kernels/simd/rows.hpp"
#include "redblue/methods/kernels/feature_maps.hpp"
#include "redblue/methods/kernels/landmarks.hpp"
#include "redblue/methods/kernels/random_rows.hpp"
#include "redblue/methods/kernels/sorting.hpp"

/// Approximate methods: features, weights and scores in vector lanes, the rest products of matrices.
namespace redblue::kernel::simd {

/// x . x of a row.
template <class V>
typename V::T square_of_row(const View<typename V::T>& X, index_t r) {
  V total = V::zero();
  for_vectors<V>(&X(r, 0), X.cols(), [&](const typename V::T* p, index_t n) {
    const V x = V::load_first(p, n);
    total = fma(x, x, total);
  });
  return sum(total);
}

/// f(first row, phi) for blocks of rows of X, phi(x) = elu(x) + 1. False where a row is too long.
template <class V, class F>
bool for_elu_features(const View<typename V::T>& X, const F& f) {
  using T = typename V::T;
  constexpr index_t kWords = 8192, kRows = 64;
  if (X.packed() || X.col_stride != 1 || X.cols() > kWords) return false;
  alignas(64) T words[kWords];
  const index_t rows = std::min(kRows, kWords / std::max<index_t>(1, X.cols()));
  for (index_t i = 0; i < X.rows(); i += rows) {
    const View<T> phi(words, {std::min(rows, X.rows() - i), X.cols()}, X.cols());
    for (index_t r = 0; r < phi.rows(); ++r)
      for (index_t t = 0; t < X.cols(); t += V::kLanes) {
        const index_t n = std::min(V::kLanes, X.cols() - t);
        const V x = V::load_first(&X(i + r, t), n);
        (max(V::zero(), x) + exp2(min(V::zero(), x) * V::all(kLog2E<T>))).store_first(&phi(r, t), n);
      }
    f(i, phi);
  }
  return true;
}

/// Z <- Z + phi(K)^T V, z <- z + column sums of phi(K)
template <class V>
bool add_elu_implementation(const AddElu&, std::span<const View<typename V::T>> x) {
  using T = typename V::T;
  const auto &Z = x[0], &z = x[1], &values = x[3];
  if (Z.packed() || values.packed() || Z.col_stride != 1 || values.col_stride != 1) return false;
  return for_elu_features<V>(x[2], [&](index_t i, const View<T>& phi) {
    if (Z.cols() > 0) gemm<V>(Z, phi.transposed(), rows_of(values, i, phi.rows()), Into::add);
    for (index_t t = 0; t < phi.cols() && z.words() > 0; t += V::kLanes) {
      const index_t n = std::min(V::kLanes, phi.cols() - t);
      V sums = V::zero();
      for (index_t r = 0; r < phi.rows(); ++r) sums = sums + V::load_first(&phi(r, t), n);
      alignas(64) T lane[V::kLanes];
      sums.store(lane);
      for (index_t l = 0; l < n; ++l) z(t + l, 0) += lane[l];
    }
  });
}

/// num <- num + phi(Q) Z, den <- den + phi(Q) z
template <class V>
bool apply_elu_implementation(const ApplyElu&, std::span<const View<typename V::T>> x) {
  using T = typename V::T;
  const auto &num = x[0], &den = x[1], &Z = x[3], &z = x[4];
  if (num.packed() || Z.packed() || num.col_stride != 1 || Z.col_stride != 1 || z.row_stride != 1) return false;
  return for_elu_features<V>(x[2], [&](index_t i, const View<T>& phi) {
    if (Z.cols() > 0) gemm<V>(rows_of(num, i, phi.rows()), phi, Z, Into::add);
    for (index_t r = 0; r < phi.rows() && z.words() > 0; ++r) {
      V total = V::zero();
      for (index_t t = 0; t < phi.cols(); t += V::kLanes) {
        const index_t n = std::min(V::kLanes, phi.cols() - t);
        total = fma(V::load_first(&phi(r, t), n), V::load_first(z.data + t, n), total);
      }
      den(i + r, 0) += sum(total);
    }
  });
}

/// P <- omega.x, less |x|^2 / 2 for keys, x = sqrt(scale) X
template <class V>
bool random_features_implementation(const RandomFeatures& k, std::span<const View<typename V::T>> x) {
  using T = typename V::T;
  const auto &P = x[0], &X = x[1];
  if (P.packed() || X.packed() || P.col_stride != 1 || X.col_stride != 1) return false;
  constexpr index_t kWords = 8192;
  const index_t d = X.cols(), step = kWords / std::max<index_t>(1, d);  // features at a time
  if (step == 0) return false;
  alignas(64) T omega[kWords];
  for (index_t a = 0; a < P.cols(); a += step) {
    View<T> part = P;
    part.data += a;
    part.shape.cols = std::min(step, P.cols() - a);
    random_rows(k.features, d, k.seed, k.first_feature + a, part.cols(), omega);
    gemm<V>(part, X, View<const T>(omega, {part.cols(), d}, d).transposed(), Into::overwrite);
  }
  const V root = V::all(static_cast<T>(std::sqrt(k.scale)));
  for (index_t r = 0; r < P.rows(); ++r) {
    const V less = V::all(k.of_keys ? static_cast<T>(k.scale / 2) * square_of_row<V>(X, r) : T(0));
    for_vectors<V>(&P(r, 0), P.cols(), [&](T* p, index_t n) { (root * V::load_first(p, n) - less).store_first(p, n); });
  }
  return true;
}

template <class V>
void scale_row(typename V::T* row, index_t words, typename V::T by) {
  for_vectors<V>(row, words,
                 [&](typename V::T* p, index_t n) { (V::load_first(p, n) * V::all(by)).store_first(p, n); });
}

/// m <- the largest of m and of P, row by row; num and den are rescaled to it; P <- exp(P - m)
template <class V>
bool rescale_rows_implementation(const RescaleRows&, std::span<const View<typename V::T>> x) {
  using T = typename V::T;
  const auto &P = x[0], &num = x[1], &den = x[2], &m = x[3];
  if (P.packed() || num.packed() || P.col_stride != 1 || num.col_stride != 1) return false;
  for (index_t r = 0; r < P.rows(); ++r) {
    const T old = m[r];
    m[r] = max_or_nan(old, largest_of_row<V>(P, r));
    if (const T alpha = exp_shifted(old, m[r]); alpha != T(1)) {
      if (num.cols() > 0) scale_row<V>(&num(r, 0), num.cols(), alpha);
      den[r] *= alpha;
    }
    exponentials<V>(P, r, m[r]);
  }
  return true;
}

/// c <- the largest of c and of P; Z and z are rescaled to it; P <- exp(P - c)
template <class V>
bool rescale_state_implementation(const RescaleState&, std::span<const View<typename V::T>> x) {
  using T = typename V::T;
  const auto &P = x[0], &Z = x[1], &z = x[2], &c = x[3];
  if (P.packed() || Z.packed() || P.col_stride != 1 || Z.col_stride != 1) return false;
  const T old = c[0];
  for (index_t r = 0; r < P.rows(); ++r) c[0] = max_or_nan(c[0], largest_of_row<V>(P, r));
  if (const T alpha = exp_shifted(old, c[0]); alpha != T(1))
    for (index_t a = 0; a < Z.rows(); ++a) {
      if (Z.cols() > 0) scale_row<V>(&Z(a, 0), Z.cols(), alpha);
      if (z.words() > 0) z(a, 0) *= alpha;
    }
  for (index_t r = 0; r < P.rows(); ++r) exponentials<V>(P, r, c[0]);
  return true;
}

/// S <- exp(S) / (exp(S) w), row by row
template <class V>
bool softmax_rows_implementation(const SoftmaxRows&, std::span<const View<typename V::T>> x) {
  using T = typename V::T;
  const auto &S = x[0], &w = x[1];
  if (S.packed() || S.col_stride != 1 || (w.words() > 0 && w.row_stride != 1)) return false;
  for (index_t r = 0; r < S.rows(); ++r) {
    T total = exponentials<V>(S, r, largest_of_row<V>(S, r));
    if (w.words() > 0) {
      V weighted = V::zero();
      for (index_t j = 0; j < S.cols(); j += V::kLanes) {
        const index_t n = std::min(V::kLanes, S.cols() - j);
        weighted = fma(V::load_first(&S(r, j), n), V::load_first(w.data + j, n), weighted);
      }
      total = sum(weighted);
    }
    for_vectors<V>(&S(r, 0), S.cols(),
                   [&](T* p, index_t n) { (V::load_first(p, n) / V::all(total)).store_first(p, n); });
  }
  return true;
}

/// N <- Z (13 I - A Z (15 I - A Z (7 I - A Z))) / 4, some columns at a time
template <class V>
bool pseudo_inverse_step_implementation(const PseudoInverseStep&, std::span<const View<typename V::T>> x) {
  using T = typename V::T;
  constexpr index_t kMost = 256, kColumns = kPanelWidth<V>;
  const auto &N = x[0], &A = x[3], &Z = x[4];
  const index_t n = A.rows();
  if (n > kMost || N.packed() || A.packed() || Z.packed() || Z.col_stride != 1) return false;
  alignas(64) T t_words[kMost * kColumns], u_words[kMost * kColumns];
  for (index_t a = 0; a < n; a += kColumns) {
    const index_t cols = std::min(kColumns, n - a);
    const View<T> t(t_words, {n, cols}, kColumns), u(u_words, {n, cols}, kColumns);
    for (index_t i = 0; i < n; ++i)
      for (index_t j = 0; j < cols; ++j) u(i, j) = Z(i, a + j);
    for (const T c : {T(7), T(15), T(13)}) {
      gemm<V>(t, A, u, Into::overwrite);
      for (index_t i = 0; i < n; ++i) {
        scale_row<V>(&t(i, 0), cols, T(-1));
        if (a <= i && i < a + cols) t(i, i - a) += c;
      }
      gemm<V>(u, Z, t, Into::overwrite);
    }
    for (index_t i = 0; i < n; ++i)
      for (index_t j = 0; j < cols; ++j) N(i, a + j) = u(i, j) / 4;
  }
  return true;
}

/// S <- scale Q K^T with every key as long as a unit
template <class V>
bool unit_scores_implementation(const UnitScores& k, std::span<const View<typename V::T>> x) {
  using T = typename V::T;
  const auto &S = x[0], &lengths = x[1], &Q = x[2], &K = x[3];
  if (S.packed() || Q.packed() || K.packed() || S.col_stride != 1 || K.col_stride != 1 || lengths.col_stride != 1)
    return false;
  gemm<V>(S, Q, K.transposed(), Into::overwrite);
  for (index_t j = 0; j < K.rows(); ++j) lengths(0, j) = std::sqrt(square_of_row<V>(K, j));
  for (index_t j = 0; j < K.rows(); j += V::kLanes) {
    const index_t n = std::min(V::kLanes, K.rows() - j);
    const V length = V::load_first(&lengths(0, j), n), one = V::all(T(1));
    const V factor = V::all(static_cast<T>(k.scale)) / where_equal(length, V::zero(), one, length).first_or(n, one);
    for (index_t i = 0; i < S.rows(); ++i) (factor * V::load_first(&S(i, j), n)).store_first(&S(i, j), n);
  }
  return true;
}

}  // namespace redblue::kernel::simd
