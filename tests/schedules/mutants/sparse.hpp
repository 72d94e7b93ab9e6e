#pragma once
#include "redblue/schedules/backward/fused_key_outer.hpp"
#include "redblue/schedules/sparse/backward.hpp"
#include "redblue/schedules/sparse/forward.hpp"
#include "redblue/schedules/sparse/spilled.hpp"
#include "redblue/schedules/sparse/values.hpp"

/// Wrong schedules under a pattern, each with one slip that a person might make. The data-free checks must catch every
/// one.
namespace redblue::test::mutants {

using namespace redblue::schedule;

/// Slips in the forward schedule `sparse`; `none` is the schedule itself, to show that the checks pass a right one.
enum class SparseSlip {
  none,
  multiplies_before_there_are_scores,
  leaves_a_word_of_room_unused,
  keeps_a_word_for_each_pair_of_the_box,
  stores_only_the_first_row_of_a_tile,
  stores_scores_twice,
  begins_statistics_for_every_tile,
  skips_the_initialisation_of_z,
  loads_lse_for_every_column_block,
  reads_keys_that_no_row_of_the_block_sees,
  misses_the_last_key,
  forgets_to_store_lse,
};

struct Sparse {
  using S = SparseForward;
  template <Machine M>
  static void run(M& m, const ForwardOperands& x, const S::Tiling& t, SparseSlip slip) {
    const bool late = slip == SparseSlip::multiplies_before_there_are_scores;
    if (!late) scores(m, x, t.scores, slip);
    output(m, x, t.output, slip);
    if (late) scores(m, x, t.scores, slip);
  }

  template <Machine M>
  static void scores(M& m, const ForwardOperands& x, PairTiling t, SparseSlip slip) {
    using enum SparseSlip;
    const Blocks blocks = x.shape.pairs().row_blocks(std::min(t.a, x.shape.n_q));
    for (index_t i = 0; i < blocks.count(); ++i) {
      const Range I = blocks(i);
      const auto m_i = m.alloc(x.lse.rows(I)), l_i = m.alloc(x.lse.rows(I));
      m.compute(kernel::StatisticsInit{}, m_i, l_i);
      for_pair_tiles(*x.shape.pattern, I, t.room - (slip == leaves_a_word_of_room_unused), [&](const PairTile& tile) {
        const index_t box_words = tile.rows.size() * tile.keys.size() - tile.pairs;
        const auto hidden =
            m.alloc(SlowArray::S, {slip == keeps_a_word_for_each_pair_of_the_box ? box_words : 0, index_t{1}});
        if (slip == begins_statistics_for_every_tile) m.load_into(m_i, x.lse.rows(I));
        pair_tile(m, x.shape, x.S.array, tile, x.Q, x.K, [&](const auto& T, const auto&, const auto& box) {
          m.compute(kernel::Scale{x.scale}, T);
          m.compute(kernel::PairStatistics(box(I)), m_i, l_i, T);
          for_pair_rows(x.shape, tile, x.S, [&](index_t first, const Block& row) {
            if (slip == stores_only_the_first_row_of_a_tile && first > 0) return;
            m.store(T.rows(first, row.shape.rows), row);
            if (slip == stores_scores_twice) m.store(T.rows(first, row.shape.rows), row);
          });
        });
      });
      m.compute(kernel::LogSum{}, m_i, l_i);
      if (slip != forgets_to_store_lse) m.store(m_i, x.lse.rows(I));
    }
  }

