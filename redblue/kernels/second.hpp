#pragma once
#include "redblue/kernels/backward.hpp"
#include "redblue/kernels/materialised.hpp"

/// Kernels of tangents and of gradients of gradients (docs/algorithms/second-derivatives.md). The tangent of a score is
/// H; w are the row sums of P o H, by which lse moves.
namespace redblue::kernel {

/// A <- A - r o B, row by row
struct SubtractScaledRows {
  static constexpr std::string_view name = "subtract_scaled_rows";
  static constexpr std::array access{Access::update, Access::read, Access::read};
  static constexpr Axes axes{"ij i. ij"};
  static constexpr bool fits(Shape A, Shape r, Shape B) { return A == B && r.rows == A.rows && r.cols == 1; }
  static constexpr index_t macs(Shape, Shape, Shape) { return 0; }
  template <class T>
  void run(View<T> A, View<const T> r, View<const T> B) const {
    for (index_t i = 0; i < A.rows(); ++i)
      for (index_t t = 0; t < A.cols(); ++t) A(i, t) -= r[i] * B(i, t);
  }
};

/// A <- A - r o O, D <- row sums of dO o O, and x <- those of dO o A: every word of O and of dO is used for all of them
/// while it passes.
struct RowDotsAndRest {
  static constexpr std::string_view name = "row_dots_and_rest";
  static constexpr std::array access{Access::write, Access::write, Access::update,
                                     Access::read,  Access::read,  Access::read};
  static constexpr Axes axes{"i. i. i. i. i. i."};
  static constexpr bool fits(Shape D, Shape x, Shape A, Shape r, Shape dO, Shape O) {
    return RowDots::fits(D, dO, O) && x == D && SubtractScaledRows::fits(A, r, O);
  }
  static constexpr index_t macs(Shape, Shape, Shape, Shape, Shape, Shape) { return 0; }
  template <class T>
  void run(View<T> D, View<T> x, View<T> A, View<const T> r, View<const T> dO, View<const T> O) const {
    SubtractScaledRows{}.run<T>(A, r, O);
    RowDots{}.run<T>(D, dO, O);
    RowDots{}.run<T>(x, dO, A);
  }
};

/// H <- H times the slope of a softcap, given the softcapped scores C = softcap tanh(s / softcap).
struct ThroughSoftcap {
  static constexpr std::string_view name = "through_softcap";
  static constexpr std::array access{Access::update, Access::read};
  static constexpr Axes axes{"ij ij"};
  static constexpr bool fits(Shape H, Shape C) { return H == C; }
  static constexpr index_t macs(Shape, Shape) { return 0; }
  static constexpr std::array<std::string_view, 1> parameter_names{"softcap"};
  auto parameters() { return std::tie(softcap); }
  double softcap = 1;
  template <class T>
  void run(View<T> H, View<const T> C) const {
    const T cap = static_cast<T>(softcap);
    for (index_t i = 0; i < H.rows(); ++i)
      for (index_t j = 0; j < H.cols(); ++j) {
        const T t = C(i, j) / cap;
        H(i, j) *= T(1) - t * t;
      }
  }
};

/// One tile of double backward: from H, X = dP and Y = E = dO gV^T to
///   H <- scale G, the gradient of scores,  G = P o ((dP - D) o (H + B - w) + E - x),
///   X <- scale dS = scale P o (dP - D),    Y <- P o (H + B - w), by which the weights move;
/// x are the row sums that make those of G zero, and B, where it has words, is the direction of a bias. Where C has
/// words, they are softcapped scores, before a bias is added: G and dS pass through the softcap, and the change of its
/// slope under H is added to G. `apart`: C <- scale G as it is before that, which is the gradient of the bias.
struct SecondGradient {
  static constexpr std::string_view name = "second_gradient";
  static constexpr std::array access{Access::update, Access::update, Access::update, Access::update, Access::read,
                                     Access::read,   Access::read,   Access::read,   Access::read};
  static constexpr Axes axes{"ij ij ij ij ij i. i. i. ij"};
  static constexpr bool fits(Shape H, Shape X, Shape Y, Shape C, Shape P, Shape D, Shape w, Shape x, Shape B) {
    return H == P && X == P && Y == P && D.rows == H.rows && D.cols == 1 && D == w && w == x &&
           (C == H || C.words() == 0) && fits_as_bias(H, B);
  }
  static constexpr index_t macs(Shape, Shape, Shape, Shape, Shape, Shape, Shape, Shape, Shape) { return 0; }
  static constexpr std::array<std::string_view, 3> parameter_names{"scale", "softcap", "apart"};
  auto parameters() { return std::tie(scale, softcap, apart); }
  double scale = 1;
  double softcap = 0;
  bool apart = false;
  template <class T>
  void run(View<T> H, View<T> X, View<T> Y, View<T> C, View<const T> P, View<const T> D, View<const T> w,
           View<const T> x, View<const T> B) const {
    const T factor = static_cast<T>(scale), cap = static_cast<T>(softcap);
    for (index_t i = 0; i < H.rows(); ++i)
      for (index_t j = 0; j < H.cols(); ++j) {
        const T p = P(i, j);
        if (p == T(0)) {
          H(i, j) = X(i, j) = Y(i, j) = T(0);
          if (apart) C(i, j) = T(0);
          continue;
        }
        const T h = H(i, j), moved = p * (h + bias_of<T>(B, i, j) - w[i]), away = X(i, j) - D[i];
        T g = away * moved + p * (Y(i, j) - x[i]), ds = p * away;
        if (C.words() > 0) {
          const T t = C(i, j) / cap, slope = T(1) - t * t;
          if (apart) C(i, j) = factor * g;
          g = slope * g - T(2) * t / cap * h * ds;
          ds *= slope;
        }
        H(i, j) = factor * g;
        X(i, j) = factor * ds;
        Y(i, j) = moved;
      }
  }
};

/// P = exp(S - lse), weights that dropout has not touched, or another score function of S; and H, the tangent of S
/// along A and B: scale (A K^T + Q B^T), times the slope of a softcap. Where there is one, C takes the softcapped
/// scores. `weighted`: H <- f'(S) H, that of the weights, and where r has words, its row sums are added there. A
/// machine may run it as one implementation; the parts in this order define its result.
struct MovingWeights {
  static constexpr bool kComposite = true;
  static constexpr std::string_view name = "moving_weights";
  static constexpr std::array access{Access::write, Access::write, Access::write, Access::update,
                                     Access::read,  Access::read,  Access::read,  Access::read,
                                     Access::read,  Access::read,  Access::read};
  static constexpr Axes axes{"ij ij ij i. i. i. j. j. i. ij ..", 'j'};
  static constexpr Costs costs{.keys_in_lanes = true};

