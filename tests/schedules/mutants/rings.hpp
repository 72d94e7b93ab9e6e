#pragma once
#include "redblue/schedules/ring/forward.hpp"
#include "redblue/schedules/ring/queries.hpp"
#include "redblue/schedules/ring/two_pass.hpp"

/// Wrong rings, each with one slip that a person might make. The data-free checks must catch every one.
namespace redblue::test::mutants {

using namespace redblue::schedule;

/// Slips in ring_queries; `none` is the schedule itself, to show that the checks pass a right one.
enum class RingQueriesSlip {
  none,
  has_a_place_too_few,
  has_a_place_too_many,
  loads_queries_again,
  forms_D_for_every_key,
  holds_weights_while_O_passes,
  stores_dQ_for_every_key,
  forgets_to_store_the_last_dQ,
  leaves_out_the_second_part,
  lets_queries_enter_with_the_next_keys,
  forgets_queries_that_see_nothing,  ///< under a pattern
  // With pinned keys:
  meets_pinned_keys_with_every_block,
  never_meets_pinned_keys,
  misses_queries_that_only_pinned_keys_see,
  forgets_to_store_pinned_gradients,
};

struct RingQueries {
  using S = RingQueriesBackward;
  template <Machine M>
  static void run(M& m, const BackwardOperands& x, S::Tiling t, RingQueriesSlip slip) {
    using enum RingQueriesSlip;
    const RingSide side = S::side(x.shape, t);
    RingSteps steps(side, S::places(x.shape, t) + (slip == has_a_place_too_many) - (slip == has_a_place_too_few), t.br,
                    RingOrder::leaving_first);
    const S::Queries<M> queries(m, x, steps.places());
    const PinnedKeys<M> pinned(m, x, side.blocks.pins(), std::min(t.Bc, x.shape.n_k));
    for (index_t j = 0; j < side.blocks.count(); ++j) {
      const bool last = j + 1 == side.blocks.count();
      const KeyTiles<M> keys(m, x, side.blocks(j));
      for (const RingStep& i : steps.next()) {
        if (slip == leaves_out_the_second_part && i.rows.begin == 0 && i.items.begin > 0) continue;
        if (slip == lets_queries_enter_with_the_next_keys && i.enters && !last) continue;
        if (slip == misses_queries_that_only_pinned_keys_see && last && i.enters && i.leaves) continue;
        const auto early = m.alloc(SlowArray::P, {slip == holds_weights_while_O_passes ? 2 * t.br : 0, t.Bc});
        if (i.enters || slip == loads_queries_again) S::enter(m, x, queries, i);
        const Arg D_i = queries.D.rows(i.rows.begin, i.rows.size()),
                  dQ_i = queries.dQ.rows(i.rows.begin, i.rows.size());
        if (slip == forms_D_for_every_key)
          m.compute(kernel::RowDots{}, D_i, queries.dO.rows(i.rows.begin, i.rows.size()), m.stream(x.O.rows(i.items)));
        if ((i.enters || slip == meets_pinned_keys_with_every_block) && slip != never_meets_pinned_keys)
          pinned.for_parts(keys.slopes.arg(),
                           [&](const KeyArgs& some) { S::attend(m, x, queries, i, some, pinned.most(), t.br); });
        S::attend(m, x, queries, i, keys.args(), keys.keys.size(), t.br);
        const bool stores = i.leaves && !(slip == forgets_to_store_the_last_dQ && last);
        if (stores || slip == stores_dQ_for_every_key) m.store(dQ_i, x.dQ.rows(i.items));
      }
      keys.store(m, x);
    }
    if (slip != forgets_to_store_pinned_gradients) pinned.store(m, x);
    if (slip != forgets_queries_that_see_nothing)
      for_unmet(side, [&](Range I) { m.update(kernel::ZeroOver{}, x.dQ.rows(I)); });
  }
};

/// Slips in the forward ring with pinned queries.
enum class PinnedRingSlip {
  none,
  attends_to_keys_with_every_block,
  never_attends_to_keys,
  misses_keys_that_only_pinned_queries_see,
  forgets_to_store_pinned_outputs,
  lets_pinned_queries_pass_too,
};

struct PinnedRing {
  using S = RingForward;
  template <Machine M>
  static void run(M& m, const ForwardOperands& x, S::Tiling t, PinnedRingSlip slip) {
    using enum PinnedRingSlip;
    const RingSide side = S::side(x.shape, t);
    RingSteps steps(side, S::places(x.shape, t), t.Bc, RingOrder::reading);
    const auto K_ring = m.alloc(SlowArray::K, {steps.places(), x.shape.d}),
               V_ring = m.alloc(SlowArray::V, {steps.places(), x.shape.d_v});
    const PinnedQueries<M> pinned(m, x, side.blocks.pins(), std::min(t.Br, x.shape.n_q), std::min(t.Bc, x.shape.n_k));
    for (index_t i = 0; i < side.blocks.count(); ++i) {
      const Range I = side.blocks(i);
      std::vector<RingStep> of_block = steps.next();
      if (slip == misses_keys_that_only_pinned_queries_see && i + 1 == side.blocks.count())
        std::erase_if(of_block, [](const RingStep& j) { return j.enters && j.leaves; });
      const RingStep* j = of_block.data();
      const auto ring = [&](auto& w, const Block& b) {
        const Arg place = (b.array == x.K.array ? K_ring : V_ring).rows(j->rows.begin, j->rows.size());
        if (j->enters) w.load_into(place, b);
        return place;
      };
      const auto meet = [&](auto& w, Range J, const Arg& K_j, const Arg& V_j, const Arg& slopes) {
        if ((j->enters || slip == attends_to_keys_with_every_block) && slip != never_attends_to_keys)
          pinned.attend(w, x, J, K_j, V_j, slopes);
        ++j;
      };
      FlashForward::attend(m, x, {I, x.O.rows(I), x.lse.rows(I)}, items_of(of_block), t.Bc, ring, meet);
    }
    if (slip == lets_pinned_queries_pass_too)
      for (const Range& I : side.blocks.pins())
        FlashForward::attend(m, x, {I, x.O.rows(I), x.lse.rows(I)}, x.shape.pairs().runs_of_keys(I), t.Bc,
                             [](auto& w, const Block& b) { return w.stream(b); });
    if (slip != forgets_to_store_pinned_outputs) pinned.store(m, x);
  }
};

/// Slips in ring_two_pass: its passes as wholes, and the first one.
enum class RingTwoPassSlip {
  none,
  forms_D_too_late,
  forgets_dK_and_dV,
  keeps_the_first_ring,
  loads_keys_again,
  streams_queries_for_each_part_of_the_ring,
  forgets_to_store_D,
  // Caught where the first pass has the larger footprint:
  loads_queries_whole,
  keeps_dQ_resident,
  leaves_room_for_all_that_the_ring_holds,  ///< under a pattern
};

struct RingTwoPass {
  using S = RingTwoPassBackward;
  template <Machine M>
  static void run(M& m, const BackwardOperands& x, S::Tiling t, RingTwoPassSlip slip) {
    using enum RingTwoPassSlip;
    const index_t s = slip == keeps_the_first_ring ? most_seen_keys(x.shape, t.Br) : 0;
    const auto first = m.alloc(SlowArray::K, {s, x.shape.d});
    if (slip == forms_D_too_late) S::key_gradients(m, x, t);
    queries(m, x, t, slip);
    if (slip != forms_D_too_late && slip != forgets_dK_and_dV) S::key_gradients(m, x, t);
  }