  template <Machine M>
  static void output(M& m, const ForwardOperands& x, GemmTiling t, SparseSlip slip) {
    using enum SparseSlip;
    const Sizes& s = x.shape;
    const Blocks blocks = s.pairs().row_blocks(std::min(t.b1, s.n_q)), columns{s.d_v, t.b2};
    for (index_t i = 0; i < blocks.count(); ++i) {
      const Range I = blocks(i), envelope = s.pairs().keys_of(I);
      const auto lse_i = m.load(x.lse.rows(I));
      for (index_t k = 0; k < columns.count(); ++k) {
        const Range C = columns(k);
        if (slip == loads_lse_for_every_column_block && k > 0) m.load_into(lse_i, x.lse.rows(I));
        const auto O_ik = m.alloc(x.O.block(I, C)), z_i = m.alloc(x.lse.rows(I));
        m.compute(kernel::Zero{}, O_ik);
        if (slip != skips_the_initialisation_of_z) m.compute(kernel::Zero{}, z_i);
        if (slip == reads_keys_that_no_row_of_the_block_sees)
          for (index_t j = envelope.begin, n = envelope.size() - s.pairs().runs_of_keys(I).count(); n > 0; --n)
            const auto v = m.load(x.V.block({j, j + 1}, C));
        for_pair_terms(m, s, O_ik.shape(), x.S, false, I, x.V, C,
                       [&](index_t j, Range window, const auto& scores, const auto& v) {
                         if (slip == misses_the_last_key && j + 1 == s.n_k) return;
                         const Place place{s.mask, I.begin, j};
                         m.compute(kernel::PairWeightsAccumulate{place, {{}, window.begin, window.size()}}, O_ik, z_i,
                                   scores, lse_i, v);
                       });
        m.compute(kernel::DivideRows{}, O_ik, z_i);
        m.store(O_ik, x.O.block(I, C));
      }
    }
  }
};

/// Slips in the backward schedule `sparse`: its six phases, left out, repeated or out of order.
enum class SparsePhaseSlip {
  none,
  forgets_D,
  forms_D_too_late,
  forms_dV_before_the_probabilities,
  forms_dS_before_the_probabilities,
  forms_the_probabilities_twice,
  forms_dS_twice,
  forgets_to_transpose_P,
  multiplies_dV_by_O,
  multiplies_a_matrix_with_hidden_words,
  forgets_dK,
  stores_dK_into_dV,
};

struct SparsePhases {
  using S = SparseBackward;
  template <Machine M>
  static void run(M& m, const BackwardOperands& x, const S::Tiling& t, SparsePhaseSlip slip) {
    using enum SparsePhaseSlip;
    const Sizes& s = x.shape;
    const auto dots = [&] { output_dots(m, x, [&](const Sizes& sizes) { return S::footprint(sizes, t); }); };
    const auto dV = [&] { spmm(m, s, x.dV, x.P, true, slip == multiplies_dV_by_O ? x.O : x.dO, t.dV); };
    if (slip != forgets_D && slip != forms_D_too_late) dots();
    if (slip == forms_dV_before_the_probabilities) dV();
    if (slip == forms_dS_before_the_probabilities) pair_gradients(m, x, t.dS);
    pair_weights(m, x, t.P);
    if (slip == forms_the_probabilities_twice) pair_weights(m, x, t.P);
    if (slip != forms_dV_before_the_probabilities) dV();
    if (slip != forms_dS_before_the_probabilities) pair_gradients(m, x, t.dS);
    if (slip == forms_dS_twice) pair_gradients(m, x, t.dS);
    if (slip == forms_D_too_late) dots();
    if (slip == multiplies_a_matrix_with_hidden_words)
      gemm(m, s.fast, x.dQ, {SlowMatrix{SlowArray::P, {s.n_q, s.n_k}}}, {x.K}, t.dQ);
    else
      spmm(m, s, x.dQ, x.P, false, x.K, t.dQ);
    if (slip != forgets_dK)
      spmm(m, s, slip == stores_dK_into_dV ? x.dV : x.dK, x.P, slip != forgets_to_transpose_P, x.Q, t.dK);
  }
};

/// Slips in the panels of the backward schedule `sparse`: P with rows resident, dS with keys resident.
enum class PanelSlip {
  none,
  loads_the_rows_for_every_key,
  streams_lse_for_every_key,
  passes_keys_that_no_row_of_the_panel_sees,
  keeps_a_word_for_each_row_of_the_panel,
  misses_the_last_key,
  loads_queries_instead_of_streaming,
  loads_D,
  loads_P_instead_of_streaming,
  takes_dP_of_the_query_before,
  visits_queries_that_see_nothing_of_the_panel,
  misses_the_last_panel_of_keys,
  forgets_to_store_dS_of_the_last_query,
};

struct SparsePanels {
  using S = SparseBackward;
  template <Machine M>
  static void run(M& m, const BackwardOperands& x, const S::Tiling& t, PanelSlip slip) {
    const Sizes& s = x.shape;
    output_dots(m, x, [&](const Sizes& sizes) { return S::footprint(sizes, t); });
    weights(m, x, t.P.a, slip);
    spmm(m, s, x.dV, x.P, true, x.dO, t.dV);
    gradients(m, x, t.dS.b, slip);
    spmm(m, s, x.dQ, x.P, false, x.K, t.dQ);
    spmm(m, s, x.dK, x.P, true, x.Q, t.dK);
  }

