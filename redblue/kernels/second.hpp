#pragma once
#include "redblue/kernels/backward.hpp"

/// Kernels of tangents and of gradients of gradients (docs/algorithms/second-derivatives.md). The tangent of a score is
/// H; w are the row sums of P o H, by which lse moves.
namespace redblue::kernel {

/// A <- A - r o B, row by row
struct SubtractScaledRows {
  static constexpr std::string_view name = "subtract_scaled_rows";
  static constexpr std::array access{Access::update, Access::read, Access::read};
  static constexpr bool fits(Shape A, Shape r, Shape B) { return A == B && r.rows == A.rows && r.cols == 1; }
  static constexpr index_t macs(Shape, Shape, Shape) { return 0; }
  template <class T>
  void run(View<T> A, View<const T> r, View<const T> B) const {
    for (index_t i = 0; i < A.rows(); ++i)
      for (index_t t = 0; t < A.cols(); ++t) A(i, t) -= r[i] * B(i, t);
  }
};

/// D <- row sums of dO o O, and A <- A - r o O: every word of O is used for both while it passes.
struct RowDotsAndRest {
  static constexpr std::string_view name = "row_dots_and_rest";
  static constexpr std::array access{Access::write, Access::update, Access::read, Access::read, Access::read};
  static constexpr bool fits(Shape D, Shape A, Shape r, Shape dO, Shape O) {
    return RowDots::fits(D, dO, O) && SubtractScaledRows::fits(A, r, O);
  }
  static constexpr index_t macs(Shape, Shape, Shape, Shape, Shape) { return 0; }
  template <class T>
  void run(View<T> D, View<T> A, View<const T> r, View<const T> dO, View<const T> O) const {
    RowDots{}.run<T>(D, dO, O);
    SubtractScaledRows{}.run<T>(A, r, O);
  }
};

/// H <- H times the slope of a softcap, given the softcapped scores C = softcap tanh(s / softcap).
struct ThroughSoftcap {
  static constexpr std::string_view name = "through_softcap";
  static constexpr std::array access{Access::update, Access::read};
  static constexpr bool fits(Shape H, Shape C) { return H == C; }
  static constexpr index_t macs(Shape, Shape) { return 0; }
  static constexpr std::array<std::string_view, 1> parameter_names{"softcap"};
  auto parameters() { return std::tie(softcap); }
  double softcap = 1;
  template <class T>
  void run(View<T> H, View<const T> C) const {
    const T cap = static_cast<T>(softcap);
    for (index_t i = 0; i < H.rows(); ++i)
      for (index_t j = 0; j < H.cols(); ++j) {
        const T t = C(i, j) / cap;
        H(i, j) *= T(1) - t * t;
      }
  }
};

/// H <- scale G, the gradient of the products of queries and keys under <gQ, dQ> + <gK, dK> + <gV, dV>:
///   G = P o (dP o (H - w) - D o H + E - x), with E = dO gV^T and x the row sums that make those of G zero.
/// Where C has words, they are softcapped scores: G then passes through the softcap, and the change of its slope under
/// H is added.
struct SecondGradient {
  static constexpr std::string_view name = "second_gradient";
  static constexpr std::array access{Access::update, Access::read, Access::read, Access::read,
                                     Access::read,   Access::read, Access::read, Access::read};
  static constexpr bool fits(Shape H, Shape P, Shape dP, Shape E, Shape D, Shape w, Shape x, Shape C) {
    return H == P && P == dP && dP == E && D.rows == H.rows && D.cols == 1 && D == w && w == x &&
           (C == H || C.words() == 0);
  }
  static constexpr index_t macs(Shape, Shape, Shape, Shape, Shape, Shape, Shape, Shape) { return 0; }
  static constexpr std::array<std::string_view, 2> parameter_names{"scale", "softcap"};
  auto parameters() { return std::tie(scale, softcap); }
  double scale = 1;
  double softcap = 0;
  template <class T>
  void run(View<T> H, View<const T> P, View<const T> dP, View<const T> E, View<const T> D, View<const T> w,
           View<const T> x, View<const T> C) const {
    const T factor = static_cast<T>(scale), cap = static_cast<T>(softcap);
    for (index_t i = 0; i < H.rows(); ++i)
      for (index_t j = 0; j < H.cols(); ++j) {
        const T p = P(i, j), h = H(i, j), dp = dP(i, j);
        T g = p == T(0) ? T(0) : p * (dp * (h - w[i]) - D[i] * h + E(i, j) - x[i]);
        if (C.words() > 0 && p != T(0)) {
          const T t = C(i, j) / cap;
          g = (T(1) - t * t) * g - T(2) * t / cap * h * (p * (dp - D[i]));
        }
        H(i, j) = factor * g;
      }
  }
};

}  // namespace redblue::kernel
