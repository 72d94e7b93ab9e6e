#pragma once
#include "redblue/schedules/forward/flash_pinned.hpp"
#include "redblue/schedules/forward/key_outer.hpp"
#include "redblue/schedules/parts/cores.hpp"
#include "redblue/schedules/scores/sddmm.hpp"

/// Slips in what lets no mask make a schedule dearer: keys that stay under a window, hidden pairs that are formed,
/// slopes that stay from sequence to sequence.
namespace redblue::test::mutants {

using namespace redblue::schedule;

enum class PinnedSlip {
  none,
  loads_kept_keys_again,
  keeps_the_first_keys,
  keeps_one_key_more,
};

struct FlashPinned {
  template <Machine M>
  static void run(M& m, const ForwardOperands& x, FlashPinnedForward::Tiling t, PinnedSlip slip) {
    using enum PinnedSlip;
    const index_t rho = t.rho + (slip == keeps_one_key_more ? 1 : 0);
    const auto K_kept = m.alloc(x.K.rows(0, rho)), V_kept = m.alloc(x.V.rows(0, rho));
    const Pairs pairs = x.shape.pairs();
    const Blocks blocks = pairs.row_blocks(t.Br);
    Range kept;
    for (index_t i = 0; i < blocks.count(); ++i) {
      const Range I = blocks(i), keys = pairs.keys_of(I);
      Range keep{std::max(keys.begin, keys.end - rho), keys.end};
      if (slip == keeps_the_first_keys) keep = {keys.begin, std::min(keys.end, keys.begin + rho)};
      std::vector<Range> one_by_one;
      for (index_t j = keys.begin; j < keys.end; ++j) one_by_one.push_back({j, j + 1});
      const auto pass = [&](auto& w, const Block& b) {
        if (!kept.holds(b.row) && !keep.holds(b.row)) return Arg::streaming(b);
        const Arg place = (b.array == x.K.array ? K_kept : V_kept).rows(b.row % rho, 1);
        if (!kept.holds(b.row) || slip == loads_kept_keys_again) w.load_into(place, b);
        return place;
      };
      FlashForward::attend(m, x, {I, x.O.rows(I), x.lse.rows(I)}, Runs(std::move(one_by_one)), t.Bc, pass);
      kept = keep;
    }
  }
};

/// Weights of the pairs alone are stored, as a panel does, though all pairs of the interval mask are formed.
struct SddmmStoresPairsOnly {
  template <Machine M>
  static void run(M& m, const WeightsOperands& x, ScoreTiling t, bool slip) {
    const Blocks blocks = x.shape.pairs().row_blocks(t.a);
    m.each(blocks.count(), [&](auto& w, index_t i) {
      const Range I = blocks(i);
      const auto lse_i = w.load(x.lse.rows(I));
      score_phase(w, x.shape, SlowArray::P, I, x.Q, x.K, t, [&](const Arg& T, const Box& box) {
        w.compute(kernel::Scale{x.scale}, T);
        hide_formed(w, x.shape, T, box);
        w.compute(kernel::Weights{x.shape.score}, T, lse_i.rows(box.rows.begin - I.begin, box.rows.size()));
        if (!slip) return store_visible(w, x.shape, T, x.P, box);
        for (index_t r = 0; r < box.rows.size(); ++r)
          x.shape.place(box.rows.begin, box.keys.begin).for_seen(r, box.keys.size(), [&](Range seen) {
            const Range row{box.rows.begin + r, box.rows.begin + r + 1}, keys = seen.shifted(box.keys.begin);
            w.store(part_of(T, box, row, keys), x.P.block(row, keys));
          });
      });
    });
  }
};

/// Pairs that are not there are formed, and not hidden. Words and room are right: only numbers show it.
struct KeyOuterHidesNothing : KeyOuterForward {
  static constexpr std::string_view name = "key_outer_hides_nothing";
  template <Machine M>
  static void run(M& m, const ForwardOperands& x, Tiling t) {
    ForwardOperands y = x;
    y.shape.hiding = nullptr;
    KeyOuterForward::run(m, y, t);
  }
};

/// Each sequence loads the slopes, though they stay.
struct LoadsSlopesForEverySequence {
  template <Machine M>
  static void run(M& m, const ForwardOperands& x, FlashForward::Tiling t, bool slip) {
    const Numbered list(cores_of(x.shape));
    const auto slopes = m.load(x.slopes.all());
    for (index_t i = 0; i < list.count(); ++i) {
      Sizes core = list(i);
      core.modifiers.slopes_kept = !slip;
      ForwardOperands operands(core, x.scale, x.instance());
      operands.kept_slopes = slopes.arg();
      FlashForward::run(m, operands, t);
    }
  }
};

}  // namespace redblue::test::mutants
