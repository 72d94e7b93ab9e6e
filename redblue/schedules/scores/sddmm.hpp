#pragma once
#include "redblue/schedules/operands/scores.hpp"
#include "redblue/schedules/pairs/index_words.hpp"
#include "redblue/schedules/parts/score_phase.hpp"

namespace redblue::schedule {

/// The matrix of scores, or of weights, and nothing else: each entry of Q K^T is formed once, changed where it lies,
/// and written (a sampled dense-dense matrix product). It is the first phase of small_cache and of materialised, as an
/// operation of its own. From M = d^2 on it meets bound S' to leading order, below it moves at most 5/4 of it
/// (docs/proofs/scores.md).
///   reads  tile d (B(b) + A(a)) or panel d (n_q + A(a)), + n_q for weights   writes n_q n_k
///   footprint  tile a b + min(a, b) + 1   panel a (d + b) + 1   for weights + a
/// Pairs that a mask hides are written without being formed (parts/cores.hpp). Under a pattern keys pass panels
/// run by run; tiles form all pairs of an interval mask around it.
template <class Arrays>
struct Sddmm : Defaults {
  using Operands = Arrays;
  static constexpr std::string_view name = "sddmm";
  static constexpr std::string_view idea = "forming each score once";
  static constexpr Traits traits{.masks = true, .patterns = true, .hides = true, .modifiers = true, .any_score = true};
  static constexpr std::array<SlowArray, 0> workspace{};
  static constexpr bool of_weights = Arrays::operation == Operation::weights;
  static constexpr SlowArray entries = of_weights ? SlowArray::P : SlowArray::S;

  struct Tiling {
    ScoreTiling scores;
    void tile_sizes(const auto& tile_size) {
      tile_size({"panel", nullptr, 0, 1}, scores.panel, scores.panel != 0);
      tile_size({"a", &Sizes::n_q}, scores.a);
      tile_size({"b", &Sizes::n_k}, scores.b, scores.panel == 0 || scores.b > 1);
    }
  };

  static bool allows(const Sizes& x, const Tiling& t) { return t.scores.panel != 0 || x.mask.pattern == nullptr; }
  /// Tiles do, panels do not.
  static bool hides(const Tiling& t) { return t.scores.panel == 0; }
  static Tiling smallest(const Sizes& x, const Multiples& m) {
    return {{x.mask.pattern != nullptr ? 1 : 0, smallest_tile(x.n_q, m.query), smallest_tile(x.n_k, m.key)}};
  }
  static std::optional<Tiling> choose_tiling(const Sizes& x, const Limits& limits) {
    const auto scores = cost(x).choose(x, limits);
    if (!scores) return std::nullopt;
    return Tiling{*scores};
  }

  static index_t statistics(const Sizes& x) { return of_weights ? x.statistics() : 0; }
  static ScoreCost cost(const Sizes& x) {
    return {entries, SlowArray::Q, SlowArray::K, x.d, statistics(x), SlowArray::lse, false, true};
  }
  static Words footprint(const Sizes& x, Tiling t) { return cost(x).phase(x, t.scores).footprint; }
  static Words prefetch(const Sizes& x, Tiling t) { return cost(x).phase(x, t.scores).prefetch; }
  static Io io(const Sizes& x, Tiling t) {
    return cost(x).io(x, t.scores) + Io().read(SlowArray::lse, Words(x.n_q) * statistics(x)).write(entries, x.nnz());
  }
  static IndexWords index(const Sizes& x, const Tiling& t) { return row_pass_index(x, t.scores.a).words(); }
  static Words macs(const Sizes& x, Tiling t) { return cost(x).macs(x, t.scores); }

  template <Machine M>
  static void run(M& m, const Arrays& x, Tiling t) {
    const Blocks blocks = x.shape.pairs().row_blocks(t.scores.a);
    m.each(blocks.count(), [&](auto& w, index_t i) {
      const Range I = blocks(i);
      const auto lse_i = w.load(x.lse.rows(I));
      const Slopes slopes(w, x);
      score_phase(w, x.shape, entries, I, x.Q, x.K, t.scores, [&](const Arg& T, const Box& box) {
        w.compute(kernel::Scale{x.scale}, T);
        hide_formed(w, x.shape, T, box);
        modify(w, x, T, box, slopes.arg());
        if constexpr (of_weights) {
          const Arg lse = lse_i.rows(box.rows.begin - I.begin, box.rows.size());
          w.compute(kernel::Weights{x.shape.score}, T, lse);
          // The -0 of a hidden pair, which gradients tell from a score of 0, becomes 0; other weights stay.
          if (x.shape.score == Score::identity) w.compute(kernel::Weights{Score::identity}, T, lse);
        }
        store_visible(w, x.shape, T, x.pairs(), box);
      });
    });
  }
};

using ScoreMatrix = Sddmm<ScoresOperands>;
using WeightMatrix = Sddmm<WeightsOperands>;

}  // namespace redblue::schedule
