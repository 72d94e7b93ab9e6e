#pragma once
#include "redblue/schedules/strips/backward.hpp"
#include "redblue/schedules/strips/forward.hpp"

/// Slips in the strips of narrow rows.
namespace redblue::test::mutants {

using namespace schedule;

enum class StripsSlip {
  none,
  keeps_words_for_hidden_pairs,
  starts_from_the_first_key,
  misses_the_last_key,
  keeps_keys_instead_of_streaming,
  keeps_lse_beside_the_values,
  forgets_to_store_lse,
  forgets_the_last_column_of_outputs,
  skips_the_initialisation_of_outputs,
  stores_outputs_for_every_key,
};

struct Strips {
  template <Machine M>
  static void run(M& m, const ForwardOperands& x, StripsForward::Tiling t, StripsSlip slip) {
    using enum StripsSlip;
    const Sizes& s = x.shape;
    const Blocks blocks = s.pairs().row_blocks(t.a);
    for (index_t i = 0; i < blocks.count(); ++i) {
      const Strip strip = strip_of_rows(s, blocks(i));
      Range keys = strip.keys;
      if (slip == starts_from_the_first_key) keys.begin = 0;
      if (slip == misses_the_last_key && keys.end == s.n_k) --keys.end;
      const index_t hidden = strip.rows.size() * strip.keys.size() - strip.pairs;
      const auto S_i = m.alloc(SlowArray::S, strip.words()),
                 rest = m.alloc(SlowArray::S, {slip == keeps_words_for_hidden_pairs ? hidden : 0, 1});
      if (slip == keeps_keys_instead_of_streaming) {
        const auto K_i = m.load(x.K.block(keys, {0, 1}));
        form_strip(m, s, S_i, strip, x.Q, x.K);
      } else {
        form_strip(m, s, S_i, {strip.rows, keys, strip.pairs}, x.Q, x.K);
      }
      const auto lse_i = m.alloc(SlowArray::lse, {slip == keeps_lse_beside_the_values ? strip.rows.size() : 0, 1});
      {
        const auto statistics = m.alloc(x.lse.rows(strip.rows));
        m.compute(kernel::Scale{x.scale}, S_i);
        m.compute(kernel::PairSoftmax(strip.box(s)), S_i, statistics, kNoWords);
        if (slip != forgets_to_store_lse || i > 0) m.store(statistics, x.lse.rows(strip.rows));
      }
      outputs(m, x, S_i, {strip.rows, keys, strip.pairs}, slip, i + 1 == blocks.count());
    }
  }

