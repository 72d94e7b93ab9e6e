#pragma once
#include <algorithm>
#include <array>
#include <cmath>
#include <tuple>

#include "redblue/kernels/softmax.hpp"
#include "redblue/methods/kernels/polynomial.hpp"

/// Kernels of polynomial attention with a radius for each row: the mean of the keys, the keys farthest from it, how far
/// the scores of a row can go. The radius is kept as a number of a grid of polynomials.
namespace redblue::kernel {

inline constexpr index_t kMostDegreeOfRows = Monomials::kMostDegree;

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

/// Keeps the longest of the rows that are kept and those that arrive: each row of A that is longer than the
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

/// number <- the least k from 0 to `most` with sqrt(number / z_0) <= step (k + 1), `most` where there is none: of the
/// sum of the squares of a row's scores, the number of the polynomial for their spread. z_0 is how many keys a state
/// has.
struct SpreadNumber {
  static constexpr std::string_view name = "spread_number";
  static constexpr std::array access{Access::update, Access::read};
  static constexpr std::array<std::string_view, 2> parameter_names{"step", "most"};
  auto parameters() { return std::tie(step, most); }
  double step = 1;
  index_t most = 1;
  static constexpr bool fits(Shape number, Shape z) { return number == Shape{1, 1} && z.rows >= 1 && z.cols == 1; }
  static constexpr index_t macs(Shape, Shape) { return 0; }
  template <class T>
  void run(View<T> number, View<const T> z) const {
    const double squares = static_cast<double>(number[0]), keys = static_cast<double>(z[0]);
    const double spread = keys > 0 ? std::sqrt(squares < 0 ? 0.0 : squares / keys) : 0;
    const double k = std::ceil(spread / step) - 1, last = static_cast<double>(most);
    number[0] = static_cast<T>(k < last ? std::max(k, 0.0) : last);  // NaN: the last
  }
};

/// S <- scale Q (K - mean)^T; mean has no words where keys are taken as they are.
struct CentredScores {
  static constexpr std::string_view name = "centred_scores";
  static constexpr std::array access{Access::write, Access::read, Access::read, Access::read};
  static constexpr std::array<std::string_view, 1> parameter_names{"scale"};
  auto parameters() { return std::tie(scale); }
  double scale = 1;
  static constexpr bool fits(Shape S, Shape Q, Shape K, Shape mean) {
    return S == Shape{Q.rows, K.rows} && Q.cols == K.cols && (mean.words() == 0 || mean == Shape{1, K.cols});
  }
  static constexpr index_t macs(Shape S, Shape Q, Shape, Shape) { return S.words() * Q.cols; }
  template <class T>
  void run(View<T> S, View<const T> Q, View<const T> K, View<const T> mean) const {
    for (index_t i = 0; i < S.rows(); ++i)
      for (index_t j = 0; j < S.cols(); ++j)
        S(i, j) = static_cast<T>(scale) * sum_of<T>(Q.cols(), [&](index_t t) {
                    return Q(i, t) * (mean.words() > 0 ? K(j, t) - mean(0, t) : K(j, t));
                  });
  }
};

/// s <- e^(s - m) - p(s) e^(unit - m), what an exact weight has more than p, which is near e^(z - unit); m is the
/// larger of itself and s, and `rescale` is e to what it grew by.
struct ExactLessPolynomial {
  static constexpr std::string_view name = "exact_less_polynomial";
  static constexpr std::array access{Access::update, Access::update, Access::write};
  static constexpr std::array<std::string_view, 1 + kMostDegreeOfRows + 1> parameter_names{
      "unit", "c0", "c1", "c2", "c3", "c4", "c5", "c6", "c7", "c8", "c9", "c10", "c11", "c12"};
  auto parameters() {
    return std::tuple_cat(std::tie(unit), std::apply([](auto&... l) { return std::tie(l...); }, c));
  }
  double unit = 0;
  std::array<double, kMostDegreeOfRows + 1> c{};
  static constexpr bool fits(Shape s, Shape m, Shape rescale) { return s == Shape{1, 1} && m == s && rescale == s; }
  static constexpr index_t macs(Shape, Shape, Shape) { return 0; }
  template <class T>
  void run(View<T> s, View<T> m, View<T> rescale) const {
    const T score = s[0], before = m[0], most = max_or_nan(before, score);
    T p = 0;
    for (std::size_t l = c.size(); l > 0; --l) p = p * score + static_cast<T>(c[l - 1]);
    s[0] = std::exp(score - most) - p * std::exp(static_cast<T>(unit) - most);
    rescale[0] = std::exp(before - most);
    m[0] = most;
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
