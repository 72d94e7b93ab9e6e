#pragma once
#include <cmath>

#include "redblue/kernels/dense.hpp"

/// Kernels of the printed gradient algorithms (Li et al. 2024, arXiv 2410.09397).
namespace redblue::kernel {

/// f <- f + diag(l)^-1 A, given lse = log l
struct AddNormalised {
  static constexpr std::string_view name = "add_normalised";
  static constexpr std::array access{Access::update, Access::read, Access::read};
  static constexpr Axes axes{"ij ij i."};
  static constexpr bool fits(Shape f, Shape A, Shape lse) { return f == A && lse.rows == A.rows && lse.cols == 1; }
  static constexpr index_t macs(Shape, Shape, Shape) { return 0; }
  static constexpr Costs costs{.lse = LseUse::weights};
  template <class T>
  void run(View<T> f, View<const T> A, View<const T> lse) const {
    for (index_t i = 0; i < A.rows(); ++i) {
      const T weight = exp(-lse[i]);
      for (index_t j = 0; j < A.cols(); ++j) f(i, j) += weight * A(i, j);
    }
  }
};

/// v <- v + row sums of f o q
struct AddRowDots {
  static constexpr std::string_view name = "add_row_dots";
  static constexpr std::array access{Access::update, Access::read, Access::read};
  static constexpr Axes axes{"i. ij ij", 'j'};
  static constexpr bool fits(Shape v, Shape f, Shape q) { return v.rows == f.rows && v.cols == 1 && f == q; }
  static constexpr index_t macs(Shape, Shape, Shape) { return 0; }
  template <class T>
  void run(View<T> v, View<const T> f, View<const T> q) const {
    for (index_t i = 0; i < f.rows(); ++i)
      for (index_t j = 0; j < f.cols(); ++j) v[i] += f(i, j) * q(i, j);
  }
};

/// p <- p + scale (f o q - diag(v) f)
struct AddScoreGradient {
  static constexpr std::string_view name = "add_score_gradient";
  static constexpr std::array access{Access::update, Access::read, Access::read, Access::read};
  static constexpr Axes axes{"ij ij ij i."};
  static constexpr bool fits(Shape p, Shape f, Shape q, Shape v) {
    return p == f && f == q && v.rows == p.rows && v.cols == 1;
  }
  static constexpr index_t macs(Shape, Shape, Shape, Shape) { return 0; }
  static constexpr std::array<std::string_view, 1> parameter_names{"scale"};
  auto parameters() { return std::tie(scale); }
  double scale = 1;
  template <class T>
  void run(View<T> p, View<const T> f, View<const T> q, View<const T> v) const {
    for (index_t i = 0; i < p.rows(); ++i)
      for (index_t j = 0; j < p.cols(); ++j) p(i, j) += static_cast<T>(scale) * f(i, j) * (q(i, j) - v[i]);
  }
};

/// B <- A: a tile moves to the place of a tile that is no longer needed
struct Copy {
  static constexpr std::string_view name = "copy";
  static constexpr std::array access{Access::write, Access::read};
  static constexpr Axes axes{"ij ij"};
  static constexpr bool fits(Shape B, Shape A) { return B == A; }
  static constexpr index_t macs(Shape, Shape) { return 0; }
  template <class T>
  void run(View<T> B, View<const T> A) const {
    for (index_t i = 0; i < B.rows(); ++i)
      for (index_t j = 0; j < B.cols(); ++j) B(i, j) = A(i, j);
  }
};

}  // namespace redblue::kernel