  template <class M, class T>
  static void outputs(M& m, const ForwardOperands& x, const T& P, const Strip& strip, StripsSlip slip, bool last) {
    using enum StripsSlip;
    for (index_t c = 0; c < x.shape.d_v; ++c) {
      const Block O = x.O.block(strip.rows, {c, c + 1});
      const auto O_c = m.alloc(O);
      if (slip != skips_the_initialisation_of_outputs) m.compute(kernel::Zero{}, O_c);
      m.compute(kernel::PairTimesColumn(strip.box(x.shape), false), O_c, P,
                m.stream(x.V.block(strip.keys, {c, c + 1})));
      const bool forgets = slip == forgets_the_last_column_of_outputs && last && c + 1 == x.shape.d_v;
      if (!forgets) m.store(O_c, O);
      if (slip == stores_outputs_for_every_key) m.store(O_c, O);
    }
  }
};

enum class StripsBackwardSlip {
  none,
  forms_dK_before_dS,
  forms_dK_of_the_probabilities,
  multiplies_without_the_transpose,
  reads_lse,
  keeps_lse_to_the_end,
  keeps_a_third_strip,
  loads_the_words_of_all_queries,
  loads_dS_and_P_together,
  spills_to_the_column_of_the_first_query,
  spills_keys_to_their_own_rows,
  forgets_to_spill_the_last_query,
  misses_the_last_block_of_keys,
  takes_dO_for_Q,
};

struct StripsBackwards {
  using S = StripsBackward;
  template <Machine M>
  static void run(M& m, const BackwardOperands& x, S::Tiling t, StripsBackwardSlip slip) {
    using enum StripsBackwardSlip;
    const Pairs pairs = x.shape.pairs();
    const Blocks rows = pairs.row_blocks(t.a), keys = pairs.key_blocks(t.b);
    const auto dK = [&](index_t j) {
      S::product_over_rows(m, x, strip_of_keys(x.shape, keys(j)), x.dK,
                           slip == forms_dK_of_the_probabilities ? x.P_b : x.dS_b, slip == takes_dO_for_Q ? x.dO : x.Q);
    };
    if (slip == forms_dK_before_dS)
      for (index_t j = 0; j < keys.count(); ++j) dK(j);
    for (index_t i = 0; i < rows.count(); ++i) query_gradients(m, x, strip_of_rows(x.shape, rows(i)), slip);
    for (index_t j = 0; j < keys.count() - (slip == misses_the_last_block_of_keys); ++j) {
      const Strip strip = strip_of_keys(x.shape, keys(j));
      const index_t again = slip == loads_dS_and_P_together ? strip.pairs : 0;
      {
        const auto dS_j = m.alloc(x.dS_b.array, {again, 1});
        S::product_over_rows(m, x, strip, x.dV, x.P_b, x.dO);
      }
      if (slip == loads_the_words_of_all_queries) {
        const auto column = m.alloc(x.dS_b.array, {x.dS_b.shape.rows, 1});
        m.load_into(column, x.dS_b.block({0, x.dS_b.shape.rows}, {0, 1}));
      }
      if (slip != forms_dK_before_dS) dK(j);
    }
  }

  template <class M>
  static void query_gradients(M& m, const BackwardOperands& x, const Strip& strip, StripsBackwardSlip slip) {
    using enum StripsBackwardSlip;
    const Sizes& s = x.shape;
    const kernel::PairBox box = strip.box(s);
    const auto store = [&](const auto& tile, const SlowMatrix& band) {
      for_rows_of_strip(s, tile, strip, band, [&](const Arg& part, Block row) {
        if (slip == forgets_to_spill_the_last_query && row.col + 1 == s.n_q) return;
        if (slip == spills_to_the_column_of_the_first_query) row.col = strip.rows.begin;
        if (slip == spills_keys_to_their_own_rows) row.row = s.pairs().keys_of({row.col, row.col + 1}).begin;
        m.store(part, row);
      });
    };
    const auto dS = m.alloc(x.dS_b.array, strip.words());
    {
      const auto P = m.alloc(x.P_b.array, strip.words()),
                 third = m.alloc(x.P_b.array, {slip == keeps_a_third_strip ? strip.pairs : 0, 1}),
                 kept = m.alloc(SlowArray::lse, {slip == keeps_lse_to_the_end ? strip.rows.size() : 0, 1});
      form_strip(m, s, P, strip, x.Q, x.K);
      m.compute(kernel::Scale{x.scale}, P);
      if (slip == reads_lse) {
        m.compute(kernel::PairWeights(box), P, m.stream(x.lse.rows(strip.rows)));
      } else {
        const auto lse_i = m.alloc(SlowArray::lse, {strip.rows.size(), 1});
        m.compute(kernel::PairSoftmax(box), P, lse_i, kNoWords);
      }
      store(P, x.P_b);
      form_strip(m, s, dS, strip, x.dO, x.V);
      const auto D_i = m.alloc(SlowArray::D, {strip.rows.size(), 1});
      m.compute(kernel::PairRowDots(box), D_i, P, dS);
      m.compute(kernel::PairSubtract(box), dS, D_i);
      m.compute(kernel::ScaleByWeights{x.scale}, dS, P);
    }
    store(dS, x.dS_b);
    if (slip == multiplies_without_the_transpose)
      multiply_strip(m, s, x.dK, dS, strip, true, x.Q);
    else
      multiply_strip(m, s, x.dQ, dS, strip, false, x.K);
  }
};

}  // namespace redblue::test::mutants
