#pragma once
#include <utility>

#include "redblue/kernels/backward.hpp"
#include "redblue/methods/kernels/row_polynomials.hpp"
#include "redblue/methods/maths/method.hpp"
#include "redblue/methods/maths/random_features.hpp"

/// Few keys in place of many (redblue::Coreset): which of a block are chosen, and how much each of them stands for each
/// key of the block. Both come from the normalised kernel H(x, x') = exp(-kappa |x - x'|^2 / 2), whose diagonal is 1:
/// exp(kappa x.x') is that with rows and columns times exp(kappa |x|^2 / 2), which would overflow.
///
/// K, the chosen keys, and `rest` are the keys of a block, n in all; row p changes places with that of pivot p. G
/// (r x n) has a row for each pivot, and lies in two parts: GL its leading columns, GR the others.
namespace redblue::kernel {

namespace detail {

template <class T>
T square_distance(const T* x, index_t x_stride, const T* y, index_t y_stride, index_t n) {
  constexpr index_t kLanes = 8;
  std::array<T, kLanes> sum{};
  const auto square = [&](index_t t) {
    const T gap = x[t * x_stride] - y[t * y_stride];
    return gap * gap;
  };
  index_t t = 0;
  for (; t + kLanes <= n; t += kLanes)
    for (index_t lane = 0; lane < kLanes; ++lane) sum[static_cast<std::size_t>(lane)] += square(t + lane);
  for (; t < n; ++t) sum[0] += square(t);
  return ((sum[0] + sum[4]) + (sum[2] + sum[6])) + ((sum[1] + sum[5]) + (sum[3] + sum[7]));
}

/// The keys of a block, and G, each of two parts.
template <class T, class Key>
struct PivotBlock {
  View<T> GL, GR;
  View<Key> K, rest;
  View<const T> mean;
  double kappa = 0;

  index_t keys() const { return K.rows() + rest.rows(); }
  index_t pivots() const { return K.rows(); }
  Key* key(index_t i) const { return i < K.rows() ? &K(i, 0) : &rest(i - K.rows(), 0); }
  index_t stride(index_t i) const { return i < K.rows() ? K.col_stride : rest.col_stride; }
  T& G(index_t p, index_t i) const { return i < GL.cols() ? GL(p, i) : GR(p, i - GL.cols()); }
  /// f(part of G, column there) for the columns from `first` on.
  template <class F>
  void for_columns(index_t first, const F& f) const {
    for (index_t i = first; i < GL.cols(); ++i) f(GL, i);
    for (index_t i = std::max(first - GL.cols(), index_t{0}); i < GR.cols(); ++i) f(GR, i);
  }
  void swap_columns(index_t i, index_t j, index_t rows) const {
    for (index_t p = 0; p < rows && i != j; ++p) std::swap(G(p, i), G(p, j));
  }
  T H(index_t i, index_t j) const {
    const T square = square_distance<T>(key(i), stride(i), key(j), stride(j), K.cols());
    return static_cast<T>(std::exp(-kappa / 2 * static_cast<double>(square)));
  }
  /// |k_i - mean|^2
  double square_length(index_t i) const {
    return static_cast<double>(square_distance<T>(key(i), stride(i), &mean(0, 0), mean.col_stride, K.cols()));
  }
};

/// |scale|, or |scale| max |q| / max |k| where `lengths` has these two.
template <class T>
double coreset_kappa(double scale, View<const T> lengths) {
  if (lengths.words() == 0) return std::abs(scale);
  const double longest_q = static_cast<double>(lengths[0]), longest_k = static_cast<double>(lengths[1]);
  return longest_k > 0 ? std::abs(scale) * longest_q / longest_k : 0;
}

constexpr bool fits_coreset(Shape GL, Shape GR, Shape piv, Shape K, Shape rest, Shape mean, Shape lengths) {
  return GL.rows == K.rows && GR.rows == K.rows && GL.cols + GR.cols == K.rows + rest.rows && K.cols == rest.cols &&
         piv == Shape{K.rows, 1} && mean == Shape{1, K.cols} && (lengths.words() == 0 || lengths == Shape{2, 1});
}

}  // namespace detail

/// Cholesky with pivots drawn at random: rows of G with G^T G near the matrix of H. A key is drawn with a probability
/// that exp(kappa |k - mean|^2) times its residual is proportional to, which `residual` has; none is where all are
/// known (Coreset::kKnown), and what is left of G is 0. piv has which row came to each place, `longest` the largest
/// |k - mean|.
struct PivotedCholesky {
  static constexpr std::string_view name = "pivoted_cholesky";
  static constexpr std::array access{Access::write,  Access::write,  Access::write, Access::write, Access::write,
                                     Access::update, Access::update, Access::read,  Access::read};
  static constexpr std::array<std::string_view, 3> parameter_names{"scale", "block", "seed"};
  auto parameters() { return std::tie(scale, block, seed); }
  double scale = 1;
  index_t block = 0;
  index_t seed = 0;
  static constexpr bool fits(Shape GL, Shape GR, Shape residual, Shape piv, Shape longest, Shape K, Shape rest,
                             Shape mean, Shape lengths) {
    return detail::fits_coreset(GL, GR, piv, K, rest, mean, lengths) && longest == Shape{1, 1} &&
           residual == Shape{K.rows + rest.rows, 1};
  }
  static constexpr index_t macs(Shape GL, Shape GR, Shape, Shape, Shape, Shape K, Shape, Shape, Shape) {
    return (GL.cols + GR.cols) * (K.words() + K.rows * (K.rows - 1) / 2);
  }
  template <class T>
  void run(View<T> GL, View<T> GR, View<T> residual, View<T> piv, View<T> longest, View<T> K, View<T> rest,
           View<const T> mean, View<const T> lengths) const {
    detail::PivotBlock<T, T> b{GL, GR, K, rest, mean};
    longest[0] = 0;
    for (index_t i = 0; i < b.keys(); ++i) {
      longest[0] = max_or_nan(longest[0], static_cast<T>(std::sqrt(b.square_length(i))));
      residual[i] = 1;
    }
    b.kappa = detail::coreset_kappa<T>(scale, lengths);
    for (index_t p = 0; p < b.pivots(); ++p) {
      const index_t s = draw<T>(b, residual, p, static_cast<double>(longest[0]));
      piv[p] = static_cast<T>(s < 0 ? p : s);
      if (s < 0) {
        b.for_columns(0, [&](const View<T>& G, index_t i) { G(p, i) = 0; });
        continue;
      }
      for (index_t t = 0; t < K.cols() && s != p; ++t) std::swap(b.key(p)[t * b.stride(p)], b.key(s)[t * b.stride(s)]);
      std::swap(residual[p], residual[s]);
      b.swap_columns(p, s, p);
      add_row<T>(b, residual, p);
    }
  }

