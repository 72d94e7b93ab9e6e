#pragma once
#include "redblue/kernels/gradient.hpp"
#include "redblue/kernels/modifiers.hpp"
#include "redblue/kernels/weights.hpp"
#include "redblue/language/layout.hpp"

/// Kernels of gradients.
namespace redblue::kernel {

/// D <- row sums of dO o O, in the order in which dP = dO V^T is summed: where one key has all the weight, dP - D is 0.
struct RowDots {
  static constexpr std::string_view name = "row_dots";
  static constexpr std::array access{Access::write, Access::read, Access::read};
  static constexpr Axes axes{"i. i. i."};
  static constexpr bool fits(Shape D, Shape dO, Shape O) { return D.rows == dO.rows && D.cols == 1 && dO == O; }
  static constexpr index_t macs(Shape, Shape, Shape) { return 0; }
  template <class T>
  void run(View<T> D, View<const T> dO, View<const T> O) const {
    for (index_t i = 0; i < dO.rows(); ++i) {
      D[i] = T(0);
      for (index_t t = 0; t < dO.cols(); ++t) D[i] += dO(i, t) * O(i, t);
    }
  }
};

/// dP <- dP + dO V^T and dV <- dV + P^T dO: every word of dO is used for both while it passes.
struct ValueGradients {
  static constexpr std::string_view name = "value_gradients";
  static constexpr std::array access{Access::update, Access::update, Access::read, Access::read, Access::read};
  static constexpr Axes axes{"ij j. ij j. i.", 'i'};
  static constexpr bool fits(Shape dP, Shape dV, Shape P, Shape V, Shape dO) {
    return dP == P && dV == V && P.rows == dO.rows && P.cols == V.rows && V.cols == dO.cols;
  }
  static constexpr index_t macs(Shape, Shape, Shape P, Shape V, Shape) { return 2 * P.words() * V.cols; }
  template <class T>
  void run(View<T> dP, View<T> dV, View<const T> P, View<const T> V, View<const T> dO) const {
    Gemm{false, true}.run<T>(dP, dO, V);
    Gemm{true, false}.run<T>(dV, P, dO);
  }
};

/// What a problem does to the scores of one tile, for a backward pass: P are the weights of values, and G those of
/// scores where they differ, f'(S) P without what was dropped; else G has no words. Where F has words, it takes the
/// derivative of the softcap out of G, and the gradient of the softcapped scores, times scale, is left in P: dBias is
/// made of it.
struct WeightsOfTile {
  ModifyScores modify{};
  Drop drop{};
  Score score = Score::softmax;

  template <class Visit, class A>
  void parts(const Visit& visit, const A& P_ij, const A& G_ij, const A& F_ij, const A& lse_i, const A& bias_ij,
             const A& slopes) const {
    modified(visit, P_ij, G_ij, F_ij, bias_ij, slopes);
    visit(Weights{score}, P_ij, lse_i);
    weighted(visit, P_ij, G_ij, F_ij);
  }
  /// P from products of queries and keys to scores.
  template <class Visit, class A>
  void modified(const Visit& visit, const A& P_ij, const A& G_ij, const A& F_ij, const A& bias_ij,
                const A& slopes) const {
    const A& derivative = has_words(F_ij) ? F_ij : G_ij;
    if (!modify.idle(shape_of(derivative), shape_of(bias_ij), shape_of(slopes)))
      visit(modify, P_ij, derivative, bias_ij, slopes);
  }
  /// G from the weights P, and P from all weights to those that are kept.
  template <class Visit, class A>
  void weighted(const Visit& visit, const A& P_ij, const A& G_ij, const A& F_ij) const {
    if (has_words(G_ij) && has_words(F_ij))
      visit(Copy{}, G_ij, P_ij);
    else if (has_words(G_ij))
      visit(Multiply{}, G_ij, P_ij);
    if (drop.share > 0) visit(drop, P_ij);
  }
  /// dS from dP
  template <class Visit, class A>
  void gradient(const Visit& visit, double scale, const A& dS_ij, const A& P_ij, const A& G_ij, const A& F_ij,
                const A& D_i) const {
    if (drop.share > 0) visit(drop, dS_ij);
    visit(ScoreGradient{score, scale, modify.place}, dS_ij, has_words(G_ij) ? G_ij : P_ij, D_i);
    if (!has_words(F_ij)) return;
    visit(Copy{}, P_ij, dS_ij);
    visit(Multiply{}, dS_ij, F_ij);
  }
  template <class A>
  static constexpr bool has_words(const A& a) {
    return shape_of(a).words() > 0;
  }
};

/// One step of a backward pass whose keys are resident: P = f(S), dV += P^T dO, dS = f'(S)(dP - D), dK += dS^T Q. A
/// machine may run it as one implementation; the parts in this order define its result. Where nothing modifies scores
/// nobody reads P afterwards, and an implementation may leave there what it likes.
struct KeyGradients {
  static constexpr bool kComposite = true;
  static constexpr std::string_view name = "key_gradients";
  static constexpr std::array access{Access::write, Access::write, Access::update, Access::update, Access::read,
                                     Access::read,  Access::read,  Access::read,   Access::read,   Access::read,
                                     Access::write, Access::write, Access::read,   Access::read};
  // The layouts a fused implementation would like its tiles in.
  static constexpr Layout P = Layout::padded_rows;
  static constexpr Layout dS = Layout::padded_rows;
  static constexpr Layout Q = Layout::read_only;
  static constexpr Layout K = Layout::key_panels;
  static constexpr Layout V = Layout::key_panels;
  static constexpr std::array<Layout, 14> tile_layouts{P, dS, Layout::row_major, Layout::row_major, Q, K, V};
  /// P, dS; Q and dO as rows, and as pairs of them
  static constexpr std::array<std::size_t, 6> rounds{0, 1, 4, 4, 9, 9};
  static constexpr Costs costs{.multiplies_bf16 = true,
                               .rounds = rounds,
                               .packed = Costs::Packed{.argument = 5, .layout = K, .or_few_rows = false},
                               .keys_in_lanes = true};
  /// Where nothing else happens to scores.
  constexpr std::optional<PairByPair> pair_by_pair(Shape, Shape, Shape, Shape, Shape, Shape K_j, Shape V_j, Shape,
                                                   Shape, Shape, Shape G_ij, Shape F_ij, Shape bias_ij,
                                                   Shape slopes) const {
    const Shape derivative = F_ij.words() > 0 ? F_ij : G_ij;
    const bool plain =
        exponentiates(weights.score) && weights.drop.share == 0 && weights.modify.idle(derivative, bias_ij, slopes);
    return plain ? std::optional(PairByPair::gradients(K_j.cols + V_j.cols)) : std::nullopt;
  }

