#pragma once
#include <array>
#include <cmath>
#include <limits>
#include <tuple>

#include "redblue/kernels/dense.hpp"
#include "redblue/masks/mask.hpp"

/// Kernels of the stable softmax: rows of scores, their running maximum m and sum l, and lse = m + log l.
/// A row without a visible key keeps m = -inf and l = 0 and ends as O = 0, lse = -inf. NaN propagates.
namespace redblue::kernel {

template <class T>
inline constexpr T kMinusInf = -std::numeric_limits<T>::infinity();

/// The rounding error of a number of this size is 1/16. For larger numbers exp(a - b) must be formed from the
/// difference a - b; for smaller ones 2^(fma(a, log2 e, -b log2 e)) suffices: its error is no larger than that of
/// rounding a.
template <class T>
inline constexpr T kFar = sizeof(T) == 4 ? T(0x1p20) : T(0x1p49);

/// The parameters of a kernel that knows the place of its tile: lo, hi, prefix, group, row and col.
inline auto parameters_of_place(Place& p) {
  return std::tie(p.mask.lo, p.mask.hi, p.mask.prefix, p.mask.group, p.row, p.col);
}

/// exp(x - shift), 0 where x is -inf: the guard against (-inf) - (-inf).
template <class T>
T exp_shifted(T x, T shift) {
  return x == kMinusInf<T> ? T(0) : exp(x - shift);
}

/// max(a, b), NaN if b is.
template <class T>
T max_or_nan(T a, T b) {
  return b > a || b != b ? b : a;
}

/// Takes the row max of s into m and returns alpha = exp(m_old - m_new), the factor for everything summed so far.
template <class T>
T raise_max(T& m, View<const T> S, index_t r) {
  const T old = m;
  for (index_t j = 0; j < S.cols(); ++j) m = max_or_nan(m, S(r, j));
  return exp_shifted(old, m);
}

/// Sets the words of pairs that the mask hides.
template <class T>
[[gnu::always_inline]] inline void hide(const Place& place, View<T> S, T value) {
  for (index_t i = 0; i < S.rows() && !place.mask.full(); ++i)
    place.for_hidden(i, S.cols(), [&](Range hidden) {
      for (index_t j = hidden.begin; j < hidden.end; ++j) S(i, j) = value;
    });
}

/// S <- scale Q K^T, -inf where the mask hides the key.
struct Scores {
  static constexpr std::string_view name = "scores";
  static constexpr std::array access{Access::write, Access::read, Access::read};
  static constexpr Axes axes{"ij i. j.", 'j'};
  static constexpr bool fits(Shape S, Shape Q, Shape K) {
    return S.rows == Q.rows && S.cols == K.rows && Q.cols == K.cols;
  }
  static constexpr index_t macs(Shape S, Shape Q, Shape /*K*/) { return S.words() * Q.cols; }
  static constexpr Costs costs{.scores_at = 0, .hides = true};
  static constexpr std::array<std::string_view, 7> parameter_names{"scale", "lo",  "hi", "prefix",
                                                                   "group", "row", "col"};
  auto parameters() { return std::tuple_cat(std::tie(scale), parameters_of_place(place)); }
  double scale = 1;
  Place place{};
  template <class T>
  void run(View<T> S, View<const T> Q, View<const T> K) const {
    for (index_t i = 0; i < S.rows(); ++i)
      place.for_seen(i, S.cols(), [&](Range seen) {
        for (index_t j = seen.begin; j < seen.end; ++j)
          S(i, j) = static_cast<T>(scale) * dot(&Q(i, 0), Q.col_stride, &K(j, 0), K.col_stride, Q.cols());
      });
    hide(place, S, kMinusInf<T>);
  }
};

/// S <- -inf where the mask hides the key.
struct Hide {
  static constexpr std::string_view name = "hide";
  static constexpr std::array access{Access::update};
  static constexpr Axes axes{"ij"};
  static constexpr bool fits(Shape) { return true; }
  static constexpr index_t macs(Shape) { return 0; }
  static constexpr std::array<std::string_view, 6> parameter_names{"lo", "hi", "prefix", "group", "row", "col"};
  auto parameters() { return parameters_of_place(place); }
  Place place{};
  template <class T>
  void run(View<T> S) const {
    hide(place, S, kMinusInf<T>);
  }
};

/// m <- -inf, l <- 0; does nothing if the score function has no statistics
struct StatisticsInit {
  static constexpr std::string_view name = "statistics_init";
  static constexpr std::array access{Access::write, Access::write};
  static constexpr Axes axes{"i. i."};
  static constexpr bool fits(Shape m, Shape l) { return m == l && m.cols <= 1; }
  static constexpr index_t macs(Shape, Shape) { return 0; }
  template <class T>
  void run(View<T> m, View<T> l) const {
    for (index_t r = 0; r < m.words(); ++r) {
      m[r] = kMinusInf<T>;
      l[r] = T(0);
    }
  }
};

/// O <- 0, m <- -inf, l <- 0
struct SoftmaxInit {
  static constexpr std::string_view name = "softmax_init";
  static constexpr std::array access{Access::write, Access::write, Access::write};
  static constexpr Axes axes{"i. i. i."};
  static constexpr bool fits(Shape O, Shape m, Shape l) { return O.rows == m.rows && m == l && m.cols <= 1; }
  static constexpr index_t macs(Shape, Shape, Shape) { return 0; }
  template <class T>
  void run(View<T> O, View<T> m, View<T> l) const {
    Zero{}.run<T>(O);
    StatisticsInit{}.run<T>(m, l);
  }
};

/// Updates m and l with the scores S, which stay as they are: l <- l exp(m_old - m) + sum exp(S - m)
struct StatisticsAdd {
  static constexpr std::string_view name = "statistics_add";
  static constexpr std::array access{Access::update, Access::update, Access::read};
  static constexpr Axes axes{"i. i. ij", 'j'};
  static constexpr bool fits(Shape m, Shape l, Shape S) { return m == l && m.rows == S.rows && m.cols == 1; }
  static constexpr index_t macs(Shape, Shape, Shape) { return 0; }
  static constexpr index_t exponentials(Shape, Shape, Shape S) { return S.words(); }
  template <class T>
  void run(View<T> m, View<T> l, View<const T> S) const {
    for (index_t r = 0; r < S.rows(); ++r) {
      l[r] *= raise_max(m[r], S, r);
      l[r] += sum_of<T>(S.cols(), [&](index_t j) { return exp_shifted(S(r, j), m[r]); });
    }
  }
};

/// One block of the online softmax: S <- exp(S - m), O and l rescaled to the new maximum, l += row sums of S.
struct OnlineSoftmax {
  static constexpr std::string_view name = "online_softmax";
  static constexpr std::array access{Access::update, Access::update, Access::update, Access::update};
  static constexpr Axes axes{"i. i. i. i."};
  static constexpr bool fits(Shape S, Shape O, Shape m, Shape l) {
    return S.rows == O.rows && m == l && m.rows == S.rows && m.cols == 1;
  }
  static constexpr index_t macs(Shape, Shape, Shape, Shape) { return 0; }
  static constexpr index_t exponentials(Shape S, Shape, Shape, Shape) { return S.words(); }
  template <class T>
  void run(View<T> S, View<T> O, View<T> m, View<T> l) const {
    for (index_t r = 0; r < S.rows(); ++r) {
      const T alpha = raise_max<T>(m[r], S, r);
      if (alpha != T(1)) {
        for (index_t t = 0; t < O.cols(); ++t) O(r, t) *= alpha;
        l[r] *= alpha;
      }
      l[r] += sum_of<T>(S.cols(), [&](index_t j) { return S(r, j) = exp_shifted(S(r, j), m[r]); });
    }
  }
};

/// OnlineSoftmax for a schedule that keeps O elsewhere and needs alpha <- exp(m_old - m) for it.
struct TileSoftmax {
  static constexpr std::string_view name = "tile_softmax";
  static constexpr std::array access{Access::update, Access::update, Access::update, Access::write};
  static constexpr Axes axes{"i. i. i. i."};
  static constexpr bool fits(Shape S, Shape m, Shape l, Shape alpha) {
    return m == l && l == alpha && m.rows == S.rows && m.cols == 1;
  }
  static constexpr index_t macs(Shape, Shape, Shape, Shape) { return 0; }
  static constexpr index_t exponentials(Shape S, Shape, Shape, Shape) { return S.words(); }
  template <class T>
  void run(View<T> S, View<T> m, View<T> l, View<T> alpha) const {
    for (index_t r = 0; r < S.rows(); ++r) {
      alpha[r] = raise_max<T>(m[r], S, r);
      l[r] *= alpha[r];
      l[r] += sum_of<T>(S.cols(), [&](index_t j) { return S(r, j) = exp_shifted(S(r, j), m[r]); });
    }
  }
};

/// m <- lse = m + log l
struct LogSum {
  static constexpr std::string_view name = "log_sum";
  static constexpr std::array access{Access::update, Access::read};
  static constexpr Axes axes{"i. i."};
  static constexpr bool fits(Shape m, Shape l) { return m == l && m.cols == 1; }
  static constexpr index_t macs(Shape, Shape) { return 0; }
  template <class T>
  void run(View<T> m, View<const T> l) const {
    for (index_t r = 0; r < m.rows(); ++r)
      if (l[r] != T(0)) m[r] += log(l[r]);
  }
};

/// O <- O / l row by row, 0 where l is 0 (no visible key)
struct DivideRows {
  static constexpr std::string_view name = "divide_rows";
  static constexpr std::array access{Access::update, Access::read};
  static constexpr Axes axes{"ij i."};
  static constexpr bool fits(Shape O, Shape l) { return O.rows == l.rows && l.cols == 1; }
  static constexpr index_t macs(Shape, Shape) { return 0; }
  template <class T>
  void run(View<T> O, View<const T> l) const {
    if (O.words() == 0) return;
    for (index_t r = 0; r < O.rows(); ++r) {
      const T sum = l[r];
      if (O.col_stride == 1 && sum != T(0))
        for (T *o = &O(r, 0), *end = o + O.cols(); o < end; ++o) *o /= sum;
      else
        for (index_t t = 0; t < O.cols(); ++t) O(r, t) = sum == T(0) ? T(0) : O(r, t) / sum;
    }
  }
};

/// O <- alpha O row by row
struct ScaleRows {
  static constexpr std::string_view name = "scale_rows";
  static constexpr std::array access{Access::update, Access::read};
  static constexpr Axes axes{"ij i."};
  static constexpr bool fits(Shape O, Shape alpha) { return O.rows == alpha.rows && alpha.cols == 1; }
  static constexpr index_t macs(Shape, Shape) { return 0; }
  template <class T>
  void run(View<T> O, View<const T> alpha) const {
    for (index_t r = 0; r < O.rows(); ++r)
      for (index_t t = 0; t < O.cols(); ++t) O(r, t) *= alpha[r];
  }
};

}  // namespace redblue::kernel