  template <class M>
  static void queries(M& m, const BackwardOperands& x, S::Tiling t, RingTwoPassSlip slip) {
    using enum RingTwoPassSlip;
    const RingSide side = S::keys_of(x.shape, t);
    RingSteps steps(side, side.places_together(x.shape), x.shape.n_k, RingOrder::together);
    const auto K = m.alloc(SlowArray::K, {steps.places(), x.shape.d}),
               V = m.alloc(SlowArray::V, {steps.places(), x.shape.d_v});
    for (index_t i = 0; i < side.blocks.count(); ++i) {
      const std::vector<RingStep>& of_block = steps.next();
      for (const RingStep& j : of_block) {
        if (!j.enters && slip != loads_keys_again) continue;
        m.load_into(K.rows(j.rows.begin, j.rows.size()), x.K.rows(j.items));
        m.load_into(V.rows(j.rows.begin, j.rows.size()), x.V.rows(j.items));
      }
      block(m, x, K.arg(), V.arg(), side.blocks(i), joined(of_block), t, slip);
    }
  }
  template <class M>
  static void block(M& m, const BackwardOperands& x, const Arg& K, const Arg& V, Range I,
                    const std::vector<RingPart>& seen, S::Tiling t, RingTwoPassSlip slip) {
    using enum RingTwoPassSlip;
    const auto at = [&](const Arg& tile, const RingPart& j) { return part_of(tile, {}, {0, I.size()}, j.columns); };
    const index_t more = slip == leaves_room_for_all_that_the_ring_holds ? K.shape().rows - columns_of(seen) : 0;
    const auto dS = m.alloc(SlowArray::P, {I.size(), columns_of(seen) + more});
    {
      const auto P = m.alloc(SlowArray::P, dS.shape());
      m.compute(kernel::Zero{}, P);
      for_columns(x.shape.d, slip == loads_queries_whole ? x.shape.d : t.bd, [&](Range columns) {
        const auto Q_i = m.load(x.Q.block(I, columns));
        for (const RingPart& j : seen) {
          m.compute(kernel::Gemm{false, true}, at(P.arg(), j), Q_i, part_of(K, {}, j.rows, columns));
          if (slip == streams_queries_for_each_part_of_the_ring) m.load_into(Q_i, x.Q.block(I, columns));
        }
      });
      m.compute(kernel::Scale{x.scale}, P);
      for (const RingPart& j : seen) hide(m, x.shape, at(P.arg(), j), {I, j.items});
      {
        const auto lse_i = m.alloc(x.lse.rows(I));
        m.compute(kernel::BlockSoftmax{}, P, lse_i);
      }
      m.compute(kernel::Zero{}, dS);
      for_columns(x.shape.d_v, t.bv, [&](Range columns) {
        const auto dO_i = m.load(x.dO.block(I, columns));
        for (const RingPart& j : seen)
          m.compute(kernel::Gemm{false, true}, at(dS.arg(), j), dO_i, part_of(V, {}, j.rows, columns));
      });
      const auto D_i = m.alloc(x.D.rows(I));
      m.compute(kernel::RowDots{}, D_i, P, dS);
      m.compute(kernel::ScoreGradient{x.shape.score, x.scale}, dS, P, D_i);
      if (slip != forgets_to_store_D) m.store(D_i, x.D.rows(I));
    }
    const auto kept = m.alloc(SlowArray::dQ, {slip == keeps_dQ_resident ? x.shape.n_q : 0, x.shape.d});
    for_columns(x.shape.d, t.bd, [&](Range columns) {
      const auto dQ_i = m.alloc(x.dQ.block(I, columns));
      m.compute(kernel::Zero{}, dQ_i);
      for (const RingPart& j : seen) m.compute(kernel::Gemm{}, dQ_i, at(dS.arg(), j), part_of(K, {}, j.rows, columns));
      m.store(dQ_i, x.dQ.block(I, columns));
    });
  }
};

}  // namespace redblue::test::mutants
