#pragma once
#include "redblue/kernels/softmax.hpp"
#include "redblue/masks/philox.hpp"

/// Kernels of what a problem does to its scores and weights: softcap, bias, ALiBi, sinks, dropout
/// (masks/modifiers.hpp). What a problem does not have is an argument without words.
namespace redblue::kernel {

/// f(rows, columns) as a bias may be: none, one row for all, or the shape of the scores.
constexpr bool fits_as_bias(Shape S, Shape bias) {
  return bias.words() == 0 || (bias.cols == S.cols && (bias.rows == S.rows || bias.rows == 1));
}
/// Entry (i, j) of a bias.
template <class T>
T bias_of(View<const T> bias, index_t i, index_t j) {
  return bias.words() == 0 ? T(0) : bias(bias.rows() == 1 ? 0 : i, j);
}

/// softcap tanh(s / softcap), and its derivative. A softcap of 0 is none.
template <class T>
struct Softcapped {
  T score, derivative;
};
template <class T>
Softcapped<T> softcapped(T s, T softcap) {
  if (!(softcap > 0)) return {s, T(1)};
  const T t = tanh(s / softcap);
  return {softcap * t, T(1) - t * t};
}

/// S <- softcap tanh(S / softcap) + bias - slope |distance|, and F <- the derivative of the softcap, where F has words.
/// Scores that the mask hides stay -inf.
struct ModifyScores {
  static constexpr std::string_view name = "modify_scores";
  static constexpr std::array access{Access::update, Access::write, Access::read, Access::read};
  static constexpr Axes axes{"ij ij ij .."};
  static constexpr bool fits(Shape S, Shape F, Shape bias, Shape slopes) {
    return (F == S || F.words() == 0) && fits_as_bias(S, bias) && slopes.cols <= 1;
  }
  static constexpr index_t macs(Shape, Shape, Shape, Shape) { return 0; }
  static constexpr std::array<std::string_view, 8> parameter_names{"softcap", "slope_offset", "lo",  "hi",
                                                                   "prefix",  "group",        "row", "col"};
  auto parameters() { return std::tuple_cat(std::tie(softcap, slope_offset), parameters_of_place(place)); }
  double softcap = 0;        ///< 0: none
  index_t slope_offset = 0;  ///< the query at position p, counted as rows are, is at distance |p + slope_offset - j|
  Place place{};
  /// Is there nothing to do?
  constexpr bool idle(Shape F, Shape bias, Shape slopes) const {
    return softcap == 0 && F.words() == 0 && bias.words() == 0 && slopes.words() == 0;
  }
  template <class T>
  void run(View<T> S, View<T> F, View<const T> bias, View<const T> slopes) const {
    const T cap = static_cast<T>(softcap);
    for (index_t i = 0; i < S.rows(); ++i) {
      const T slope = slopes.words() > 0 ? slopes[(place.row + i) % slopes.words()] : T(0);
      place.for_seen(i, S.cols(), [&](Range seen) {
        for (index_t j = seen.begin; j < seen.end; ++j) {
          const auto [s, derivative] = softcapped(S(i, j), cap);
          S(i, j) = s + bias_of<T>(bias, i, j) - slope * distance<T>(i, j);
          if (F.words() > 0) F(i, j) = derivative;
        }
      });
    }
    if (F.words() > 0) hide(place, F, T(1));
  }
  template <class T>
  T distance(index_t i, index_t j) const {
    return static_cast<T>(std::abs((place.row + i) / place.mask.group + slope_offset - place.col - j));
  }
};

/// dS <- dS times the derivative of the softcap, for scores that nobody keeps: the weights P = exp(S - lse) tell them,
/// softcap tanh(s / softcap) = log P + lse - bias + slope |distance|, to within eps (|lse| + |bias|).
struct SoftcapGradient {
  static constexpr std::string_view name = "softcap_gradient";
  static constexpr std::array access{Access::update, Access::read, Access::read, Access::read, Access::read};
  static constexpr Axes axes{"ij ij i. ij .."};
  static constexpr bool fits(Shape dS, Shape P, Shape lse, Shape bias, Shape slopes) {
    return dS == P && lse.rows == P.rows && lse.cols == 1 && fits_as_bias(dS, bias) && slopes.cols <= 1;
  }
  static constexpr index_t macs(Shape, Shape, Shape, Shape, Shape) { return 0; }
  static constexpr std::array parameter_names = ModifyScores::parameter_names;
  auto parameters() { return modify.parameters(); }
  ModifyScores modify{};
  template <class T>
  void run(View<T> dS, View<const T> P, View<const T> lse, View<const T> bias, View<const T> slopes) const {
    const Place& place = modify.place;
    const T cap = static_cast<T>(modify.softcap);
    for (index_t i = 0; i < dS.rows(); ++i) {
      const T slope = slopes.words() > 0 ? slopes[(place.row + i) % slopes.words()] : T(0);
      place.for_seen(i, dS.cols(), [&](Range seen) {
        for (index_t j = seen.begin; j < seen.end; ++j) {
          if (P(i, j) == T(0)) continue;  // dS is 0
          const T score = log(P(i, j)) + (lse[i] - bias_of<T>(bias, i, j)) + slope * modify.distance<T>(i, j);
          const T t = score / cap;
          dS(i, j) *= t * t > T(1) ? T(0) : T(1) - t * t;
        }
      });
    }
  }
};

/// X <- X / (1 - share) where a weight is kept, 0 where it is dropped.
struct Drop {
  static constexpr std::string_view name = "drop";
  static constexpr std::array access{Access::update};
  static constexpr Axes axes{"ij"};
  static constexpr bool fits(Shape) { return true; }
  static constexpr index_t macs(Shape) { return 0; }
  static constexpr std::array<std::string_view, 7> parameter_names{"share",     "seed", "head", "group",
                                                                   "first_row", "row",  "col"};
  auto parameters() { return std::tie(share, seed, head, group, first_row, row, col); }
  double share = 0;
  index_t seed = 0;
  index_t head = 0;  ///< the first query head of the group: of all heads of all batches
  index_t group = 1;
  index_t first_row = 0;  ///< the position of row 0
  index_t row = 0;        ///< the place of X
  index_t col = 0;
  bool keeps(index_t i, index_t j) const {
    return dropout_keeps(static_cast<std::uint64_t>(seed), share, head + (row + i) % group,
                         first_row + (row + i) / group, col + j);
  }
  template <class T>
  T kept(index_t i, index_t j, T x, T factor) const {
    return keeps(i, j) ? factor * x : T(0);
  }
  double factor() const { return 1 / (1 - share); }
  template <class T>
  void run(View<T> X) const {
    const T grown = static_cast<T>(factor());
    for (index_t i = 0; i < X.rows(); ++i)
      for (index_t j = 0; j < X.cols(); ++j) X(i, j) = kept(i, j, X(i, j), grown);
  }
};

/// Drop without its place, for tiles that hold one word for each pair.
struct DropOfPairs {
  double share = 0;
  index_t seed = 0;
  index_t head = 0;
  index_t first_row = 0;  ///< the position of row 0
  index_t first_col = 0;  ///< the number of key 0
  DropOfPairs() = default;
  /// What `drop` does, whatever its place; keys are counted from `first_col` on.
  DropOfPairs(const Drop& drop, index_t first_col)
      : share(drop.share), seed(drop.seed), head(drop.head), first_row(drop.first_row), first_col(first_col) {}
  Drop at(const Place& p) const { return {share, seed, head, p.mask.group, first_row, p.row, first_col + p.col}; }
  auto parameters() { return std::tie(share, seed, head, first_row, first_col); }
};

/// A <- A o B, entry by entry
struct Multiply {
  static constexpr std::string_view name = "multiply";
  static constexpr std::array access{Access::update, Access::read};
  static constexpr Axes axes{"ij ij"};
  static constexpr bool fits(Shape A, Shape B) { return A == B; }
  static constexpr index_t macs(Shape, Shape) { return 0; }
  template <class T>
  void run(View<T> A, View<const T> B) const {
    for (index_t i = 0; i < A.rows(); ++i)
      for (index_t j = 0; j < A.cols(); ++j) A(i, j) *= B(i, j);
  }
};

/// m <- sink, l <- 1: each row begins with the score of its head's sink. A sink of -inf is none.
struct BeginWithSinks {
  static constexpr std::string_view name = "begin_with_sinks";
  static constexpr std::array access{Access::write, Access::write, Access::read};
  static constexpr Axes axes{"i. i. .."};
  static constexpr bool fits(Shape m, Shape l, Shape sinks) { return m == l && m.cols == 1 && sinks.cols == 1; }
  static constexpr index_t macs(Shape, Shape, Shape) { return 0; }
  static constexpr std::array<std::string_view, 1> parameter_names{"row"};
  auto parameters() { return std::tie(row); }
  index_t row = 0;  ///< of the first word of m
  template <class T>
  void run(View<T> m, View<T> l, View<const T> sinks) const {
    for (index_t r = 0; r < m.words(); ++r) {
      m[r] = sinks[(row + r) % sinks.words()];
      l[r] = m[r] == kMinusInf<T> ? T(0) : T(1);
    }
  }
};

/// A softmax over keys alone, with its lse ln, becomes that over keys and the sink of its row:
/// P <- P exp(ln) / (exp(ln) + exp(sink)), ln <- logaddexp(ln, sink).
struct AddSinks {
  static constexpr std::string_view name = "add_sinks";
  static constexpr std::array access{Access::update, Access::update, Access::read};
  static constexpr Axes axes{"i. i. .."};
  static constexpr bool fits(Shape P, Shape ln, Shape sinks) {
    return P.rows == ln.rows && ln.cols == 1 && sinks.cols == 1;
  }
  static constexpr index_t macs(Shape, Shape, Shape) { return 0; }
  static constexpr std::array<std::string_view, 1> parameter_names{"row"};
  auto parameters() { return std::tie(row); }
  index_t row = 0;  ///< of the first row of P
  template <class T>
  void run(View<T> P, View<T> ln, View<const T> sinks) const {
    for (index_t r = 0; r < P.rows(); ++r) {
      const T sink = sinks[(row + r) % sinks.words()], top = max_or_nan(ln[r], sink);
      if (top == kMinusInf<T>) continue;
      const T keys = exp_shifted(ln[r], top), all = keys + exp_shifted(sink, top);
      for (index_t j = 0; j < P.cols(); ++j) P(r, j) *= keys / all;
      ln[r] = top + log(all);
    }
  }
};

/// z <- z + exp(sink - lse)
struct AddSinkWeights {
  static constexpr std::string_view name = "add_sink_weights";
  static constexpr std::array access{Access::update, Access::read, Access::read};
  static constexpr Axes axes{"i. i. .."};
  static constexpr bool fits(Shape z, Shape lse, Shape sinks) { return z == lse && z.cols == 1 && sinks.cols == 1; }
  static constexpr index_t macs(Shape, Shape, Shape) { return 0; }
  static constexpr std::array<std::string_view, 1> parameter_names{"row"};
  auto parameters() { return std::tie(row); }
  index_t row = 0;
  template <class T>
  void run(View<T> z, View<const T> lse, View<const T> sinks) const {
    for (index_t r = 0; r < z.words(); ++r) z[r] += exp_shifted(sinks[(row + r) % sinks.words()], lse[r]);
  }
};

/// lse <- sink in slow memory, of rows that see no key
struct SinksOver {
  static constexpr std::string_view name = "sinks_over";
  static constexpr std::array access{Access::update, Access::read};
  static constexpr Axes axes{"i. .."};
  static constexpr bool fits(Shape lse, Shape sinks) { return lse.cols == 1 && sinks.cols == 1; }
  static constexpr index_t macs(Shape, Shape) { return 0; }
  static constexpr std::array<std::string_view, 2> parameter_names{"first", "row"};
  auto parameters() { return std::tie(first, row); }
  bool first = true;
  index_t row = 0;
  template <class T>
  void run(View<T> lse, View<const T> sinks) const {
    for (index_t r = 0; r < lse.rows(); ++r) lse[r] = sinks[(row + r) % sinks.words()];
  }
};

/// dSinks <- dSinks - exp(sink - lse) D, over these rows
struct AddSinkGradients {
  static constexpr std::string_view name = "add_sink_gradients";
  static constexpr std::array access{Access::update, Access::read, Access::read, Access::read};
  static constexpr Axes axes{".. .. i. i.", 'i'};
  static constexpr bool fits(Shape dSinks, Shape sinks, Shape lse, Shape D) {
    return dSinks == sinks && sinks.cols == 1 && lse == D && lse.cols == 1;
  }
  static constexpr index_t macs(Shape, Shape, Shape, Shape) { return 0; }
  static constexpr std::array<std::string_view, 1> parameter_names{"row"};
  auto parameters() { return std::tie(row); }
  index_t row = 0;
  template <class T>
  void run(View<T> dSinks, View<const T> sinks, View<const T> lse, View<const T> D) const {
    for (index_t r = 0; r < lse.words(); ++r) {
      const index_t h = (row + r) % sinks.words();
      if (sinks[h] != kMinusInf<T> && D[r] != T(0)) dSinks[h] -= exp(sinks[h] - lse[r]) * D[r];
    }
  }
};

/// r <- exp(sink - lse) tsink: lse grows by that where the sink of its row moves along tsink. A sink of -inf is none.
struct BeginWithMovingSinks {
  static constexpr std::string_view name = "begin_with_moving_sinks";
  static constexpr std::array access{Access::write, Access::read, Access::read, Access::read};
  static constexpr Axes axes{"i. i. .. .."};
  static constexpr bool fits(Shape r, Shape lse, Shape sinks, Shape tsinks) {
    return r == lse && r.cols == 1 && sinks.cols == 1 && tsinks == sinks;
  }
  static constexpr index_t macs(Shape, Shape, Shape, Shape) { return 0; }
  static constexpr std::array<std::string_view, 1> parameter_names{"row"};
  auto parameters() { return std::tie(row); }
  index_t row = 0;  ///< of the first word of r
  template <class T>
  void run(View<T> r, View<const T> lse, View<const T> sinks, View<const T> tsinks) const {
    for (index_t i = 0; i < r.words(); ++i) {
      const index_t h = (row + i) % sinks.words();
      r[i] = sinks[h] == kMinusInf<T> ? T(0) : exp(sinks[h] - lse[i]) * tsinks[h];
    }
  }
};

/// LSinks <- LSinks - exp(sink - lse) (D (gsink - w) + x), over these rows: the gradient of a score whose key has the
/// value 0, by the formula of all others (kernels/second.hpp).
struct AddMovingSinkGradients {
  static constexpr std::string_view name = "add_moving_sink_gradients";
  static constexpr std::array access{Access::update, Access::read, Access::read, Access::read,
                                     Access::read,   Access::read, Access::read};
  static constexpr Axes axes{".. .. .. i. i. i. i.", 'i'};
  static constexpr bool fits(Shape LSinks, Shape sinks, Shape gsinks, Shape lse, Shape D, Shape w, Shape x) {
    return LSinks == sinks && gsinks == sinks && sinks.cols == 1 && lse.cols == 1 && D == lse && w == lse && x == lse;
  }
  static constexpr index_t macs(Shape, Shape, Shape, Shape, Shape, Shape, Shape) { return 0; }
  static constexpr std::array<std::string_view, 1> parameter_names{"row"};
  auto parameters() { return std::tie(row); }
  index_t row = 0;
  template <class T>
  void run(View<T> LSinks, View<const T> sinks, View<const T> gsinks, View<const T> lse, View<const T> D,
           View<const T> w, View<const T> x) const {
    for (index_t r = 0; r < lse.words(); ++r) {
      const index_t h = (row + r) % sinks.words();
      if (sinks[h] == kMinusInf<T>) continue;
      LSinks[h] -= exp(sinks[h] - lse[r]) * (D[r] * (gsinks[h] - w[r]) + x[r]);
    }
  }
};

/// dBias <- dBias + dS / scale, summed over the rows of dS if all share a row, over its columns if all share a column.
struct AddBiasGradient {
  static constexpr std::string_view name = "add_bias_gradient";
  static constexpr bool adds = true;
  static constexpr std::array access{Access::update, Access::read};
  static constexpr bool fits(Shape dBias, Shape dS) {
    return dBias.words() > 0 && (fits_as_bias(dS, dBias) || dBias == Shape{dS.rows, 1});
  }
  static constexpr index_t macs(Shape, Shape) { return 0; }
  static constexpr Axes axes_of(std::span<const Shape> shapes) {
    constexpr Axes pairs{"ij ij"}, row{".j ij", 'i'}, column{"i. ij", 'j'};
    if (shapes[0] == shapes[1]) return pairs;
    return shapes[0].rows == 1 ? row : column;
  }
  static constexpr std::array<std::string_view, 2> parameter_names{"first", "factor"};
  auto parameters() { return std::tie(first, factor); }
  bool first = false;
  double factor = 1;
  template <class T>
  void run(View<T> dBias, View<const T> dS) const {
    for (index_t i = 0; i < dS.rows(); ++i)
      for (index_t j = 0; j < dS.cols(); ++j)
        dBias(dBias.rows() == 1 ? 0 : i, dBias.cols() == 1 ? 0 : j) += static_cast<T>(factor) * dS(i, j);
  }
};

/// dBias <- dBias + exp(sink - lse) D, of a bias that all keys of a query share: what the sink leaves of D, for the
/// weights of the keys add up to 1 - exp(sink - lse).
struct AddSinkBiasGradient {
  static constexpr std::string_view name = "add_sink_bias_gradient";
  static constexpr bool adds = true;
  static constexpr std::array access{Access::update, Access::read, Access::read, Access::read};
  static constexpr Axes axes{"i. .. i. i."};
  static constexpr bool fits(Shape dBias, Shape sinks, Shape lse, Shape D) {
    return dBias == lse && lse == D && D.cols == 1 && sinks.cols == 1;
  }
  static constexpr index_t macs(Shape, Shape, Shape, Shape) { return 0; }
  static constexpr std::array<std::string_view, 2> parameter_names{"first", "row"};
  auto parameters() { return std::tie(first, row); }
  bool first = false;
  index_t row = 0;
  template <class T>
  void run(View<T> dBias, View<const T> sinks, View<const T> lse, View<const T> D) const {
    for (index_t r = 0; r < lse.rows(); ++r) {
      const T sink = sinks[(row + r) % sinks.words()];
      if (sink != kMinusInf<T> && D[r] != T(0)) dBias(r, 0) += exp(sink - lse[r]) * D[r];
    }
  }
};

/// dBias <- dBias + dlse, of a bias that all keys of a query share: lse grows by what it grows by, unless the row has
/// no weight at all.
struct AddLseBiasGradient {
  static constexpr std::string_view name = "add_lse_bias_gradient";
  static constexpr bool adds = true;
  static constexpr std::array access{Access::update, Access::read, Access::read};
  static constexpr bool fits(Shape dBias, Shape lse, Shape dlse) {
    return dBias == lse && lse == dlse && lse.cols == 1;
  }
  static constexpr index_t macs(Shape, Shape, Shape) { return 0; }
  static constexpr std::array<std::string_view, 1> parameter_names{"first"};
  auto parameters() { return std::tie(first); }
  bool first = false;
  template <class T>
  void run(View<T> dBias, View<const T> lse, View<const T> dlse) const {
    for (index_t r = 0; r < lse.rows(); ++r)
      if (lse[r] != kMinusInf<T>) dBias(r, 0) += dlse[r];
  }
};

}  // namespace redblue::kernel
