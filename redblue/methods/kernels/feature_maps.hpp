#pragma once
#include "redblue/hardware/isa.hpp"
#include "redblue/kernels/softmax.hpp"
#include "redblue/methods/maths/random_features.hpp"

/// Feature maps: weights phi(q).phi(k) in place of the softmax, so that keys and values become a state
/// Z = SUM_j phi(k_j) v_j^T, z = SUM_j phi(k_j).
namespace redblue::kernel {

/// phi(x) = elu(x) + 1, of a coordinate.
template <class T>
T elu_feature(T x) {
  return x > 0 ? x + 1 : std::exp(x);
}

/// Z <- Z + phi(K)^T V, z <- z + column sums of phi(K). z has no column where these sums are not wanted.
struct AddElu {
  static constexpr std::string_view name = "add_elu";
  static constexpr std::array access{Access::update, Access::update, Access::read, Access::read};
  static constexpr bool fits(Shape Z, Shape z, Shape K, Shape V) {
    return Z == Shape{K.cols, V.cols} && z.rows == K.cols && z.cols <= 1 && K.rows == V.rows;
  }
  static constexpr index_t macs(Shape, Shape z, Shape K, Shape V) { return K.words() * (V.cols + z.cols); }
  template <class T>
  void run(View<T> Z, View<T> z, View<const T> K, View<const T> V) const {
    const auto phi = [&](index_t t, index_t j) { return elu_feature(K(j, t)); };
    add_product(Z, V, phi);
    if (z.words() == 0) return;
    for (index_t t = 0; t < K.cols(); ++t) z[t] += sum_of<T>(K.rows(), [&](index_t j) { return phi(t, j); });
  }
  template <class T>
  static Implementation<T, AddElu> implementation(Isa isa);
};

/// num <- num + phi(Q) Z, den <- den + phi(Q) z, if they are wanted.
struct ApplyElu {
  static constexpr std::string_view name = "apply_elu";
  static constexpr std::array access{Access::update, Access::update, Access::read, Access::read, Access::read};
  static constexpr bool fits(Shape num, Shape den, Shape Q, Shape Z, Shape z) {
    return Z == Shape{Q.cols, num.cols} && z.rows == Q.cols && z.cols <= 1 && num.rows == Q.rows &&
           den == Shape{Q.rows, z.cols};
  }
  static constexpr index_t macs(Shape num, Shape, Shape Q, Shape, Shape z) { return Q.words() * (num.cols + z.cols); }
  template <class T>
  void run(View<T> num, View<T> den, View<const T> Q, View<const T> Z, View<const T> z) const {
    const auto phi = [&](index_t i, index_t t) { return elu_feature(Q(i, t)); };
    add_product(num, Z, phi);
    if (z.words() == 0) return;
    for (index_t i = 0; i < Q.rows(); ++i) den[i] += sum_of<T>(Q.cols(), [&](index_t t) { return phi(i, t) * z[t]; });
  }
  template <class T>
  static Implementation<T, ApplyElu> implementation(Isa isa);
};

/// P_ia <- omega_a.x_i, less |x_i|^2/2 for keys, with x_i = sqrt(scale) X_i: the logarithms of random features `first`
/// and on. (For queries what is taken off is the same for a whole row, and cancels.)
struct RandomFeatures {
  static constexpr std::string_view name = "random_features";
  static constexpr std::array access{Access::write, Access::read};
  static constexpr std::array<std::string_view, 5> parameter_names{"features", "seed", "first", "scale", "of_keys"};
  auto parameters() { return std::tie(features, seed, first_feature, scale, of_keys); }
  index_t features = 1;
  index_t seed = 0;
  index_t first_feature = 0;
  double scale = 1;
  bool of_keys = false;
  static constexpr bool fits(Shape P, Shape X) { return P.rows == X.rows; }
  constexpr bool fits_place(Shape P, Shape X) const {
    constexpr index_t kMost = index_t{1} << 28;  // words of a table
    return seed >= 0 && scale >= 0 && features >= 1 && features <= kMost / std::max<index_t>(1, X.cols) &&
           first_feature >= 0 && first_feature <= features - P.cols;
  }
  static constexpr index_t macs(Shape P, Shape X) { return P.words() * X.cols; }
  template <class T>
  void run(View<T> P, View<const T> X) const {
    const auto omega = random_features(features, X.cols(), seed);
    const T root = static_cast<T>(std::sqrt(scale)), half = static_cast<T>(scale / 2);
    for (index_t i = 0; i < X.rows(); ++i) {
      const T* x = &X(i, 0);
      const T less = of_keys ? half * dot(x, X.col_stride, x, X.col_stride, X.cols()) : T(0);
      for (index_t a = 0; a < P.cols(); ++a)
        P(i, a) = root * dot(x, X.col_stride, omega->template row<T>(first_feature + a), 1, X.cols()) - less;
    }
  }
  template <class T>
  static Implementation<T, RandomFeatures> implementation(Isa isa);
};

/// T <- -inf
struct MinusInfinity {
  static constexpr std::string_view name = "minus_infinity";
  static constexpr std::array access{Access::write};
  static constexpr bool fits(Shape) { return true; }
  static constexpr index_t macs(Shape) { return 0; }
  template <class T>
  void run(View<T> out) const {
    for (index_t i = 0; i < out.rows(); ++i)
      for (index_t j = 0; j < out.cols(); ++j) out(i, j) = kMinusInf<T>;
  }
};

/// c <- the largest of c and of P; a state that was formed with exp(. - c) is rescaled to it, z where there is one;
/// P <- exp(P - c).
struct RescaleState {
  static constexpr std::string_view name = "rescale_state";
  static constexpr std::array access{Access::update, Access::update, Access::update, Access::update};
  static constexpr bool fits(Shape, Shape Z, Shape z, Shape c) {
    return z.rows == Z.rows && z.cols <= 1 && c == Shape{1, 1};
  }
  static constexpr index_t macs(Shape, Shape, Shape, Shape) { return 0; }
  template <class T>
  void run(View<T> P, View<T> Z, View<T> z, View<T> c) const {
    const T old = c[0];
    for (index_t i = 0; i < P.rows(); ++i) raise_max<T>(c[0], P, i);
    if (const T alpha = exp_shifted(old, c[0]); alpha != T(1)) {
      Scale{static_cast<double>(alpha)}.run<T>(Z);
      Scale{static_cast<double>(alpha)}.run<T>(z);
    }
    for (index_t i = 0; i < P.rows(); ++i)
      for (index_t a = 0; a < P.cols(); ++a) P(i, a) = exp_shifted(P(i, a), c[0]);
  }
  template <class T>
  static Implementation<T, RescaleState> implementation(Isa isa);
};

/// m <- the largest of m and of P, row by row; rows of num and den rescaled to it; P <- exp(P - m).
struct RescaleRows {
  static constexpr std::string_view name = "rescale_rows";
  static constexpr std::array access{Access::update, Access::update, Access::update, Access::update};
  static constexpr bool fits(Shape P, Shape num, Shape den, Shape m) {
    return num.rows == P.rows && den == m && m == Shape{P.rows, 1};
  }
  static constexpr index_t macs(Shape, Shape, Shape, Shape) { return 0; }
  template <class T>
  void run(View<T> P, View<T> num, View<T> den, View<T> m) const {
    for (index_t i = 0; i < P.rows(); ++i) {
      if (const T alpha = raise_max<T>(m[i], P, i); alpha != T(1)) {
        for (index_t t = 0; t < num.cols(); ++t) num(i, t) *= alpha;
        den[i] *= alpha;
      }
      for (index_t a = 0; a < P.cols(); ++a) P(i, a) = exp_shifted(P(i, a), m[i]);
    }
  }
  template <class T>
  static Implementation<T, RescaleRows> implementation(Isa isa);
};

/// z <- z + column sums of P.
struct AddColumnSums {
  static constexpr std::string_view name = "add_column_sums";
  static constexpr std::array access{Access::update, Access::read};
  static constexpr bool fits(Shape z, Shape P) { return z == Shape{P.cols, 1}; }
  static constexpr index_t macs(Shape, Shape P) { return P.words(); }
  template <class T>
  void run(View<T> z, View<const T> P) const {
    for (index_t a = 0; a < P.cols(); ++a) z[a] += sum_of<T>(P.rows(), [&](index_t i) { return P(i, a); });
  }
};

}  // namespace redblue::kernel
