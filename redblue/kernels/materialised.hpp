#pragma once
#include "redblue/kernels/modifiers.hpp"
#include "redblue/kernels/weights.hpp"

/// Kernels of schedules that keep scores or partial outputs in slow memory.
namespace redblue::kernel {

/// O <- O + f(S) V, for the softmax exp(S - lse) V without the weights that are dropped, and z <- z + the row sums of
/// all these weights: they are formed as the scores pass. z and lse have no columns where the score function has no
/// statistics.
struct WeightsAccumulate {
  static constexpr std::string_view name = "weights_accumulate";
  static constexpr std::array access{Access::update, Access::update, Access::read, Access::read, Access::read};
  static constexpr Axes axes{"i. i. ij i. j.", 'j'};
  static constexpr bool fits(Shape O, Shape z, Shape S, Shape lse, Shape V) {
    return O.rows == S.rows && S.cols == V.rows && V.cols == O.cols && lse.rows == O.rows && lse.cols <= 1 && z == lse;
  }
  static constexpr index_t macs(Shape O, Shape, Shape S, Shape, Shape) { return S.words() * O.cols; }
  constexpr index_t exponentials(Shape, Shape, Shape S, Shape, Shape) const {
    return exponentiates(score) ? S.words() : 0;
  }
  static constexpr std::array<std::string_view, 8> parameter_names{"score", "share",     "seed", "head",
                                                                   "group", "first_row", "row",  "col"};
  auto parameters() { return std::tuple_cat(std::tie(score), drop.parameters()); }
  Score score = Score::softmax;
  Drop drop{};
  template <class T>
  void run(View<T> O, View<T> z, View<const T> S, View<const T> lse, View<const T> V) const {
    add_product(O, V, [&](index_t i, index_t j) {
      const T p = weight(score, S(i, j), statistic(lse, i));
      if (z.words() > 0) z[i] += p;
      return kept(i, j, p);
    });
  }
  /// The weight p of this entry of S, as the product takes it.
  template <class T>
  T kept(index_t i, index_t j, T p) const {
    return drop.share > 0 ? drop.kept(i, j, p, static_cast<T>(drop.factor())) : p;
  }
};

/// z <- w and O <- w O, in the weight w = exp(given - lse) of a state whose lse is `given`: it is as one key, and O its
/// value. Where it is of no keys, O may hold anything, and becomes 0.
struct BeginWithGiven {
  static constexpr std::string_view name = "begin_with_given";
  static constexpr std::array access{Access::update, Access::write, Access::read, Access::read};
  static constexpr Axes axes{"i. i. i. i."};
  static constexpr bool fits(Shape O, Shape z, Shape lse, Shape given) {
    return z == lse && lse == given && lse.rows == O.rows && lse.cols == 1;
  }
  static constexpr index_t macs(Shape, Shape, Shape, Shape) { return 0; }
  static constexpr index_t exponentials(Shape, Shape z, Shape, Shape) { return z.words(); }
  template <class T>
  void run(View<T> O, View<T> z, View<const T> lse, View<const T> given) const {
    for (index_t r = 0; r < z.rows(); ++r) {
      const T g = given[r], w = weight(Score::softmax, g, lse[r]);
      z[r] = w;
      for (index_t t = 0; t < O.cols(); ++t) O(r, t) = g == kMinusInf<T> ? T(0) : w * O(r, t);
    }
  }
};

/// P <- exp(S - m) / l over S
struct NormaliseRows {
  static constexpr std::string_view name = "normalise_rows";
  static constexpr std::array access{Access::update, Access::read, Access::read};
  static constexpr Axes axes{"ij i. i."};
  static constexpr bool fits(Shape S, Shape m, Shape l) { return S.rows == m.rows && m == l && m.cols == 1; }
  static constexpr index_t macs(Shape, Shape, Shape) { return 0; }
  static constexpr index_t exponentials(Shape S, Shape, Shape) { return S.words(); }
  static constexpr std::array<std::string_view, 1> parameter_names{"first"};
  auto parameters() { return std::tie(first); }
  bool first = false;
  template <class T>
  void run(View<T> S, View<const T> m, View<const T> l) const {
    for (index_t i = 0; i < S.rows(); ++i)
      for (index_t j = 0; j < S.cols(); ++j) S(i, j) = l[i] == T(0) ? T(0) : exp_shifted(S(i, j), m[i]) / l[i];
  }
};

/// NormaliseRows, then dropout of the weights.
struct NormaliseAndDrop {
  static constexpr std::string_view name = "normalise_and_drop";
  static constexpr std::array access = NormaliseRows::access;
  static constexpr Axes axes{"ij i. i."};
  static constexpr bool fits(Shape S, Shape m, Shape l) { return NormaliseRows::fits(S, m, l); }
  static constexpr index_t macs(Shape, Shape, Shape) { return 0; }
  static constexpr index_t exponentials(Shape S, Shape, Shape) { return S.words(); }
  static constexpr std::array<std::string_view, 8> parameter_names{"first", "share",     "seed", "head",
                                                                   "group", "first_row", "row",  "col"};
  auto parameters() { return std::tuple_cat(std::tie(first), drop.parameters()); }
  bool first = false;
  Drop drop{};
  template <class T>
  void run(View<T> S, View<const T> m, View<const T> l) const {
    NormaliseRows{}.run<T>(S, m, l);
    drop.run<T>(S);
  }
};

/// S <- softmax of its rows; ln <- their lse: for one block of keys alone
struct BlockSoftmax {
  static constexpr std::string_view name = "block_softmax";
  static constexpr std::array access{Access::update, Access::write};
  static constexpr Axes axes{"i. i."};
  static constexpr bool fits(Shape S, Shape ln) { return S.rows == ln.rows && ln.cols == 1; }
  static constexpr index_t macs(Shape, Shape) { return 0; }
  static constexpr index_t exponentials(Shape S, Shape) { return S.words(); }
  template <class T>
  void run(View<T> S, View<T> ln) const {
    for (index_t i = 0; i < S.rows(); ++i) {
      T mx = kMinusInf<T>;
      raise_max<T>(mx, S, i);
      const T sum = sum_of<T>(S.cols(), [&](index_t j) { return S(i, j) = exp_shifted(S(i, j), mx); });
      for (index_t j = 0; j < S.cols() && sum != T(0); ++j) S(i, j) /= sum;
      ln[i] = mx == kMinusInf<T> ? mx : mx + log(sum);
    }
  }
};

/// The share of a set of no keys in MergeRows, where O of such a set may hold anything. Its sign tells it from the 0 of
/// a share that is too small for a number: NaN of such a set comes through.
template <class T>
inline constexpr T kNoShare = T(-0.0);

/// Two sets of keys meet: alpha holds the lse of one, ln of the other. ln <- logaddexp of both; alpha, beta <- their
/// shares exp(lse - ln). The shares are formed from each other, not from the rounded ln: they sum to 1 however large
/// lse is.
struct MergeLse {
  static constexpr std::string_view name = "merge_lse";
  static constexpr std::array access{Access::update, Access::update, Access::write};
  static constexpr Axes axes{"i. i. i."};
  static constexpr bool fits(Shape ln, Shape alpha, Shape beta) { return ln == alpha && alpha == beta && ln.cols == 1; }
  static constexpr index_t macs(Shape, Shape, Shape) { return 0; }
  static constexpr Costs costs{.lse = LseUse::merges};
  template <class T>
  void run(View<T> ln, View<T> alpha, View<T> beta) const {
    shares<T>(ln, alpha, beta, T(0));
  }
  /// `none` is the share of a set of no keys.
  template <class T>
  static void shares(View<T> ln, View<T> alpha, View<T> beta, T none) {
    for (index_t i = 0; i < ln.rows(); ++i) {
      const T one = alpha[i], other = ln[i], top = max_or_nan(one, other);
      const T a = exp_shifted(one, top), b = exp_shifted(other, top);
      ln[i] = top == kMinusInf<T> ? top : top + log(a + b);
      alpha[i] = one == kMinusInf<T> ? none : a / (a + b);
      beta[i] = other == kMinusInf<T> ? none : b / (a + b);
    }
  }
};

/// MergeLse of states that are given: a set of no keys has the share that MergeRows knows.
struct MergeGivenLse : MergeLse {
  static constexpr std::string_view name = "merge_given_lse";
  template <class T>
  void run(View<T> ln, View<T> alpha, View<T> beta) const {
    shares<T>(ln, alpha, beta, kNoShare<T>);
  }
};

/// A set of keys joins those before it: share holds its lse, m and l the statistics of those. A step of the online
/// softmax with one score: share <- exp(lse - m), before <- exp(m_old - m), l <- before l + share. The lse of many sets
/// is rounded at the end only.
struct JoinLse {
  static constexpr std::string_view name = "join_lse";
  static constexpr std::array access{Access::update, Access::update, Access::update, Access::write};
  static constexpr Axes axes{"i. i. i. i."};
  static constexpr bool fits(Shape share, Shape m, Shape l, Shape before) {
    return share == m && m == l && l == before && m.cols == 1;
  }
  static constexpr index_t macs(Shape, Shape, Shape, Shape) { return 0; }
  static constexpr Costs costs{.lse = LseUse::weights};
  template <class T>
  void run(View<T> share, View<T> m, View<T> l, View<T> before) const {
    TileSoftmax{}.run<T>(share, m, l, before);
  }
};

/// O <- alpha O + beta B row by row, without the rows of a set of no keys (kNoShare)
struct MergeRows {
  static constexpr std::string_view name = "merge_rows";
  static constexpr std::array access{Access::update, Access::read, Access::read, Access::read};
  static constexpr Axes axes{"ij i. i. ij"};
  static constexpr bool fits(Shape O, Shape alpha, Shape beta, Shape B) {
    return O == B && alpha == beta && alpha.rows == O.rows && alpha.cols == 1;
  }
  static constexpr index_t macs(Shape, Shape, Shape, Shape) { return 0; }
  template <class T>
  void run(View<T> O, View<const T> alpha, View<const T> beta, View<const T> B) const {
    const auto part = [](T share, T x) { return share == T(0) && signbit(share) ? T(0) : share * x; };
    for (index_t i = 0; i < O.rows(); ++i)
      for (index_t t = 0; t < O.cols(); ++t) O(i, t) = part(alpha[i], O(i, t)) + part(beta[i], B(i, t));
  }
};

/// O <- alpha O + S V; the first time O <- S V
struct MergeOutput {
  static constexpr std::string_view name = "merge_output";
  static constexpr std::array access{Access::update, Access::read, Access::read, Access::read};
  static constexpr Axes axes{"ik i. i. .k"};
  static constexpr bool fits(Shape O, Shape alpha, Shape S, Shape V) {
    return O.rows == alpha.rows && alpha.cols == 1 && O.rows == S.rows && S.cols == V.rows && V.cols == O.cols;
  }
  static constexpr index_t macs(Shape O, Shape, Shape S, Shape) { return S.words() * O.cols; }
  static constexpr std::array<std::string_view, 1> parameter_names{"first"};
  auto parameters() { return std::tie(first); }
  bool first = false;
  template <class T>
  void run(View<T> O, View<const T> alpha, View<const T> S, View<const T> V) const {
    if (first)
      Zero{}.run<T>(O);
    else
      ScaleRows{}.run<T>(O, alpha);
    Gemm{}.run<T>(O, S, V);
  }
};

/// T <- exp(scale T), unshifted as Saha & Ye print it: overflows where a score exceeds log of the largest number
struct UnshiftedExp {
  static constexpr std::string_view name = "unshifted_exp";
  static constexpr std::array access{Access::update};
  static constexpr Axes axes{"ij"};
  static constexpr bool fits(Shape) { return true; }
  static constexpr index_t macs(Shape) { return 0; }
  static constexpr index_t exponentials(Shape T) { return T.words(); }
  static constexpr std::array<std::string_view, 1> parameter_names{"scale"};
  auto parameters() { return std::tie(scale); }
  double scale = 1;
  template <class T>
  void run(View<T> t) const {
    for (index_t i = 0; i < t.rows(); ++i)
      for (index_t j = 0; j < t.cols(); ++j) t(i, j) = exp(static_cast<T>(scale) * t(i, j));
  }
};

/// l <- l + row sums of A
struct AddRowSums {
  static constexpr std::string_view name = "add_row_sums";
  static constexpr std::array access{Access::update, Access::read};
  static constexpr Axes axes{"i. ij", 'j'};
  static constexpr bool fits(Shape l, Shape A) { return l.rows == A.rows && l.cols == 1; }
  static constexpr index_t macs(Shape, Shape) { return 0; }
  template <class T>
  void run(View<T> l, View<const T> A) const {
    for (index_t i = 0; i < A.rows(); ++i) l[i] += sum_of<T>(A.cols(), [&](index_t j) { return A(i, j); });
  }
};

/// l <- log l
struct Log {
  static constexpr std::string_view name = "log";
  static constexpr std::array access{Access::update};
  static constexpr Axes axes{"i."};
  static constexpr bool fits(Shape l) { return l.cols == 1; }
  static constexpr index_t macs(Shape) { return 0; }
  template <class T>
  void run(View<T> l) const {
    for (index_t r = 0; r < l.rows(); ++r) l[r] = log(l[r]);
  }
};

/// O <- O + exp(-lse) A V: divides by the row sum inside the sum, as Saha & Ye do
struct DivideAccumulate {
  static constexpr std::string_view name = "divide_accumulate";
  static constexpr std::array access{Access::update, Access::read, Access::read, Access::read};
  static constexpr Axes axes{"ik ij i. jk", 'j'};
  static constexpr bool fits(Shape O, Shape A, Shape lse, Shape V) {
    return O.rows == A.rows && A.cols == V.rows && V.cols == O.cols && lse.rows == O.rows && lse.cols == 1;
  }
  static constexpr index_t macs(Shape O, Shape A, Shape, Shape) { return A.words() * O.cols; }
  static constexpr Costs costs{.lse = LseUse::weights};
  static constexpr index_t exponentials(Shape, Shape A, Shape, Shape) { return A.words(); }
  template <class T>
  void run(View<T> O, View<const T> A, View<const T> lse, View<const T> V) const {
    add_product(O, V, [&](index_t i, index_t j) { return A(i, j) * exp(-lse[i]); });
  }
};

}  // namespace redblue::kernel
