#pragma once
#include "redblue/hardware/isa.hpp"
#include "redblue/kernels/softmax.hpp"
#include "redblue/methods/maths/random_features.hpp"

/// Few rows in place of many: projections along the sequence, and the pseudo-inverse of Nystroemformer.
namespace redblue::kernel {

/// T <- T + E_J X, X being rows `first_row` and on of n rows. Row a of E takes the mean of segment a of the n rows, or
/// has entries +- 1/sqrt(rows of E) at random.
struct ProjectRows {
  static constexpr std::string_view name = "project_rows";
  static constexpr std::array access{Access::update, Access::read};
  static constexpr std::array<std::string_view, 4> parameter_names{"n", "first", "random_signs", "seed"};
  auto parameters() { return std::tie(n, first_row, random_signs, seed); }
  index_t n = 1;
  index_t first_row = 0;
  bool random_signs = false;
  index_t seed = 0;
  static constexpr bool fits(Shape T, Shape X) { return T.cols == X.cols; }
  constexpr bool fits_place(Shape T, Shape X) const {
    return seed >= 0 && n >= 1 && first_row >= 0 && first_row <= n - X.rows && (random_signs || T.rows <= n);
  }
  constexpr index_t macs(Shape T, Shape X) const { return random_signs ? T.rows * X.words() : X.words(); }
  template <class T>
  void run(View<T> out, View<const T> X) const {
    const index_t rank = out.rows();
    if (random_signs) {
      const T one = T(1) / std::sqrt(static_cast<T>(rank));
      return add_product(
          out, X, [&](index_t a, index_t i) { return random_sign_is_negative(seed, a, first_row + i) ? -one : one; });
    }
    for (index_t a = 0; a < rank; ++a) {
      const Range rows = segment(a, rank, n);
      const index_t first = std::max<index_t>(rows.begin - first_row, 0),
                    end = std::min(rows.end - first_row, X.rows());
      if (first >= end) continue;
      const T share = T(1) / static_cast<T>(rows.size());
      for (index_t t = 0; t < X.cols(); ++t)
        out(a, t) += share * sum_of<T>(end - first, [&](index_t i) { return X(first + i, t); });
    }
  }
};

/// S <- exp(S) / (exp(S) w), row by row; without weights w the softmax of each row.
struct SoftmaxRows {
  static constexpr std::string_view name = "softmax_rows";
  static constexpr std::array access{Access::update, Access::read};
  static constexpr bool fits(Shape S, Shape w) { return w.words() == 0 || w == Shape{S.cols, 1}; }
  static constexpr index_t macs(Shape S, Shape w) { return w.words() == 0 ? 0 : S.words(); }
  template <class T>
  void run(View<T> S, View<const T> w) const {
    for (index_t i = 0; i < S.rows(); ++i) {
      T m = kMinusInf<T>;
      raise_max<T>(m, S, i);
      const T sum = sum_of<T>(S.cols(), [&](index_t j) {
        S(i, j) = exp_shifted(S(i, j), m);
        return w.words() == 0 ? S(i, j) : S(i, j) * w[j];
      });
      for (index_t j = 0; j < S.cols(); ++j) S(i, j) /= sum;
    }
  }
  template <class T>
  static Implementation<T, SoftmaxRows> implementation(Isa isa);
};

/// Z <- A^T / (|A|_1 |A|_inf), where the iteration for the pseudo-inverse of A begins.
struct PseudoInverseStart {
  static constexpr std::string_view name = "pseudo_inverse_start";
  static constexpr std::array access{Access::write, Access::read};
  static constexpr bool fits(Shape Z, Shape A) { return Z == A && A.rows == A.cols; }
  static constexpr index_t macs(Shape, Shape) { return 0; }
  template <class T>
  void run(View<T> Z, View<const T> A) const {
    const index_t n = A.rows();
    T rows = 0, cols = 0;
    for (index_t i = 0; i < n; ++i) {
      rows = max_or_nan(rows, sum_of<T>(n, [&](index_t j) { return std::abs(A(i, j)); }));
      cols = max_or_nan(cols, sum_of<T>(n, [&](index_t j) { return std::abs(A(j, i)); }));
    }
    for (index_t i = 0; i < n; ++i)
      for (index_t j = 0; j < n; ++j) Z(i, j) = A(j, i) / (rows * cols);
  }
};

/// N <- Z (13 I - A Z (15 I - A Z (7 I - A Z))) / 4, a column at a time: with t = e_a, c times t less A Z t for c = 7,
/// 15 and 13 in turn; then Z t / 4. (The first Z t is a column of Z.)
struct PseudoInverseStep {
  static constexpr std::string_view name = "pseudo_inverse_step";
  static constexpr std::array access{Access::write, Access::write, Access::write, Access::read, Access::read};
  static constexpr bool fits(Shape N, Shape t, Shape u, Shape A, Shape Z) {
    return N == A && A == Z && A.rows == A.cols && t == u && t == Shape{A.rows, 1};
  }
  static constexpr index_t macs(Shape, Shape, Shape, Shape A, Shape) { return 6 * A.words() * A.cols; }
  template <class T>
  void run(View<T> N, View<T> t, View<T> u, View<const T> A, View<const T> Z) const {
    const index_t n = A.rows();
    const auto product = [&](View<T> y, View<const T> B, View<T> x) {
      for (index_t i = 0; i < n; ++i) y[i] = sum_of<T>(n, [&](index_t j) { return B(i, j) * x[j]; });
    };
    for (index_t a = 0; a < n; ++a) {
      for (index_t i = 0; i < n; ++i) u[i] = Z(i, a);
      for (const T c : {T(7), T(15), T(13)}) {
        product(t, A, u);
        for (index_t i = 0; i < n; ++i) t[i] = (i == a ? c : T(0)) - t[i];
        product(u, Z, t);
      }
      for (index_t i = 0; i < n; ++i) N(i, a) = u[i] / 4;
    }
  }
  template <class T>
  static Implementation<T, PseudoInverseStep> implementation(Isa isa);
};

/// B <- Z B, a column at a time. Only the leading rows of B count, as many as Z has columns.
struct MultiplyFromLeft {
  static constexpr std::string_view name = "multiply_from_left";
  static constexpr std::array access{Access::update, Access::write, Access::read};
  static constexpr bool fits(Shape B, Shape t, Shape Z) {
    return Z.rows == B.rows && Z.cols <= B.rows && t == Shape{Z.cols, 1};
  }
  static constexpr index_t macs(Shape B, Shape, Shape Z) { return B.cols * Z.words(); }
  template <class T>
  void run(View<T> B, View<T> t, View<const T> Z) const {
    for (index_t col = 0; col < B.cols(); ++col) {
      for (index_t i = 0; i < Z.cols(); ++i) t[i] = B(i, col);
      for (index_t i = 0; i < B.rows(); ++i) B(i, col) = sum_of<T>(Z.cols(), [&](index_t j) { return Z(i, j) * t[j]; });
    }
  }
};

}  // namespace redblue::kernel
