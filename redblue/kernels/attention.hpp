#pragma once
#include "redblue/kernels/modifiers.hpp"
#include "redblue/kernels/weights.hpp"
#include "redblue/language/layout.hpp"

/// Composite kernels of attention.
namespace redblue::kernel {

/// One step of FlashAttention: S <- scale Q K^T, modified; the online softmax, or another score function; O += S V. A
/// machine may run it as one implementation, panel by panel; the parts in this order define its result.
struct OnlineAttention {
  static constexpr bool kComposite = true;
  static constexpr std::string_view name = "online_attention";
  static constexpr std::array access{Access::write, Access::update, Access::update, Access::update, Access::read,
                                     Access::read,  Access::read,   Access::read,   Access::read};
  static constexpr Axes axes{"~ij i. i. i. i. j. j. ij ..", 'j'};
  // The layouts a fused implementation would like its tiles in.
  static constexpr Layout S = Layout::panel_scratch;
  static constexpr Layout Q = Layout::query_panels;
  static constexpr Layout O = Layout::output_panels;
  static constexpr std::array<Layout, 9> layouts{
      S, O, Layout::row_major, Layout::row_major, Q, Layout::key_rows, Layout::value_pairs};  // the others: row_major

  static constexpr Costs costs{.multiplies_bf16 = true,
                               .packed = Costs::Packed{.argument = 4, .layout = Q, .or_few_rows = true}};
  /// Where nothing else happens to scores.
  constexpr std::optional<PairByPair> pair_by_pair(Shape, Shape O_i, Shape, Shape, Shape Q_i, Shape, Shape,
                                                   Shape bias_ij, Shape slopes) const {
    const bool plain = exponentiates(score) && drop.share == 0 && modify.idle({0, 0}, bias_ij, slopes);
    if (!plain || std::max(Q_i.cols, O_i.cols) > PairByPair::kMostWords) return std::nullopt;
    return PairByPair::attention(Q_i.cols + O_i.cols);
  }

  Scores scores;
  Score score = Score::softmax;
  ModifyScores modify{};
  Drop drop{};
  index_t next = 0;  ///< how far below the first of these keys the next step's begin, to be fetched; 0: below the last
  template <class Visit, class A>
  void parts(const Visit& visit, const A& S_ij, const A& O_i, const A& m_i, const A& l_i, const A& Q_i, const A& K_j,
             const A& V_j, const A& bias_ij, const A& slopes) const {
    visit(scores, S_ij, Q_i, K_j);
    if (!modify.idle({0, 0}, shape_of(bias_ij), shape_of(slopes))) visit(modify, S_ij, A{}, bias_ij, slopes);
    if (score == Score::softmax)
      visit(OnlineSoftmax{}, S_ij, O_i, m_i, l_i);
    else
      visit(Weights{score}, S_ij, l_i);
    if (drop.share > 0) visit(drop, S_ij);
    visit(Gemm{}, O_i, S_ij, V_j);
  }
};

/// O <- O / l; m <- lse. It does nothing for score functions without statistics.
struct SoftmaxFinish {
  static constexpr bool kComposite = true;
  static constexpr std::string_view name = "softmax_finish";
  static constexpr std::array access{Access::update, Access::update, Access::read};
  static constexpr Axes axes{"i. i. i."};
  Score score = Score::softmax;
  template <class Visit, class A>
  void parts(const Visit& visit, const A& O_i, const A& m_i, const A& l_i) const {
    if (score != Score::softmax) return;
    visit(DivideRows{}, O_i, l_i);
    visit(LogSum{}, m_i, l_i);
  }
};

}  // namespace redblue::kernel