  template <Machine M>
  static void weights(M& m, const BackwardOperands& x, index_t a, PanelSlip slip) {
    using enum PanelSlip;
    const Sizes& s = x.shape;
    const Blocks blocks = s.pairs().row_blocks(a);
    for (index_t i = 0; i < blocks.count(); ++i) {
      const Range I = blocks(i);
      const bool passes_lse = slip == streams_lse_for_every_key;
      const auto Q_i = m.load(x.Q.rows(I));
      const auto lse_i = m.load(x.lse.rows(passes_lse ? Range{I.begin, I.begin} : I));
      const index_t last = s.n_k - (slip == misses_the_last_key ? 1 : 0);
      for (index_t j = 0; j < last; ++j) {
        const index_t pairs = s.pattern->keys().count(j, I);
        if (pairs == 0 && slip != passes_keys_that_no_row_of_the_panel_sees) continue;
        if (slip == loads_the_rows_for_every_key) m.load_into(Q_i, x.Q.rows(I));
        const auto T = m.alloc(SlowArray::P, {pairs, 1});
        const auto others =
            m.alloc(SlowArray::P, {slip == keeps_a_word_for_each_row_of_the_panel ? I.size() - pairs : 0, index_t{1}});
        const kernel::PairBox box{{s.mask, I.begin, j}, I.size(), 1, 0, I.size()};
        m.compute(kernel::PairScores{box.place, false}, T, Q_i, m.stream(x.K.rows({j, j + 1})));
        m.compute(kernel::Scale{x.scale}, T);
        if (passes_lse)
          m.compute(kernel::PairWeights(box), T, m.stream(x.lse.rows(I)));
        else
          m.compute(kernel::PairWeights(box), T, lse_i);
        for_pair_rows(s, PairTile{I, {j, j + 1}, pairs, pairs, 1}, x.P,
                      [&](index_t first, const Block& row) { m.store(T.rows(first, row.shape.rows), row); });
      }
    }
  }

