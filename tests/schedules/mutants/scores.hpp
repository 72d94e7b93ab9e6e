#pragma once
#include "redblue/language/machine.hpp"
#include "redblue/schedules/parts/cores.hpp"
#include "redblue/schedules/scores/sddmm.hpp"

namespace redblue::test::mutants {

using namespace redblue::schedule;

/// Slips in the matrix of weights; `none` is the schedule itself, with what it writes for hidden pairs.
enum class SddmmSlip {
  none,
  leaves_hidden_pairs_unwritten,
  forgets_keys_before_the_window,
  stores_whole_boxes,
  loads_lse_for_every_tile,
  forgets_lse,
  streams_keys_of_the_whole_block,
};

struct Sddmm {
  template <Machine M>
  static void run(M& m, const WeightsOperands& x, ScoreTiling t, SddmmSlip slip) {
    using enum SddmmSlip;
    const Blocks blocks = x.shape.pairs().row_blocks(t.a);
    m.each(blocks.count(), [&](auto& w, index_t i) {
      const Range I = blocks(i);
      const auto lse_i = w.alloc(x.lse.rows(I));
      if (slip != forgets_lse) w.load_into(lse_i, x.lse.rows(I));
      score_phase(w, x.shape, SlowArray::P, I, x.Q, x.K, t, [&](const Arg& T, const Box& box) {
        if (slip == loads_lse_for_every_tile) w.load_into(lse_i, x.lse.rows(I));
        if (slip == streams_keys_of_the_whole_block)
          w.compute(kernel::Gemm{false, true}, T, w.stream(x.Q.rows(box.rows)), w.stream(x.K.rows(box.keys)));
        w.compute(kernel::Scale{x.scale}, T);
        w.compute(kernel::Weights{x.shape.score}, T, lse_i.rows(box.rows.begin - I.begin, box.rows.size()));
        if (slip == stores_whole_boxes)
          w.store(T, x.P.block(box.rows, box.keys));
        else
          store_visible(w, x.shape, T, x.P, box);
      });
    });
    if (slip == leaves_hidden_pairs_unwritten) return;
    for_hidden_pairs(x.shape, cores_of(x.shape), [&](index_t row, Range keys) {
      if (slip == forgets_keys_before_the_window && keys.begin == 0) return;
      m.update(kernel::ZeroOver{}, x.P.block({row, row + 1}, keys));
    });
  }
};

}  // namespace redblue::test::mutants
