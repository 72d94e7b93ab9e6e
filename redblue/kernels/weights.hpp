#pragma once
#include "redblue/kernels/softmax.hpp"
#include "redblue/language/score.hpp"

/// The score function: from scores to weights, and back for gradients. Every derivative is a function of the weight, so
/// scores need not be kept. A masked score (-inf) has weight 0 under each of them, and passes no gradient on. Under the
/// identity every visible score has the derivative 1, also where it is 0: there the weight of a masked score is -0,
/// which no visible one has.
namespace redblue::kernel {

/// The largest possible s - lse: 0, up to rounding. For a large |lse| the rounding error has no bound.
template <class T>
T largest_exponent(T lse) {
  return abs(lse) > kFar<T> ? T(0) : std::numeric_limits<T>::infinity();
}

/// What the softmax takes from the scores of a row: its lse. A row whose lse is -inf has seen no key: shifted by +inf,
/// its weights are 0.
template <class T>
T shift_of(T lse) {
  return lse == kMinusInf<T> ? -lse : lse;
}

/// The weight of a masked score.
template <class T>
T masked_weight(Score score) {
  return score == Score::identity ? -T(0) : T(0);
}

/// f(s), for the softmax given the lse of its row.
template <class T>
T weight(Score score, T s, T lse) {
  if (s == kMinusInf<T>) return masked_weight<T>(score);
  switch (score) {
    case Score::softmax: {
      const T x = s - shift_of(lse);
      return exp(x > largest_exponent(lse) ? T(0) : x);
    }
    case Score::sigmoid:
      return T(1) / (T(1) + exp(-s));
    case Score::relu:
      return s > T(0) || s != s ? s : T(0);
    case Score::identity:
      return s + T(0);  // a score of -0 becomes +0
  }
  return s;
}

/// dS of one entry: f'(s) as a function of p = f(s), times dP (for the softmax dP - D).
template <class T>
T score_gradient(Score score, T p, T dP, T D) {
  switch (score) {
    case Score::softmax:
      return p == T(0) ? T(0) : p * (dP - D);
    case Score::sigmoid:
      return p * (T(1) - p) * dP;
    case Score::relu:
      return p > T(0) ? dP : T(0);
    case Score::identity:
      return p == T(0) && signbit(p) ? T(0) : dP;
  }
  return dP;
}

/// Word r of a row statistic, 0 where there is none.
template <class T>
T statistic(View<const T> x, index_t r) {
  return x.words() > 0 ? x[r] : T(0);
}

/// S <- f(scale S); for the softmax P = exp(scale S - lse)
struct Weights {
  static constexpr std::string_view name = "weights";
  static constexpr std::array access{Access::update, Access::read};
  static constexpr Axes axes{"ij i."};
  static constexpr bool fits(Shape S, Shape lse) { return lse.rows == S.rows && lse.cols <= 1; }
  static constexpr index_t macs(Shape, Shape) { return 0; }
  constexpr index_t exponentials(Shape S, Shape) const { return exponentiates(score) ? S.words() : 0; }
  static constexpr std::array<std::string_view, 2> parameter_names{"score", "scale"};
  auto parameters() { return std::tie(score, scale); }
  Score score = Score::softmax;
  double scale = 1;
  template <class T>
  void run(View<T> S, View<const T> lse) const {
    for (index_t i = 0; i < S.rows(); ++i)
      for (index_t j = 0; j < S.cols(); ++j)
        S(i, j) = weight(score, static_cast<T>(scale) * S(i, j), statistic<T>(lse, i));
  }
};

/// dP <- dS = scale f'(S) (dP - D), given the weights P = f(S), without D where it has no words; 0 where the mask hides
/// the key.
struct ScoreGradient {
  static constexpr std::string_view name = "score_gradient";
  static constexpr std::array access{Access::update, Access::read, Access::read};
  static constexpr Axes axes{"ij ij i."};
  static constexpr bool fits(Shape dP, Shape P, Shape D) {
    return dP == P && (D.words() == 0 || (D.rows == P.rows && D.cols == 1));
  }
  static constexpr index_t macs(Shape, Shape, Shape) { return 0; }
  static constexpr std::array<std::string_view, 8> parameter_names{"score",  "scale", "lo",  "hi",
                                                                   "prefix", "group", "row", "col"};
  auto parameters() { return std::tuple_cat(std::tie(score, scale), parameters_of_place(place)); }
  Score score = Score::softmax;
  double scale = 1;
  Place place{};
  template <class T>
  void run(View<T> dP, View<const T> P, View<const T> D) const {
    for (index_t i = 0; i < P.rows(); ++i)
      place.for_seen(i, P.cols(), [&](Range seen) {
        for (index_t j = seen.begin; j < seen.end; ++j)
          dP(i, j) = static_cast<T>(scale) * score_gradient(score, P(i, j), dP(i, j), statistic<T>(D, i));
      });
    hide(place, dP, T(0));
  }
};

}  // namespace redblue::kernel