  template <Machine M>
  static void gradients(M& m, const BackwardOperands& x, index_t b, PanelSlip slip) {
    using enum PanelSlip;
    const Sizes& s = x.shape;
    const Blocks blocks = s.pairs().key_blocks(b);
    for (index_t j = 0; j < blocks.count() - (slip == misses_the_last_panel_of_keys); ++j) {
      const Range J = blocks(j), seeing = s.pairs().rows_of(J);
      const auto V_j = m.load(x.V.rows(J));
      if (slip == visits_queries_that_see_nothing_of_the_panel)
        for (index_t n = seeing.size() - s.pairs().runs_of_rows(J).count(); n > 0; --n)
          const auto dO_i = m.load(x.dO.rows(seeing.begin, 1));
      for_rows_of(x, J, [&](index_t i, const Block& words) {
        const Range row{i, i + 1};
        const auto dP = m.alloc(words);
        const kernel::PairBox box = box_of_row(s, i, J);
        const kernel::PairScores products{{s.mask, i, J.begin}};
        if (slip == loads_queries_instead_of_streaming) {
          const auto dO_i = m.load(x.dO.rows(row));
          m.compute(products, dP, V_j, dO_i);
        } else if (slip != takes_dP_of_the_query_before || i == 0) {
          m.compute(products, dP, V_j, m.stream(x.dO.rows(row)));
        }
        if (slip == loads_D) {
          const auto D_i = m.load(x.D.rows(row)), again = m.load(x.D.rows(row));
          m.compute(kernel::PairSubtract(box), dP, D_i);
        } else {
          m.compute(kernel::PairSubtract(box), dP, m.stream(x.D.rows(row)));
        }
        if (slip == loads_P_instead_of_streaming) {
          const auto P_ij = m.load(words);
          m.compute(kernel::ScaleByWeights{x.scale}, dP, P_ij);
        } else {
          m.compute(kernel::ScaleByWeights{x.scale}, dP, m.stream(words));
        }
        if (slip != forgets_to_store_dS_of_the_last_query || i + 1 < s.n_q) m.store(dP, words);
      });
    }
  }
};

/// Slips in the pass over blocks of values of sparse_values.
enum class ValuesSlip {
  none,
  forms_D_after_the_pass,
  takes_probabilities_for_granted,
  forms_the_probabilities_too_late,
  loads_values_for_every_query,
  loads_dO_instead_of_streaming,
  streams_dO_once_for_dP_and_once_for_dV,
  keeps_D_of_the_query,
  skips_the_initialisation_of_dP,
  skips_the_initialisation_of_dV,
  keeps_a_third_row_of_scores,
  visits_queries_that_see_nothing_of_the_block,
  misses_the_last_block_of_values,
  forgets_to_store_dS_of_the_last_query,
  forgets_to_store_the_last_dV,
  stores_dV_for_every_query,
};

struct SparseValues {
  using S = SparseValuesBackward;
  template <Machine M>
  static void run(M& m, const BackwardOperands& x, const S::Tiling& t, ValuesSlip slip) {
    using enum ValuesSlip;
    const Sizes& s = x.shape;
    const auto dots = [&] { output_dots(m, x, [&](const Sizes& sizes) { return S::footprint(sizes, t); }); };
    if (slip != forms_D_after_the_pass) dots();
    if (slip != forms_the_probabilities_too_late) pair_weights(m, x, t.P);
    const Blocks blocks = s.pairs().key_blocks(std::min(t.Bc, s.n_k));
    for (index_t j = 0; j < blocks.count() - (slip == misses_the_last_block_of_values); ++j) {
      const Range J = blocks(j), seeing = s.pairs().rows_of(J);
      const auto V_j = m.load(x.V.rows(J)), dV_j = m.alloc(x.dV.rows(J));
      if (slip != skips_the_initialisation_of_dV) m.compute(kernel::Zero{}, dV_j);
      if (slip == visits_queries_that_see_nothing_of_the_block)
        for (index_t n = seeing.size() - s.pairs().runs_of_rows(J).count(); n > 0; --n)
          const auto dO_i = m.load(x.dO.rows(seeing.begin, 1));
      for_rows_of(x, J, [&](index_t i, const Block& P_block) {
        const Range row{i, i + 1};
        const kernel::PairValueGradients gradients{{s.mask, i, J.begin}};
        if (slip == loads_values_for_every_query) m.load_into(V_j, x.V.rows(J));
        const auto P_ij = slip == takes_probabilities_for_granted ? m.alloc(P_block) : m.load(P_block),
                   dP = m.alloc(P_block),
                   third = m.alloc(P_block.array, slip == keeps_a_third_row_of_scores ? P_block.shape : Shape{0, 1});
        if (slip != skips_the_initialisation_of_dP) m.compute(kernel::Zero{}, dP);
        if (slip == loads_dO_instead_of_streaming) {
          const auto dO_i = m.load(x.dO.rows(row));
          m.compute(gradients, dP, dV_j, P_ij, V_j, dO_i);
        } else {
          m.compute(gradients, dP, dV_j, P_ij, V_j, m.stream(x.dO.rows(row)));
        }
        if (slip == streams_dO_once_for_dP_and_once_for_dV)
          m.compute(kernel::PairAccumulate{gradients.place, 0, J.size(), true}, dV_j, P_ij, m.stream(x.dO.rows(row)));
        const kernel::PairSubtract subtract(box_of_row(s, i, J));
        if (slip == keeps_D_of_the_query) {
          const auto D_i = m.load(x.D.rows(row)), lse_i = m.load(x.lse.rows(row));
          m.compute(subtract, dP, D_i);
        } else {
          m.compute(subtract, dP, m.stream(x.D.rows(row)));
        }
        m.compute(kernel::ScaleByWeights{x.scale}, dP, P_ij);
        if (slip != forgets_to_store_dS_of_the_last_query || i + 1 < s.n_q) m.store(dP, P_block);
        if (slip == stores_dV_for_every_query) m.store(dV_j, x.dV.rows(J));
      });
      if (slip != forgets_to_store_the_last_dV || j + 1 < blocks.count()) m.store(dV_j, x.dV.rows(J));
    }
    if (slip == forms_D_after_the_pass) dots();
    if (slip == forms_the_probabilities_too_late) pair_weights(m, x, t.P);
    spmm(m, s, x.dQ, x.P, false, x.K, t.dQ);
    spmm(m, s, x.dK, x.P, true, x.Q, t.dK);
  }
};

/// Slips in the pass over blocks of keys of sparse_spilled.
enum class SparseSpillSlip {
  none,
  forgets_D,
  multiplies_before_the_pass,
  loads_keys_for_every_query,
  keeps_queries_of_the_whole_block,
  loads_lse_and_D,
  loads_dO_instead_of_streaming,
  keeps_scores_of_hidden_keys,
  skips_the_initialisation_of_dK,
  spills_the_probabilities_too,
  spills_to_the_rows_of_another_query,
  forgets_to_spill_for_the_last_query,
  misses_the_last_block_of_keys,
  forgets_to_store_the_last_dK,
  stores_dV_into_V,
};

struct SparseSpilled {
  using S = SparseSpilledBackward;
  template <Machine M>
  static void run(M& m, const BackwardOperands& x, const S::Tiling& t, SparseSpillSlip slip) {
    using enum SparseSpillSlip;
    const Sizes& s = x.shape;
    if (slip != forgets_D) output_dots(m, x, [&](const Sizes& sizes) { return S::footprint(sizes, t); });
    if (slip == multiplies_before_the_pass) spmm(m, s, x.dQ, x.P, false, x.K, t.dQ);
    const Blocks blocks = s.pairs().key_blocks(std::min(t.Bc, s.n_k));
    for (index_t j = 0; j < blocks.count() - (slip == misses_the_last_block_of_keys); ++j) {
      const Range J = blocks(j);
      const auto K_j = m.load(x.K.rows(J)), V_j = m.load(x.V.rows(J)), dK_j = m.alloc(x.dK.rows(J)),
                 dV_j = m.alloc(x.dV.rows(J));
      if (slip != skips_the_initialisation_of_dK) m.compute(kernel::Zero{}, dK_j);
      m.compute(kernel::Zero{}, dV_j);
      const index_t more = slip == keeps_queries_of_the_whole_block ? s.pairs().runs_of_rows(J).count() - 1 : 0;
      const auto others = m.alloc(SlowArray::Q, {more, s.d});
      for_rows_of(x, J, [&](index_t i, const Block& P_block) {
        const Range row{i, i + 1};
        const Place place{s.mask, i, J.begin};
        const kernel::PairBox box = box_of_row(s, i, J);
        if (slip == loads_keys_for_every_query) m.load_into(K_j, x.K.rows(J));
        const index_t hidden = slip == keeps_scores_of_hidden_keys ? J.size() - P_block.shape.rows : 0;
        const auto Q_i = m.load(x.Q.rows(row)), P_ij = m.alloc(P_block), dP = m.alloc(P_block),
                   of_hidden = m.alloc(P_block.array, {hidden, 1});
        m.compute(kernel::PairScores{place}, P_ij, K_j, Q_i);
        if (slip == loads_lse_and_D) {
          const auto lse_i = m.load(x.lse.rows(row)), D_i = m.load(x.D.rows(row));
          m.compute(kernel::Scale{x.scale}, P_ij);
          m.compute(kernel::PairWeights(box), P_ij, lse_i);
          m.compute(kernel::Zero{}, dP);
          m.compute(kernel::PairValueGradients{place}, dP, dV_j, P_ij, V_j, m.stream(x.dO.rows(row)));
          m.compute(kernel::PairSubtract(box), dP, D_i);
        } else {
          m.compute(kernel::Scale{x.scale}, P_ij);
          m.compute(kernel::PairWeights(box), P_ij, m.stream(x.lse.rows(row)));
          m.compute(kernel::Zero{}, dP);
          if (slip == loads_dO_instead_of_streaming) {
            const auto dO_i = m.load(x.dO.rows(row));
            m.compute(kernel::PairValueGradients{place}, dP, dV_j, P_ij, V_j, dO_i);
          } else {
            m.compute(kernel::PairValueGradients{place}, dP, dV_j, P_ij, V_j, m.stream(x.dO.rows(row)));
          }
          m.compute(kernel::PairSubtract(box), dP, m.stream(x.D.rows(row)));
        }
        if (slip == spills_the_probabilities_too) m.store(P_ij, P_block);
        m.compute(kernel::ScaleByWeights{x.scale}, dP, P_ij);
        Block to = P_block;
        if (slip == spills_to_the_rows_of_another_query) to.row = 0;
        if (slip != forgets_to_spill_for_the_last_query || i + 1 < s.n_q) m.store(dP, to);
        m.compute(kernel::PairAccumulate{place, 0, J.size(), true}, dK_j, dP, Q_i);
      });
      if (slip != forgets_to_store_the_last_dK || j + 1 < blocks.count()) m.store(dK_j, x.dK.rows(J));
      m.store(dV_j, (slip == stores_dV_into_V ? x.V : x.dV).rows(J));
    }
    if (slip != multiplies_before_the_pass) spmm(m, s, x.dQ, x.P, false, x.K, t.dQ);
  }
};

/// fused_key_outer that takes the queries of a step which visit their first keys for the last ones, as under a mask.
struct KeyOuterOfMasks {
  using S = FusedKeyOuterBackward;
  template <Machine M>
  static void run(M& m, const BackwardOperands& x, const S::Tiling& t) {
    output_dots(m, x, [&](const Sizes& s) { return S::footprint(s, t); });
    const Pairs pairs = x.shape.pairs();
    const Blocks blocks = pairs.key_blocks(t.Bc);
    for (index_t j = 0; j < blocks.count(); ++j) {
      const Range J = blocks(j);
      key_pass(m, x, J, t.br, [&](auto& w, Range I, const Arg& dS_ij, const auto& K_j) {
        const Range again{I.begin, first_visit(pairs, I, J)}, fresh{again.end, I.end};
        for (const Range part : {again, fresh})
          if (part.size() > 0)
            add_query_gradients(w, x, {I, J}, part, part.begin == fresh.begin, x.dQ.rows(part), dS_ij, K_j);
      });
    }
  }
};

}  // namespace redblue::test::mutants
