#pragma once
#include <algorithm>
#include <tuple>
#include <utility>
#include <vector>

#include "redblue/kernels/modifiers.hpp"
#include "redblue/kernels/weights.hpp"

/// Kernels on tiles that hold one word for each pair of a query and a key that it sees, in order, row by row: the tile
/// of a box holds the pairs of a pattern, or of a mask, inside a rectangle of scores. Vectors of its rows or keys hold
/// a word for each that has a pair in the box. Theory notes 2g.
namespace redblue::kernel {

/// A rectangle of scores, and of its rows, or of its keys, those that an argument has words for.
struct PairBox {
  Place place{};  ///< its corner
  index_t rows = 0;
  index_t cols = 0;
  index_t first = 0;  ///< of the rows or keys, counted from the corner
  index_t count = 0;

  Range window() const { return {first, first + count}; }
  /// Does the window lie inside `side` of its rows or columns, and the box inside its pattern? Where a mask says it
  /// all, every row and column of a box has one of its `words` pairs.
  bool is_inside(index_t side, index_t words) const {
    const Pattern* pattern = place.mask.pattern;
    const auto within = [](index_t at, index_t size, index_t end) {
      return 0 <= at && 0 <= size && at <= end && size <= end - at;
    };
    const bool box = pattern != nullptr
                         ? within(place.row, rows, pattern->n_q()) && within(place.col, cols, pattern->n_k())
                         : within(0, rows, words) && within(0, cols, words);
    return box && within(first, count, side);
  }
  index_t pairs() const {
    index_t sum = 0;
    for_runs([&](index_t, Range seen, index_t) { sum += seen.size(); });
    return sum;
  }
  index_t rows_with_pairs() const {
    index_t sum = 0;
    for_rows([&](index_t, Range) { ++sum; });
    return sum;
  }
  /// f(row, columns, the place of their first pair in the tile) for the runs of columns that each row sees.
  template <class F>
  void for_runs(const F& f) const {
    index_t pair = 0;
    for (index_t r = 0; r < rows; ++r)
      place.for_seen(r, cols, [&](Range seen) {
        f(r, seen, pair);
        pair += seen.size();
      });
  }
  /// f(row, the places of its pairs) for each row that has some.
  template <class F>
  void for_rows(const F& f) const {
    index_t row = -1;
    Range pairs;
    for_runs([&](index_t r, Range seen, index_t pair) {
      if (r != row && row >= 0) f(row, pairs);
      if (r != row) pairs.begin = pair;
      row = r;
      pairs.end = pair + seen.size();
    });
    if (row >= 0) f(row, pairs);
  }
};
inline constexpr std::array<std::string_view, 10> kPairBoxNames{"lo",  "hi",   "prefix", "group", "row",
                                                                "col", "rows", "cols",   "first", "count"};
inline auto parameters_of_box(Place& p, PairBox& b) {
  return std::tuple_cat(parameters_of_place(p), std::tie(b.rows, b.cols, b.first, b.count));
}

/// What all these kernels have: a box whose corner is `place`.
struct OnPairs {
  Place place{};
  PairBox extent{};
  PairBox box() const {
    PairBox b = extent;
    b.place = place;
    return b;
  }
  /// Has T a word for each pair of the box, and x one for each row of the window?
  bool has_rows(Shape T, Shape x) const {
    const PairBox b = box();
    return b.is_inside(b.rows, T.rows) && x.rows == b.count && T.rows == b.pairs();
  }
  OnPairs() = default;
  explicit OnPairs(const PairBox& b) : place(b.place), extent(b) {}
};

/// T_ij <- T_ij + a_i b_j for each pair: a column of A and one of B. One of them has all rows or keys that have a pair,
/// the other (A with `rows_pass`, else B) those of the window, which are neighbours.
struct PairProducts : OnPairs {
  static constexpr std::string_view name = "pair_products";
  static constexpr std::array access{Access::update, Access::read, Access::read};
  static constexpr bool fits(Shape T, Shape a, Shape b) { return T.cols == 1 && a.cols == 1 && b.cols == 1; }
  constexpr index_t macs(Shape, Shape, Shape) const { return pairs; }
  static constexpr Costs costs{.finds_pairs = true};
  static constexpr std::array<std::string_view, 12> parameter_names{
      "lo", "hi", "prefix", "group", "row", "col", "rows", "cols", "first", "count", "rows_pass", "pairs"};
  auto parameters() { return std::tuple_cat(parameters_of_box(place, extent), std::tie(rows_pass, pairs)); }
  bool rows_pass = false;
  index_t pairs = 0;  ///< of the window
  PairProducts() = default;
  PairProducts(const PairBox& b, bool rows_pass, index_t pairs) : OnPairs(b), rows_pass(rows_pass), pairs(pairs) {}