  /// P is of use to others where F has words.
  static constexpr Axes axes_of(std::span<const Shape> shapes) {
    constexpr Axes own{"~ij ij j. j. i. j. j. i. i. i. ~ij ~ij ij ..", 'i'},
        keeps_P{"ij ij j. j. i. j. j. i. i. i. ~ij ~ij ij ..", 'i'};
    return shapes[11].words() > 0 ? keeps_P : own;
  }

  Scores scores;
  WeightsOfTile weights{};
  index_t next = 0;  ///< from the first of these queries to the first of the next step's, fetched now; 0: those below
  template <class Visit, class A>
  void parts(const Visit& visit, const A& P_ij, const A& dS_ij, const A& dK_j, const A& dV_j, const A& Q_i,
             const A& K_j, const A& V_j, const A& lse_i, const A& D_i, const A& dO_i, const A& G_ij, const A& F_ij,
             const A& bias_ij, const A& slopes) const {
    visit(scores, P_ij, Q_i, K_j);
    weights.parts(visit, P_ij, G_ij, F_ij, lse_i, bias_ij, slopes);
    visit(Zero{}, dS_ij);
    visit(ValueGradients{}, dS_ij, dV_j, P_ij, V_j, dO_i);  // dP = dO V^T and dV += P^T dO
    weights.gradient(visit, scores.scale, dS_ij, P_ij, G_ij, F_ij, D_i);
    visit(Gemm{true, false}, dK_j, dS_ij, Q_i);
  }
};

/// C <- C + op(A) op(B) in slow memory; the first time C <- op(A) op(B). An implementation may leave out entries of
/// op(A) that are 0 because a mask hides the column from the row.
struct GemmOver {
  static constexpr std::string_view name = "gemm_over";
  static constexpr std::array access{Access::update, Access::read, Access::read};
  static constexpr bool fits(Shape C, Shape A, Shape B) { return Gemm::fits(C, A, B); }
  static constexpr index_t macs(Shape C, Shape A, Shape B) { return Gemm::macs(C, A, B); }
  static constexpr std::array<std::size_t, 2> rounds{1, 2};
  static constexpr Costs costs{.scores_at = 1, .multiplies_bf16 = true, .rounds = rounds};
  static constexpr std::optional<PairByPair> pair_by_pair(Shape C, Shape, Shape) { return PairByPair::product(C.cols); }
  static constexpr std::array<std::string_view, 9> parameter_names{"transpose_a", "transpose_b", "first", "lo", "hi",
                                                                   "prefix",      "group",       "row",   "col"};
  auto parameters() { return std::tuple_cat(std::tie(transpose_a, transpose_b, first), parameters_of_place(place)); }
  bool transpose_a = false;
  bool transpose_b = false;
  bool first = false;
  Place place{};
  template <class T>
  void run(View<T> C, View<const T> A, View<const T> B) const {
    if (first) Zero{}.run<T>(C);
    product().run<T>(C, A, B);
  }
  constexpr Gemm product() const { return {transpose_a, transpose_b}; }
  constexpr Axes axes_of(std::span<const Shape>) const { return axes_of_product(transpose_a, transpose_b); }
};

/// C <- 0 in slow memory, for outputs to which no query, or no key, contributes
struct ZeroOver {
  static constexpr std::string_view name = "zero_over";
  static constexpr std::array access{Access::update};
  static constexpr Axes axes{"ij"};
  static constexpr bool fits(Shape) { return true; }
  static constexpr index_t macs(Shape) { return 0; }
  static constexpr std::array<std::string_view, 1> parameter_names{"first"};
  auto parameters() { return std::tie(first); }
  bool first = true;
  template <class T>
  void run(View<T> C) const {
    Zero{}.run<T>(C);
  }
};

/// x <- -inf in slow memory: lse of rows that see no key, scores of pairs that do not see each other
struct NoKeysOver {
  static constexpr std::string_view name = "no_keys_over";
  static constexpr std::array access{Access::update};
  static constexpr Axes axes{"ij"};
  static constexpr bool fits(Shape) { return true; }
  static constexpr index_t macs(Shape) { return 0; }
  static constexpr std::array<std::string_view, 1> parameter_names{"first"};
  auto parameters() { return std::tie(first); }
  bool first = true;
  template <class T>
  void run(View<T> x) const {
    for (index_t r = 0; r < x.rows(); ++r)
      for (index_t c = 0; c < x.cols(); ++c) x(r, c) = kMinusInf<T>;
  }
};

}  // namespace redblue::kernel
