#pragma once
#include <algorithm>
#include <array>
#include <cmath>
#include <tuple>

#include "redblue/kernel/softmax.hpp"

/// Kernels of polynomial attention with a radius for each row: the mean of the keys, the keys farthest from it, how far
/// the scores of a row can go. The radius is kept as a number of a grid of polynomials.
namespace redblue::kernel {

/// b <- b + the sum of the rows of A
struct AddUpRows {
  static constexpr std::string_view name = "add_up_rows";
  static constexpr std::array access{Access::update, Access::read};
  static constexpr bool fits(Shape b, Shape A) { return b == Shape{1, A.cols}; }
  static constexpr index_t macs(Shape, Shape) { return 0; }
  template <class T>
  void run(View<T> b, View<const T> A) const {
    for (index_t t = 0; t < A.cols(); ++t) b(0, t) += sum_of<T>(A.rows(), [&](index_t i) { return A(i, t); });
  }
};

/// A <- A - b, row by row
struct SubtractFromRows {
  static constexpr std::string_view name = "subtract_from_rows";
  static constexpr std::array access{Access::update, Access::read};
  static constexpr bool fits(Shape A, Shape b) { return b == Shape{1, A.cols}; }
  static constexpr index_t macs(Shape, Shape) { return 0; }
  template <class T>
  void run(View<T> A, View<const T> b) const {
    for (index_t i = 0; i < A.rows(); ++i)
      for (index_t t = 0; t < A.cols(); ++t) A(i, t) -= b(0, t);
  }
};

namespace detail {
template <class T>
T square_of_row(View<const T> A, index_t i) {
  return dot(&A(i, 0), A.col_stride, &A(i, 0), A.col_stride, A.cols());
}
}  // namespace detail

/// Of the rows that are kept and those that arrive, the longest are kept: each row of A that is longer than the
/// shortest of K changes places with it, and its row of B with that of V. `shortest` has the square of its length, and
/// which it is.
struct KeepLongest {
  static constexpr std::string_view name = "keep_longest";
  static constexpr std::array access{Access::update, Access::update, Access::update, Access::update, Access::write};
  static constexpr bool fits(Shape K, Shape V, Shape A, Shape B, Shape shortest) {
    return K.rows > 0 && K.rows == V.rows && A.rows == B.rows && K.cols == A.cols && V.cols == B.cols &&
           shortest == Shape{2, 1};
  }
  static constexpr index_t macs(Shape, Shape, Shape, Shape, Shape) { return 0; }
  template <class T>
  void run(View<T> K, View<T> V, View<T> A, View<T> B, View<T> shortest) const {
    const auto find = [&] {
      index_t which = 0;
      shortest[0] = detail::square_of_row<T>(K, 0);
      for (index_t h = 1; h < K.rows(); ++h)
        if (const T square = detail::square_of_row<T>(K, h); square < shortest[0]) {
          shortest[0] = square;
          which = h;
        }
      shortest[1] = static_cast<T>(which);
      return which;
    };
    index_t which = find();
    for (index_t j = 0; j < A.rows(); ++j) {
      if (!(detail::square_of_row<T>(A, j) > shortest[0])) continue;
      for (index_t t = 0; t < A.cols(); ++t) std::swap(A(j, t), K(which, t));
      for (index_t t = 0; t < B.cols(); ++t) std::swap(B(j, t), V(which, t));
      which = find();
    }
  }
};

/// most <- the larger of itself and the length of the longest row of A
struct LongestRow {
  static constexpr std::string_view name = "longest_row";
  static constexpr std::array access{Access::update, Access::read};
  static constexpr bool fits(Shape most, Shape) { return most == Shape{1, 1}; }
  static constexpr index_t macs(Shape, Shape) { return 0; }
  template <class T>
  void run(View<T> most, View<const T> A) const {
    for (index_t i = 0; i < A.rows(); ++i)
      most[0] = max_or_nan(most[0], static_cast<T>(std::sqrt(detail::square_of_row<T>(A, i))));
  }
};

/// number <- the least k from 0 to `most` with scale |q| longest <= step (k + 1), `most` where there is none: the
/// number of the polynomial for the row q, whose scores with keys no longer than `longest` do not exceed that.
struct RadiusNumber {
  static constexpr std::string_view name = "radius_number";
  static constexpr std::array access{Access::write, Access::read, Access::read};
  static constexpr std::array<std::string_view, 3> parameter_names{"scale", "step", "most"};
  auto parameters() { return std::tie(scale, step, most); }
  double scale = 1;
  double step = 1;
  index_t most = 1;
  static constexpr bool fits(Shape number, Shape q, Shape longest) {
    return number == Shape{1, 1} && q.rows == 1 && longest == Shape{1, 1};
  }
  static constexpr index_t macs(Shape, Shape, Shape) { return 0; }
  template <class T>
  void run(View<T> number, View<const T> q, View<const T> longest) const {
    const double square = static_cast<double>(detail::square_of_row<T>(q, 0));
    const double k = std::ceil(std::abs(scale) * std::sqrt(square) * static_cast<double>(longest[0]) / step) - 1;
    const double last = static_cast<double>(most);
    number[0] = static_cast<T>(k < last ? std::max(k, 0.0) : last);  // NaN: the last
  }
};

/// Every word <- value
struct SetTo {
  static constexpr std::string_view name = "set_to";
  static constexpr std::array access{Access::write};
  static constexpr std::array<std::string_view, 1> parameter_names{"value"};
  auto parameters() { return std::tie(value); }
  double value = 0;
  static constexpr bool fits(Shape) { return true; }
  static constexpr index_t macs(Shape) { return 0; }
  template <class T>
  void run(View<T> out) const {
    for (index_t i = 0; i < out.rows(); ++i)
      for (index_t j = 0; j < out.cols(); ++j) out(i, j) = static_cast<T>(value);
  }
};

}  // namespace redblue::kernel