  /// What `fits` cannot see: the words that the pattern asks for.
  bool fits_pattern(Shape T, Shape a, Shape b) const {
    const PairBox x = box();
    if (!x.is_inside(rows_pass ? x.rows : x.cols, T.rows) || T.rows != x.pairs()) return false;
    if (!rows_pass) return a.rows == x.rows_with_pairs() && b.rows == x.count;
    index_t columns = 0;
    std::vector<bool> seen(static_cast<std::size_t>(x.cols));
    x.for_runs([&](index_t, Range run, index_t) {
      for (index_t j = run.begin; j < run.end; ++j) seen[static_cast<std::size_t>(j)] = true;
    });
    for (const bool one : seen) columns += one ? 1 : 0;
    return a.rows == x.count && b.rows == columns;
  }

  template <class T>
  void run(View<T> tile, View<const T> a, View<const T> b) const {
    const PairBox x = box();
    const Range window = x.window();
    // The columns that have a pair are numbered in order: of those of a run the first number is enough.
    std::vector<index_t> number;
    if (rows_pass) number = numbers(x);
    index_t row = -1, rank = -1;
    x.for_runs([&](index_t r, Range seen, index_t pair) {
      if (r != row) ++rank;
      row = r;
      if (rows_pass) {
        if (!window.holds(r)) return;
        const T a_i = a[r - window.begin];
        const index_t first = number[static_cast<std::size_t>(seen.begin)];
        for (index_t k = 0; k < seen.size(); ++k) tile[pair + k] += a_i * b[first + k];
      } else {
        const Range part = intersection(seen, window);
        const T a_i = a[rank];
        for (index_t j = part.begin; j < part.end; ++j) tile[pair + j - seen.begin] += a_i * b[j - window.begin];
      }
    });
  }
  static std::vector<index_t> numbers(const PairBox& x) {
    std::vector<index_t> number(static_cast<std::size_t>(x.cols), 0);
    x.for_runs(
        [&](index_t, Range seen, index_t) { std::fill(number.begin() + seen.begin, number.begin() + seen.end, 1); });
    index_t before = 0;
    for (index_t& n : number) before += std::exchange(n, before);
    return number;
  }
};

/// Updates m and l, which have a word for each row of the box, with the scores T.
struct PairStatistics : OnPairs {
  static constexpr std::string_view name = "pair_statistics";
  static constexpr std::array access{Access::update, Access::update, Access::read};
  static constexpr bool fits(Shape m, Shape l, Shape T) { return m == l && T.cols == 1; }
  static constexpr index_t macs(Shape, Shape, Shape) { return 0; }
  static constexpr auto parameter_names = kPairBoxNames;
  auto parameters() { return parameters_of_box(place, extent); }
  using OnPairs::OnPairs;
  bool fits_pattern(Shape m, Shape, Shape T) const { return has_rows(T, m) && m.rows == extent.rows; }
  template <class T>
  void run(View<T> m, View<T> l, View<const T> tile) const {
    box().for_rows([&](index_t r, Range pairs) {
      const T old = m[r];
      for (index_t k = pairs.begin; k < pairs.end; ++k) m[r] = max_or_nan(m[r], tile[k]);
      l[r] *= exp_shifted(old, m[r]);
      l[r] += sum_of<T>(pairs.size(), [&](index_t k) { return exp_shifted(tile[pairs.begin + k], m[r]); });
    });
  }
};

/// T_ij <- exp(T_ij - lse_i), of the rows of the window, which all have a word of lse.
struct PairWeights : OnPairs {
  static constexpr std::string_view name = "pair_weights";
  static constexpr std::array access{Access::update, Access::read};
  static constexpr bool fits(Shape T, Shape lse) { return T.cols == 1 && lse.cols == 1; }
  static constexpr index_t macs(Shape, Shape) { return 0; }
  static constexpr auto parameter_names = kPairBoxNames;
  auto parameters() { return parameters_of_box(place, extent); }
  using OnPairs::OnPairs;
  bool fits_pattern(Shape T, Shape lse) const { return has_rows(T, lse); }
  template <class T>
  void run(View<T> tile, View<const T> lse) const {
    const PairBox x = box();
    x.for_rows([&](index_t r, Range pairs) {
      if (!x.window().holds(r)) return;
      for (index_t k = pairs.begin; k < pairs.end; ++k) tile[k] = weight(Score::softmax, tile[k], lse[r - x.first]);
    });
  }
};

/// T_ij <- T_ij - D_i, likewise.
struct PairSubtract : OnPairs {
  static constexpr std::string_view name = "pair_subtract";
  static constexpr std::array access{Access::update, Access::read};
  static constexpr bool fits(Shape T, Shape D) { return T.cols == 1 && D.cols == 1; }
  static constexpr index_t macs(Shape, Shape) { return 0; }
  static constexpr auto parameter_names = kPairBoxNames;
  auto parameters() { return parameters_of_box(place, extent); }
  using OnPairs::OnPairs;
  bool fits_pattern(Shape T, Shape D) const { return has_rows(T, D); }
  template <class T>
  void run(View<T> tile, View<const T> D) const {
    const PairBox x = box();
    x.for_rows([&](index_t r, Range pairs) {
      if (!x.window().holds(r)) return;
      for (index_t k = pairs.begin; k < pairs.end; ++k) tile[k] -= D[r - x.first];
    });
  }
};

/// dP <- scale P dP, 0 where P is 0, whatever dP is
struct ScaleByWeights {
  static constexpr std::string_view name = "scale_by_weights";
  static constexpr std::array access{Access::update, Access::read};
  static constexpr bool fits(Shape dP, Shape P) { return dP == P; }
  static constexpr index_t macs(Shape, Shape) { return 0; }
  static constexpr std::array<std::string_view, 1> parameter_names{"scale"};
  auto parameters() { return std::tie(scale); }
  double scale = 1;
  template <class T>
  void run(View<T> dP, View<const T> P) const {
    for (index_t k = 0; k < P.words(); ++k) dP[k] = P[k] == T(0) ? T(0) : static_cast<T>(scale) * P[k] * dP[k];
  }
};

/// T <- softmax, row by row; lse <- that of each row. Each row has the score of its head's sink beside its own, where
/// there are sinks.
struct PairSoftmax : OnPairs {
  static constexpr std::string_view name = "pair_softmax";
  static constexpr std::array access{Access::update, Access::write, Access::read};
  static constexpr bool fits(Shape T, Shape lse, Shape sinks) {
    return T.cols == 1 && lse.cols == 1 && sinks.cols <= 1;
  }
  static constexpr index_t macs(Shape, Shape, Shape) { return 0; }
  static constexpr auto parameter_names = kPairBoxNames;
  auto parameters() { return parameters_of_box(place, extent); }
  using OnPairs::OnPairs;
  bool fits_pattern(Shape T, Shape lse, Shape) const { return has_rows(T, lse) && lse.rows == extent.rows; }
  template <class T>
  void run(View<T> tile, View<T> lse, View<const T> sinks) const {
    const auto sink = [&](index_t r) {
      return sinks.words() > 0 ? sinks[(place.row + r) % sinks.words()] : kMinusInf<T>;
    };
    for (index_t r = 0; r < lse.rows(); ++r) lse[r] = sink(r);  // of rows without pairs
    box().for_rows([&](index_t r, Range pairs) {
      T most = sink(r);
      for (index_t k = pairs.begin; k < pairs.end; ++k) most = max_or_nan(most, tile[k]);
      const T others = exp_shifted(sink(r), most);
      const T sum = others + sum_of<T>(pairs.size(), [&](index_t k) {
                      T& word = tile[pairs.begin + k];
                      return word = exp_shifted(word, most);
                    });
      for (index_t k = pairs.begin; k < pairs.end && sum != T(0); ++k) tile[k] /= sum;
      lse[r] = most == kMinusInf<T> ? most : most + log(sum);
    });
  }
};

/// D_i <- the sum of A_ij B_ij over the pairs of row i.
struct PairRowDots : OnPairs {
  static constexpr std::string_view name = "pair_row_dots";
  static constexpr std::array access{Access::write, Access::read, Access::read};
  static constexpr bool fits(Shape D, Shape A, Shape B) { return D.cols == 1 && A.cols == 1 && A == B; }
  static constexpr index_t macs(Shape, Shape, Shape) { return 0; }
  static constexpr auto parameter_names = kPairBoxNames;
  auto parameters() { return parameters_of_box(place, extent); }
  using OnPairs::OnPairs;
  bool fits_pattern(Shape D, Shape A, Shape) const { return has_rows(A, D) && D.rows == extent.rows; }
  template <class T>
  void run(View<T> D, View<const T> A, View<const T> B) const {
    Zero{}.run<T>(D);
    box().for_rows([&](index_t r, Range pairs) {
      D[r] = sum_of<T>(pairs.size(), [&](index_t k) { return A[pairs.begin + k] * B[pairs.begin + k]; });
    });
  }
};

/// y <- y + Z x for a word of x for each column of the box and of y for each row; `transposed`: y <- y + Z^T x, the
/// other way round.
struct PairTimesColumn : OnPairs {
  static constexpr std::string_view name = "pair_times_column";
  static constexpr std::array access{Access::update, Access::read, Access::read};
  static constexpr bool fits(Shape y, Shape Z, Shape x) { return y.cols == 1 && Z.cols == 1 && x.cols == 1; }
  static constexpr index_t macs(Shape, Shape Z, Shape) { return Z.rows; }
  static constexpr std::array<std::string_view, 11> parameter_names{
      "lo", "hi", "prefix", "group", "row", "col", "rows", "cols", "first", "count", "transposed"};
  auto parameters() { return std::tuple_cat(parameters_of_box(place, extent), std::tie(transposed)); }
  bool transposed = false;
  PairTimesColumn() = default;
  PairTimesColumn(const PairBox& b, bool transposed) : OnPairs(b), transposed(transposed) {}
  bool fits_pattern(Shape y, Shape Z, Shape x) const {
    const Shape &of_rows = transposed ? x : y, &of_keys = transposed ? y : x;
    return has_rows(Z, of_rows) && of_rows.rows == extent.rows && of_keys.rows == extent.cols;
  }
  template <class T>
  void run(View<T> y, View<const T> Z, View<const T> x) const {
    box().for_runs([&](index_t r, Range seen, index_t pair) {
      if (transposed)
        for (index_t j = seen.begin; j < seen.end; ++j) y[j] += Z[pair + j - seen.begin] * x[r];
      else
        y[r] += sum_of<T>(seen.size(), [&](index_t k) { return Z[pair + k] * x[seen.begin + k]; });
    });
  }
};

/// C_r <- C_r + z_r x for the rows r of C that go with one other row or key of the pattern: those of the window that it
/// sees, or that see it, in order. The box is the place of C: `by_rows`: C goes along keys, and `place.row` is the
/// query of z; else C goes along queries, and `place.col` is the key of z. Weights z that are dropped count as 0.
struct PairAccumulate {
  static constexpr std::string_view name = "pair_accumulate";
  static constexpr std::array access{Access::update, Access::read, Access::read};
  static constexpr bool fits(Shape C, Shape z, Shape x) { return z.cols == 1 && x.rows == 1 && x.cols == C.cols; }
  static constexpr index_t macs(Shape, Shape z, Shape x) { return z.rows * x.cols; }
  static constexpr std::array<std::string_view, 14> parameter_names{"lo",   "hi",    "prefix",    "group",    "row",
                                                                    "col",  "first", "count",     "by_rows",  "share",
                                                                    "seed", "head",  "first_row", "first_col"};
  auto parameters() {
    return std::tuple_cat(parameters_of_place(place), std::tie(first, count, by_rows), drop.parameters());
  }
  Place place{};
  index_t first = 0;
  index_t count = 0;
  bool by_rows = false;
  DropOfPairs drop{};