  Scores scores;
  ModifyScores modify{};
  Score score = Score::softmax;
  bool weighted = false;
  template <class Visit, class T>
  void parts(const Visit& visit, const T& P, const T& H, const T& C, const T& r, const T& Q, const T& A, const T& K,
             const T& B, const T& lse, const T& bias, const T& slopes) const {
    const bool capped = shape_of(C).words() > 0;
    if (capped) {  // C has numbers for hidden pairs, too, of which P and all that is made of it has zeros
      visit(Scores{scores.scale}, C, Q, K);
      visit(Copy{}, P, C);
      visit(ModifyScores{modify.softcap}, C, T{}, T{}, T{});
      visit(Hide{scores.place}, P);
    } else {
      visit(scores, P, Q, K);
    }
    if (!modify.idle({0, 0}, shape_of(bias), shape_of(slopes))) visit(modify, P, T{}, bias, slopes);
    visit(Weights{score}, P, lse);
    visit(Zero{}, H);
    visit(Gemm{false, true}, H, A, K);
    visit(Gemm{false, true}, H, Q, B);
    visit(Scale{scores.scale}, H);
    if (capped) visit(ThroughSoftcap{modify.softcap}, H, C);
    if (!weighted) return;
    visit(ScoreGradient{score, 1, scores.place}, H, P, T{});
    if (shape_of(r).words() > 0) visit(AddRowSums{}, r, H);
  }
};

/// SecondGradient from dO, V and gV: X = dO V^T and Y = dO gV^T, without what dropout takes. A machine may run it as
/// one implementation; the parts in this order define its result.
struct SecondGradients {
  static constexpr bool kComposite = true;
  static constexpr std::string_view name = "second_gradients";
  static constexpr std::array access{Access::update, Access::write, Access::write, Access::update,
                                     Access::read,   Access::read,  Access::read,  Access::read,
                                     Access::read,   Access::read,  Access::read,  Access::read};
  static constexpr Axes axes{"ij ij ij ij ij i. j. j. i. i. i. ij", 'j'};

  SecondGradient gradient;
  Drop drop{};
  Place place{};  ///< of the tile: P is 0 where it hides pairs, which may be left out
  template <class Visit, class T>
  void parts(const Visit& visit, const T& H, const T& X, const T& Y, const T& C, const T& P, const T& dO, const T& V,
             const T& gV, const T& D, const T& w, const T& x, const T& B) const {
    visit(Zero{}, X);
    visit(Gemm{false, true}, X, dO, V);
    visit(Zero{}, Y);
    visit(Gemm{false, true}, Y, dO, gV);
    if (drop.share > 0) {
      visit(drop, X);
      visit(drop, Y);
    }
    visit(gradient, H, X, Y, C, P, D, w, x, B);
  }
};

}  // namespace redblue::kernel
