#pragma once
#include "redblue/schedule/backward/ring_queries.hpp"
#include "redblue/schedule/backward/ring_two_pass.hpp"

/// Wrong rings of gradients, each with one slip that a person might make. The data-free checks must catch every one.
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
};

struct RingQueries {
  using S = RingQueriesBackward;
  template <Machine M>
  static void run(M& m, const BackwardOperands& x, S::Tiling t, RingQueriesSlip slip) {
    using enum RingQueriesSlip;
    const Pairs pairs = x.shape.pairs();
    const Blocks blocks = pairs.key_blocks(t.Bc);
    const schedule::Ring ring{S::places(x.shape, t) + (slip == has_a_place_too_many) - (slip == has_a_place_too_few)};
    const S::Queries<M> queries(m, x, ring.places);
    index_t entered = 0;
    for (index_t j = 0; j < blocks.count(); ++j) {
      const Range seeing = pairs.rows_of(blocks(j));
      const index_t last = slip == forgets_to_store_the_last_dQ ? seeing.begin : x.shape.n_q;
      const index_t staying = j + 1 < blocks.count() ? pairs.rows_of(blocks(j + 1)).begin : last;
      const KeyTiles<M> keys(m, x, blocks(j));
      const auto step = [&](Range I, Range rows) {
        if (slip == leaves_out_the_second_part && rows.begin == 0 && I.begin > 0) return;
        if (slip == lets_queries_enter_with_the_next_keys && I.begin >= entered && j + 1 < blocks.count()) return;
        const auto early = m.alloc(SlowArray::P, {slip == holds_weights_while_O_passes ? 2 * t.br : 0, t.Bc});
        if (I.begin >= entered || slip == loads_queries_again) S::enter(m, x, queries, I, rows);
        if (slip == forms_D_for_every_key)
          m.compute(kernel::RowDots{}, queries.D.rows(rows.begin, rows.size()),
                    queries.dO.rows(rows.begin, rows.size()), m.stream(x.O.rows(I)));
        S::attend(m, x, queries, I, rows, keys, t.br);
        if (I.end <= staying || slip == stores_dQ_for_every_key)
          m.store(queries.dQ.rows(rows.begin, rows.size()), x.dQ.rows(I));
      };
      for (index_t i = seeing.begin; i < seeing.end;) {
        index_t end = std::min(i + t.br, seeing.end);
        for (const index_t cut : {entered, staying})
          if (i < cut) end = std::min(end, cut);
        ring.for_parts({i, end}, step);
        i = end;
      }
      entered = seeing.end;
      keys.store(m, x);
    }
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
  multiplies_keys_that_did_not_come,
  loads_queries_instead_of_streaming,
  keeps_dQ_resident,
  forgets_to_store_D,
};

struct RingTwoPass {
  using S = RingTwoPassBackward;
  template <Machine M>
  static void run(M& m, const BackwardOperands& x, S::Tiling t, RingTwoPassSlip slip) {
    using enum RingTwoPassSlip;
    const index_t s = slip == keeps_the_first_ring ? most_seen_keys(x.shape, t.Br) : 0;
    const auto first = m.alloc(SlowArray::K, {s, x.shape.d});
    if (slip == forms_D_too_late) S::key_gradients(m, x, t.Bc);
    queries(m, x, t.Br, slip);
    if (slip != forms_D_too_late && slip != forgets_dK_and_dV) S::key_gradients(m, x, t.Bc);
  }

  template <class M>
  static void queries(M& m, const BackwardOperands& x, index_t Br, RingTwoPassSlip slip) {
    using enum RingTwoPassSlip;
    const Blocks blocks = x.shape.pairs().row_blocks(Br);
    const schedule::Ring ring{most_seen_keys(x.shape, Br)};
    const auto K = m.alloc(SlowArray::K, {ring.places, x.shape.d}),
               V = m.alloc(SlowArray::V, {ring.places, x.shape.d_v});
    index_t loaded = 0;
    for (index_t i = 0; i < blocks.count(); ++i) {
      const Range I = blocks(i), seen = x.shape.pairs().keys_of(I);
      const index_t from = slip == loads_keys_again ? seen.begin : std::max(loaded, seen.begin);
      ring.for_parts({from, seen.end}, [&](Range J, Range rows) {
        m.load_into(K.rows(rows.begin, rows.size()), x.K.rows(J));
        m.load_into(V.rows(rows.begin, rows.size()), x.V.rows(J));
      });
      loaded = seen.end;
      const Range held = ring.held(loaded);
      const index_t used = slip == multiplies_keys_that_did_not_come ? ring.places : held.size();
      const Arg K_j = K.rows(0, used), V_j = V.rows(0, used);
      const auto dP = m.alloc(SlowArray::P, {I.size(), ring.places});
      const Arg dS = dP.cols(used);
      {
        const auto S = m.alloc(SlowArray::P, dP.shape());
        const Arg P = S.cols(used);
        if (slip == loads_queries_instead_of_streaming) {
          const auto lse_i = m.alloc(x.lse.rows(I));
          const auto Q_i = m.load(x.Q.rows(I));
          m.compute(kernel::Scores{x.scale}, P, Q_i, K_j);
        } else if (slip == streams_queries_for_each_part_of_the_ring) {
          const Box tile{{0, I.size()}, {0, used}};
          ring.for_parts(seen, [&](Range J, Range rows) {
            m.compute(kernel::Scores{x.scale, {x.shape.mask, I.begin, J.begin}}, part_of(P, tile, tile.rows, rows),
                      m.stream(x.Q.rows(I)), K.rows(rows.begin, rows.size()));
          });
        } else {
          m.compute(kernel::Scores{x.scale}, P, m.stream(x.Q.rows(I)), K_j);
        }
        RingTwoPassBackward::hide_in_ring(m, x, P, {I, held}, ring, false);
        {
          const auto lse_i = m.alloc(x.lse.rows(I));
          m.compute(kernel::BlockSoftmax{}, P, lse_i);
        }
        m.compute(kernel::Zero{}, dS);
        m.compute(kernel::Gemm{false, true}, dS, m.stream(x.dO.rows(I)), V_j);
        const auto D_i = m.alloc(x.D.rows(I));
        m.compute(kernel::RowDots{}, D_i, P, dS);
        m.compute(kernel::ScoreGradient{x.shape.score, x.scale}, dS, P, D_i);
        if (slip != forgets_to_store_D) m.store(D_i, x.D.rows(I));
      }
      if (slip == keeps_dQ_resident) {
        const auto dQ_i = m.alloc(SlowArray::dQ, {x.shape.n_q, x.shape.d});
        const Arg part = dQ_i.rows(0, I.size());
        m.compute(kernel::Zero{}, part);
        m.compute(kernel::Gemm{}, part, dS, K_j);
        m.store(part, x.dQ.rows(I));
      } else {
        m.update(kernel::GemmOver{false, false, true}, x.dQ.rows(I), dS, K_j);
      }
    }
  }
};

}  // namespace redblue::test::mutants