  /// f(row of C, number among those of the window)
  template <class F>
  void for_terms(const F& f) const {
    const Pattern& pattern = *place.mask.pattern;
    const index_t origin = by_rows ? place.col : place.row;
    index_t k = 0;
    for_inside(by_rows ? pattern.rows().of(place.row) : pattern.keys().of(place.col),
               {origin + first, origin + first + count}, [&](Range run) {
                 for (index_t r = run.begin; r < run.end; ++r) f(first + r, k++);
               });
  }
  bool fits_pattern(Shape C, Shape z, Shape) const {
    const Pattern* pattern = place.mask.pattern;
    if (pattern == nullptr || place.row >= pattern->n_q() || place.col >= pattern->n_k()) return false;
    if (first < 0 || count < 0 || first > C.rows || count > C.rows - first) return false;
    index_t terms = 0;
    for_terms([&](index_t, index_t) { ++terms; });
    return z.rows == terms;
  }
  template <class T>
  void run(View<T> C, View<const T> z, View<const T> x) const {
    for_terms([&](index_t r, index_t k) {
      const T z_r = kept(r, z[k]);
      for (index_t t = 0; t < x.cols(); ++t) C(r, t) += z_r * x(0, t);
    });
  }
  /// The weight of row r of C, if it is kept.
  template <class T>
  T kept(index_t r, T z) const {
    if (drop.share == 0) return z;
    const Drop at = drop.at(place);
    return at.kept(by_rows ? 0 : r, by_rows ? r : 0, z, static_cast<T>(at.factor()));
  }
};

/// s_r <- C_r . x for the rows r of C that go with one other row or key of the pattern, as in PairAccumulate:
/// `by_rows`: C has keys from `place.col` on, and x is the query `place.row`; else C has queries from `place.row` on,
/// and x is the key `place.col`.
struct PairScores {
  static constexpr std::string_view name = "pair_scores";
  static constexpr std::array access{Access::write, Access::read, Access::read};
  static constexpr bool fits(Shape s, Shape C, Shape x) { return s.cols == 1 && x.rows == 1 && x.cols == C.cols; }
  static constexpr index_t macs(Shape s, Shape, Shape x) { return s.rows * x.cols; }
  static constexpr std::array<std::string_view, 7> parameter_names{"lo",  "hi",  "prefix", "group",
                                                                   "row", "col", "by_rows"};
  auto parameters() { return std::tuple_cat(parameters_of_place(place), std::tie(by_rows)); }
  Place place{};
  bool by_rows = true;
  PairAccumulate terms(index_t rows) const { return {place, 0, rows, by_rows}; }
  bool fits_pattern(Shape s, Shape C, Shape x) const { return terms(C.rows).fits_pattern(C, s, x); }
  template <class T>
  void run(View<T> s, View<const T> C, View<const T> x) const {
    terms(C.rows()).for_terms(
        [&](index_t r, index_t k) { s[k] = dot(&C(r, 0), C.col_stride, &x(0, 0), x.col_stride, x.cols()); });
  }
};

/// dP_j <- dP_j + v_j . dO and dV_j <- dV_j + P_j dO, likewise: each word of dO serves both. To dV weights that are
/// dropped count as 0.
struct PairValueGradients {
  static constexpr std::string_view name = "pair_value_gradients";
  static constexpr std::array access{Access::update, Access::update, Access::read, Access::read, Access::read};
  static constexpr bool fits(Shape dP, Shape dV, Shape P, Shape V, Shape dO) {
    return dP == P && dV == V && PairScores::fits(dP, V, dO);
  }
  static constexpr index_t macs(Shape dP, Shape, Shape, Shape, Shape dO) { return 2 * dP.rows * dO.cols; }
  static constexpr std::array<std::string_view, 11> parameter_names{
      "lo", "hi", "prefix", "group", "row", "col", "share", "seed", "head", "first_row", "first_col"};
  auto parameters() { return std::tuple_cat(parameters_of_place(place), drop.parameters()); }
  Place place{};
  DropOfPairs drop{};
  bool fits_pattern(Shape dP, Shape, Shape, Shape V, Shape dO) const {
    return PairScores{place}.fits_pattern(dP, V, dO);
  }
  template <class T>
  void run(View<T> dP, View<T> dV, View<const T> P, View<const T> V, View<const T> dO) const {
    const PairAccumulate terms{place, 0, V.rows(), true, drop};
    terms.for_terms([&](index_t r, index_t k) {
      const T p = terms.kept(r, P[k]);
      dP[k] += dot(&V(r, 0), V.col_stride, &dO(0, 0), dO.col_stride, dO.cols());
      for (index_t t = 0; t < dO.cols(); ++t) dV(r, t) += p * dO(0, t);
    });
  }
};

/// PairAccumulate whose weights are made on the way from scores: z_r = exp(s_r - lse_r), and sums_r <- sums_r + z_r.
/// Weights that are dropped are in the sums.
struct PairWeightsAccumulate {
  static constexpr std::string_view name = "pair_weights_accumulate";
  static constexpr std::array access{Access::update, Access::update, Access::read, Access::read, Access::read};
  static constexpr bool fits(Shape C, Shape sums, Shape s, Shape lse, Shape x) {
    return sums == lse && sums.rows == C.rows && PairAccumulate::fits(C, s, x);
  }
  static constexpr index_t macs(Shape, Shape, Shape s, Shape, Shape x) { return s.rows * x.cols; }
  static constexpr auto parameter_names = PairAccumulate::parameter_names;
  auto parameters() {
    return std::tuple_cat(parameters_of_place(place), std::tie(terms.first, terms.count, terms.by_rows),
                          terms.drop.parameters());
  }
  Place place{};
  PairAccumulate terms{};
  PairAccumulate placed() const {
    PairAccumulate all = terms;
    all.place = place;
    return all;
  }
  bool fits_pattern(Shape C, Shape, Shape s, Shape, Shape x) const { return placed().fits_pattern(C, s, x); }
  template <class T>
  void run(View<T> C, View<T> sums, View<const T> s, View<const T> lse, View<const T> x) const {
    const PairAccumulate all = placed();
    all.for_terms([&](index_t r, index_t k) {
      const T z = weight(Score::softmax, s[k], lse[r]), z_r = all.kept(r, z);
      sums[r] += z;
      for (index_t t = 0; t < x.cols(); ++t) C(r, t) += z_r * x(0, t);
    });
  }
};

}  // namespace redblue::kernel