 private:
  /// The pivot among the rows from `first` on; -1: there is none left to draw.
  template <class T>
  index_t draw(const detail::PivotBlock<T, T>& b, View<T> residual, index_t first, double longest) const {
    const auto share = [&](index_t i) {
      if (!(static_cast<double>(residual[i]) > Coreset::kKnown)) return 0.0;
      return std::exp(b.kappa * (b.square_length(i) - longest * longest)) * static_cast<double>(residual[i]);
    };
    double total = 0;
    for (index_t i = first; i < b.keys(); ++i) total += share(i);
    double left = total * pivot_draw(seed, block, first);
    index_t last = -1;
    for (index_t i = first; i < b.keys(); ++i) {
      if (!(static_cast<double>(residual[i]) > Coreset::kKnown)) continue;
      last = i;
      left -= share(i);
      if (left <= 0) break;
    }
    return last;
  }
  /// Row p of G, and what it leaves of the residuals.
  template <class T>
  static void add_row(const detail::PivotBlock<T, T>& b, View<T> residual, index_t p) {
    const T root = std::sqrt(residual[p]);
    for (index_t i = 0; i < b.keys(); ++i) b.G(p, i) = i > p ? b.H(p, i) : T(0);
    for (index_t a = 0; a < p; ++a) {
      const T g = b.G(a, p);
      b.for_columns(p + 1, [&](const View<T>& G, index_t i) { G(p, i) -= g * G(a, i); });
    }
    for (index_t i = p + 1; i < b.keys(); ++i) {
      T& g = b.G(p, i);
      g /= root;
      residual[i] -= g * g;
    }
    b.G(p, p) = root;
    residual[p] = 0;
  }
};

/// G <- the weights W (r x n) by which the chosen keys stand for all keys of the block, whose kernel exp(kappa x.x')
/// they interpolate: the triangular system is solved in place, and columns are put where their keys were before rows
/// changed places. A key that was not drawn has weights 0, and the first of K takes its place.
struct InterpolationWeights {
  static constexpr std::string_view name = "interpolation_weights";
  static constexpr std::array access{Access::update, Access::update, Access::read, Access::update,
                                     Access::read,   Access::read,   Access::read};
  static constexpr std::array<std::string_view, 1> parameter_names{"scale"};
  auto parameters() { return std::tie(scale); }
  double scale = 1;
  static constexpr bool fits(Shape GL, Shape GR, Shape piv, Shape K, Shape rest, Shape mean, Shape lengths) {
    return detail::fits_coreset(GL, GR, piv, K, rest, mean, lengths);
  }
  static constexpr index_t macs(Shape, Shape, Shape, Shape K, Shape rest, Shape, Shape) {
    return rest.rows * (K.rows * (K.rows - 1) / 2);
  }
  template <class T>
  void run(View<T> GL, View<T> GR, View<const T> piv, View<T> K, View<const T> rest, View<const T> mean,
           View<const T> lengths) const {
    const detail::PivotBlock<T, const T> b{GL, GR, K, rest, mean, detail::coreset_kappa<T>(scale, lengths)};
    index_t drawn = 0;
    while (drawn < b.pivots() && b.G(drawn, drawn) != T(0)) ++drawn;
    for (index_t p = drawn - 1; p >= 0; --p) {
      for (index_t a = p + 1; a < drawn; ++a) {
        const T g = b.G(p, a);
        b.for_columns(drawn, [&](const View<T>& W, index_t i) { W(p, i) -= g * W(a, i); });
      }
      const T root = b.G(p, p);
      b.for_columns(drawn, [&](const View<T>& W, index_t i) { W(p, i) /= root; });
    }
    for (index_t p = 0; p < drawn; ++p) {
      for (index_t i = 0; i < drawn; ++i) b.G(p, i) = p == i ? T(1) : T(0);
      for (index_t i = drawn; i < b.keys(); ++i) {
        T& w = b.G(p, i);
        if (w != T(0)) w *= static_cast<T>(std::exp(b.kappa / 2 * (b.square_length(i) - b.square_length(p))));
      }
    }
    for (index_t p = drawn; p < b.pivots(); ++p)
      for (index_t t = 0; t < K.cols(); ++t) K(p, t) = K(0, t);
    for (index_t p = b.pivots() - 1; p >= 0; --p) {
      const double s = static_cast<double>(piv[p]);
      if (s > static_cast<double>(p) && s < static_cast<double>(b.keys()))
        b.swap_columns(p, static_cast<index_t>(s), b.pivots());
    }
  }
};

/// Values <- Values + W V; row 0 of the bounds <- the largest of -V, row 1 of V, column by column.
struct AddValues {
  static constexpr std::string_view name = "add_values";
  static constexpr std::array access{Access::update, Access::update, Access::read, Access::read};
  static constexpr bool fits(Shape values, Shape bounds, Shape W, Shape V) {
    return values == Shape{W.rows, V.cols} && W.cols == V.rows && bounds == Shape{2, V.cols};
  }
  static constexpr index_t macs(Shape, Shape, Shape W, Shape V) { return W.words() * V.cols; }
  template <class T>
  void run(View<T> values, View<T> bounds, View<const T> W, View<const T> V) const {
    add_product(values, V, W);
    for (index_t j = 0; j < V.rows(); ++j)
      for (index_t t = 0; t < V.cols(); ++t) {
        bounds(0, t) = max_or_nan(bounds(0, t), -V(j, t));
        bounds(1, t) = max_or_nan(bounds(1, t), V(j, t));
      }
  }
};

/// O <- O held within these bounds, column by column (AddValues). A NaN stays.
struct ClipColumns {
  static constexpr std::string_view name = "clip_columns";
  static constexpr std::array access{Access::update, Access::read};
  static constexpr bool fits(Shape O, Shape bounds) { return bounds == Shape{2, O.cols}; }
  static constexpr index_t macs(Shape, Shape) { return 0; }
  template <class T>
  void run(View<T> O, View<const T> bounds) const {
    for (index_t i = 0; i < O.rows(); ++i)
      for (index_t t = 0; t < O.cols(); ++t) {
        if (O(i, t) < -bounds(0, t)) O(i, t) = -bounds(0, t);
        if (O(i, t) > bounds(1, t)) O(i, t) = bounds(1, t);
      }
  }
};

/// O <- P V held within these bounds, word by word in slow memory.
struct ClippedProductOver {
  static constexpr std::string_view name = "clipped_product_over";
  static constexpr std::array access{Access::update, Access::read, Access::read, Access::read};
  static constexpr std::array<std::string_view, 1> parameter_names{"first"};
  auto parameters() { return std::tie(first); }
  bool first = true;
  static constexpr bool fits(Shape O, Shape P, Shape V, Shape bounds) {
    return O == Shape{P.rows, V.cols} && P.cols == V.rows && ClipColumns::fits(O, bounds);
  }
  static constexpr index_t macs(Shape, Shape P, Shape V, Shape) { return P.words() * V.cols; }
  template <class T>
  void run(View<T> O, View<const T> P, View<const T> V, View<const T> bounds) const {
    if (first) Zero{}.run<T>(O);
    add_product(O, V, P);
    ClipColumns{}.run<T>(O, bounds);
  }
};

}  // namespace redblue::kernel
