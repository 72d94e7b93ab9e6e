#pragma once
#include "redblue/schedules/backward/fused_key_outer.hpp"
#include "redblue/schedules/backward/fused_query_outer.hpp"
#include "redblue/schedules/backward/grouped_key_outer.hpp"
#include "redblue/schedules/backward/materialised.hpp"
#include "redblue/schedules/gradient/query_outer.hpp"

/// Wrong gradient schedules, each with one slip that a person might make. The data-free checks must catch every one
/// but those of BlindSlip.
namespace redblue::test::mutants {

using namespace redblue::schedule;

/// Slips in fused_key_outer; `none` is the schedule itself, to show that the checks pass a right one.
enum class KeySlip {
  none,
  forgets_D,
  forms_D_after_the_pass,
  reloads_keys_for_every_query,
  loads_dO_instead_of_streaming,
  streams_dO_once_for_dP_and_once_for_dV,
  loads_lse_for_every_key,
  reads_dQ_before_it_is_written,
  forgets_what_dQ_was,
  stores_dQ_into_Q,
  allocates_scores_too_early,
  keeps_scores_for_all_queries,
  skips_the_initialisation_of_dK,
  skips_the_initialisation_of_dP,
  visits_queries_that_see_nothing,
  misses_the_last_query,
  misses_the_last_block_of_keys,
  forgets_to_store_the_last_dK,
  stores_dV_for_every_query,
};

struct FusedKeys {
  template <Machine M>
  static void run(M& m, const BackwardOperands& x, FusedKeyOuterBackward::Tiling t, KeySlip slip) {
    using enum KeySlip;
    const Sizes& s = x.shape;
    if (slip != forgets_D && slip != forms_D_after_the_pass)
      output_dots(m, x, [&](const Sizes& s) { return FusedKeyOuterBackward::footprint(s, t); });
    const auto early = m.alloc(SlowArray::P, {slip == allocates_scores_too_early ? t.br : 0, t.Bc});
    const index_t end = s.n_k - (slip == misses_the_last_block_of_keys ? t.Bc : 0);
    for (index_t j = 0; j < end; j += t.Bc) {
      const index_t keys = std::min(t.Bc, s.n_k - j);
      const auto K_j = m.load(x.K.rows(j, keys)), V_j = m.load(x.V.rows(j, keys));
      const auto dK_j = m.alloc(SlowArray::dK, K_j.shape()), dV_j = m.alloc(SlowArray::dV, V_j.shape());
      if (slip != skips_the_initialisation_of_dK) m.compute(kernel::Zero{}, dK_j);
      m.compute(kernel::Zero{}, dV_j);
      const auto P = m.alloc(SlowArray::P,
                             {slip == keeps_scores_for_all_queries ? s.n_q : std::min(t.br, s.n_q), keys}),
                 dP = m.alloc(SlowArray::P, P.shape());
      const index_t first = slip == visits_queries_that_see_nothing ? 0 : s.pairs().rows_of({j, j + 1}).begin;
      const index_t last = s.n_q - (slip == misses_the_last_query ? 1 : 0);
      for (index_t i = first; i < last; i += t.br) {
        const index_t rows = std::min(t.br, last - i);
        if (slip == reloads_keys_for_every_query) m.load_into(K_j, x.K.rows(j, keys));
        const Arg P_ij = P.rows(0, rows), dS_ij = dP.rows(0, rows);
        const auto lse_i = m.load(x.lse.rows(i, rows)), D_i = m.load(x.D.rows(i, rows)),
                   Q_i = m.load(x.Q.rows(i, rows));
        for (index_t k = 1; k < keys && slip == loads_lse_for_every_key; ++k) m.load_into(lse_i, x.lse.rows(i, rows));
        m.compute(kernel::Scores{x.scale, {s.mask, i, j}}, P_ij, Q_i, K_j);
        m.compute(kernel::Weights{s.score}, P_ij, lse_i);
        if (slip != skips_the_initialisation_of_dP) m.compute(kernel::Zero{}, dS_ij);
        const auto dO_i = m.stream(x.dO.rows(i, rows));
        if (slip == loads_dO_instead_of_streaming) {
          const auto resident = m.load(x.dO.rows(i, rows));
          m.compute(kernel::ValueGradients{}, dS_ij, dV_j, P_ij, V_j, resident);
        } else if (slip == streams_dO_once_for_dP_and_once_for_dV) {
          m.compute(kernel::Gemm{false, true}, dS_ij, dO_i, V_j);
          m.compute(kernel::Gemm{true, false}, dV_j, P_ij, dO_i);
        } else {
          m.compute(kernel::ValueGradients{}, dS_ij, dV_j, P_ij, V_j, dO_i);
        }
        m.compute(kernel::ScoreGradient{s.score, x.scale, {s.mask, i, j}}, dS_ij, P_ij, D_i);
        m.compute(kernel::Gemm{true, false}, dK_j, dS_ij, Q_i);
        const bool forget = slip == forgets_what_dQ_was || (j == 0 && slip != reads_dQ_before_it_is_written);
        m.update(kernel::GemmOver{false, false, forget}, (slip == stores_dQ_into_Q ? x.Q : x.dQ).rows(i, rows), dS_ij,
                 K_j);
        if (slip == stores_dV_for_every_query) m.store(dV_j, x.dV.rows(j, keys));
      }
      if (slip != forgets_to_store_the_last_dK || j + t.Bc < s.n_k) m.store(dK_j, x.dK.rows(j, keys));
      m.store(dV_j, x.dV.rows(j, keys));
    }
    if (slip == forms_D_after_the_pass)
      output_dots(m, x, [&](const Sizes& s) { return FusedKeyOuterBackward::footprint(s, t); });
  }
};

/// Slips in grouped_key_outer.
enum class GroupSlip {
  none,
  lets_all_groups_revisit_one_dQ,
  reads_a_copy_before_it_is_written,
  forgets_the_first_read_of_dQ_in_the_sum,
  adds_rows_that_a_copy_does_not_have,
  forgets_the_last_copy,
  sums_before_the_groups,
  sums_rows_of_the_first_group_alone,
};

struct GroupedKeys {
  using S = GroupedKeyOuterBackward;
  template <Machine M>
  static void run(M& m, const BackwardOperands& x, S::Tiling t, GroupSlip slip) {
    using enum GroupSlip;
    output_dots(m, x, [&](const Sizes& s) { return S::footprint(s, t); });
    const KeyGroups groups(x.shape, t);
    const auto key_of = [&](index_t g) { return g < t.G ? groups(g).begin : x.shape.n_k; };
    const auto first_seeing = [&](index_t key) { return x.shape.pairs().rows_of({key, key + 1}).begin; };
    const auto dQ_of = [&](index_t g, index_t i, index_t rows) {
      return g == 0 || slip == lets_all_groups_revisit_one_dQ ? x.dQ.rows(i, rows)
                                                              : x.dQg.rows((g - 1) * x.shape.n_q + i, rows);
    };
    const auto sum = [&] {
      const index_t seen_by = slip == sums_rows_of_the_first_group_alone ? 0 : key_of(1);
      const index_t start = first_seeing(seen_by);
      for (index_t i = start; i < x.shape.n_q; i += t.Bc) {
        const index_t end = std::min(i + t.Bc, x.shape.n_q);
        const auto dQ_i = m.alloc(SlowArray::dQ, {end - i, x.shape.d});
        if (slip != forgets_the_first_read_of_dQ_in_the_sum) m.load_into(dQ_i, dQ_of(0, i, end - i));
        for (index_t g = 1; g < t.G - (slip == forgets_the_last_copy); ++g) {
          const index_t sees = first_seeing(key_of(g));
          const index_t row = slip == adds_rows_that_a_copy_does_not_have ? i : std::max(i, sees);
          if (key_of(g) < key_of(g + 1) && row < end)
            m.compute(kernel::Add{}, dQ_i.rows(row - i, end - row), m.stream(dQ_of(g, row, end - row)));
        }
        m.store(dQ_i, dQ_of(0, i, end - i));
      }
    };
    if (slip == sums_before_the_groups) sum();
    for (index_t g = 0; g < t.G; ++g)
      for (index_t j = key_of(g); j < key_of(g + 1); j += t.Bc)
        key_pass(m, x, {j, std::min(j + t.Bc, key_of(g + 1))}, t.br,
                 [&](auto& w, Range I, const Arg& dS_ij, const auto& K_j) {
                   const index_t start = slip == reads_a_copy_before_it_is_written ? 0 : key_of(g);
                   w.update(kernel::GemmOver{false, false, j == start}, dQ_of(g, I.begin, I.size()), dS_ij, K_j);
                 });
    if (slip != sums_before_the_groups) sum();
  }
};

/// Slips in fused_query_outer.
enum class QuerySlip {
  none,
  takes_the_first_block_first,
  reads_dK_before_it_is_written,
  forgets_what_dV_was,
  forgets_dK,
  reloads_queries_for_every_key,
  loads_values_instead_of_streaming,
  forms_D_for_every_key,
  loads_O,
  keeps_scores_as_a_square_tile,
  visits_invisible_keys,
  stores_dQ_for_every_key,
  forgets_the_last_dQ,
};

struct FusedQueries {
  template <Machine M>
  static void run(M& m, const BackwardOperands& x, QueryPass t, QuerySlip slip) {
    using enum QuerySlip;
    const Sizes& s = x.shape;
    const Blocks blocks = s.pairs().row_blocks(t.Br);
    for (index_t n = 0; n < blocks.count(); ++n) {
      const Range I = blocks(slip == takes_the_first_block_first ? n : blocks.count() - 1 - n);
      const auto dQ_i = m.alloc(x.dQ.rows(I)), Q_i = m.load(x.Q.rows(I)), dO_i = m.load(x.dO.rows(I)),
                 lse_i = m.load(x.lse.rows(I)), D_i = m.alloc(x.lse.rows(I));
      const Block O_i = x.O.rows(I);
      m.compute(kernel::Zero{}, dQ_i);
      const auto P = m.alloc(SlowArray::P,
                             {I.size(), slip == keeps_scores_as_a_square_tile ? s.n_k : std::min(t.bc, s.n_k)}),
                 dP = m.alloc(SlowArray::P, P.shape());
      if (slip == loads_O) {
        const auto resident = m.load(O_i);
        m.compute(kernel::RowDots{}, D_i, dO_i, resident);
      } else {
        m.compute(kernel::RowDots{}, D_i, dO_i, m.stream(O_i));
      }
      const index_t kappa = slip == visits_invisible_keys ? s.n_k : s.pairs().keys_of(I).end;
      for (index_t j = 0; j < kappa; j += t.bc) {
        const index_t keys = std::min(t.bc, kappa - j);
        const Arg P_ij = P.cols(keys), dS_ij = dP.cols(keys);
        const Place place{s.mask, I.begin, j};
        if (slip == reloads_queries_for_every_key) m.load_into(Q_i, x.Q.rows(I));
        if (slip == forms_D_for_every_key) m.compute(kernel::RowDots{}, D_i, dO_i, m.stream(O_i));
        const auto K_j = m.load(x.K.rows(j, keys));
        m.compute(kernel::Scores{x.scale, place}, P_ij, Q_i, K_j);
        m.compute(kernel::Weights{s.score}, P_ij, lse_i);
        m.compute(kernel::Zero{}, dS_ij);
        if (slip == loads_values_instead_of_streaming) {
          const auto V_j = m.load(x.V.rows(j, keys));
          m.compute(kernel::Gemm{false, true}, dS_ij, dO_i, V_j);
        } else {
          m.compute(kernel::Gemm{false, true}, dS_ij, dO_i, m.stream(x.V.rows(j, keys)));
        }
        m.compute(kernel::ScoreGradient{s.score, x.scale, place}, dS_ij, P_ij, D_i);
        m.compute(kernel::Gemm{}, dQ_i, dS_ij, K_j);
        const bool first = n == 0;
        m.update(kernel::GemmOver{true, false, first || slip == forgets_what_dV_was}, x.dV.rows(j, keys), P_ij, dO_i);
        if (slip != forgets_dK)
          m.update(kernel::GemmOver{true, false, first && slip != reads_dK_before_it_is_written}, x.dK.rows(j, keys),
                   dS_ij, Q_i);
        if (slip == stores_dQ_for_every_key) m.store(dQ_i, x.dQ.rows(I));
      }
      if (slip != forgets_the_last_dQ || n + 1 < blocks.count()) m.store(dQ_i, x.dQ.rows(I));
    }
  }
};

/// Slips in materialised: its six phases, left out, repeated or out of order.
enum class PhaseSlip {
  none,
  forgets_D,
  forms_D_too_late,
  forms_dV_before_the_probabilities,
  forms_dS_before_the_probabilities,
  forms_the_probabilities_twice,
  forms_dS_twice,
  forgets_to_transpose_P,
  multiplies_dV_by_O,
  forgets_dK,
  stores_dK_into_dV,
};

struct Materialised {
  template <Machine M>
  static void run(M& m, const BackwardOperands& x, const MaterialisedBackward::Tiling& t, PhaseSlip slip) {
    using enum PhaseSlip;
    if (slip != forgets_D && slip != forms_D_too_late)
      output_dots(m, x, [&](const Sizes& s) { return MaterialisedBackward::footprint(s, t); });
    if (slip == forms_dV_before_the_probabilities) gemm(m, x.shape.fast, x.dV, transposed(x.P), {x.dO}, t.dV);
    if (slip == forms_dS_before_the_probabilities) score_gradients(m, x, t.dS);
    probabilities(m, x, t.P);
    if (slip == forms_the_probabilities_twice) probabilities(m, x, t.P);
    if (slip != forms_dV_before_the_probabilities)
      gemm(m, x.shape.fast, x.dV, transposed(x.P), {slip == multiplies_dV_by_O ? x.O : x.dO}, t.dV);
    if (slip != forms_dS_before_the_probabilities) score_gradients(m, x, t.dS);
    if (slip == forms_dS_twice) score_gradients(m, x, t.dS);
    if (slip == forms_D_too_late)
      output_dots(m, x, [&](const Sizes& s) { return MaterialisedBackward::footprint(s, t); });
    gemm(m, x.shape.fast, x.dQ, {x.P}, {x.K}, t.dQ);
    const Factor P = slip == forgets_to_transpose_P ? Factor{x.P} : transposed(x.P);
    if (slip != forgets_dK) gemm(m, x.shape.fast, slip == stores_dK_into_dV ? x.dV : x.dK, P, {x.Q}, t.dK);
  }
};

/// Slips in 9R-b.
enum class GradientSlip {
  none,
  forgets_what_g_was,
  reads_g_before_it_is_written,
  forms_the_values_too_late,
  projects_queries_for_every_block,
  loads_A1_before_the_pass,
  streams_A1_word_by_word_twice,
};

struct GradientRows {
  using S = QueryOuterGradient<RowsGo::into_slow_g>;
  template <Machine M>
  static void run(M& m, const GradientXOperands& x, const S::Tiling& t, GradientSlip slip) {
    using enum GradientSlip;
    query_projection(x).run(m, x.shape.fast, t.S);
    if (slip != forms_the_values_too_late) value_projection(x).run(m, x.shape.fast, t.h);
    index_t visit = 0;
    for (const Shared& shared : shared_query_blocks(x.shape, t.queries.Br))
      for (index_t i = 0; i < shared.blocks.count(); ++i, ++visit) {
        const Range I = shared.block(i);
        if (slip == projects_queries_for_every_block && visit > 0) query_projection(x).run(m, x.shape.fast, t.S);
        const auto U_i = m.alloc(x.U.rows(I));
        const bool first = slip == forgets_what_g_was || (visit == 0 && slip != reads_g_before_it_is_written);
        const auto A1_before = m.load(slip == loads_A1_before_the_pass ? x.A1.rows(I) : x.A1.rows({0, 0}));
        S::form_rows(m, x, t.queries.bc, shared, I, U_i);
        if (slip == loads_A1_before_the_pass) {
          m.update(kernel::GemmOver{true, false, first}, x.g.all(), A1_before, U_i);
          continue;
        }
        const auto A1_i = m.load(x.A1.rows(I));
        if (slip == streams_A1_word_by_word_twice) m.load_into(A1_i, x.A1.rows(I));
        m.update(kernel::GemmOver{true, false, first}, x.g.all(), A1_i, U_i);
      }
    if (slip == forms_the_values_too_late) value_projection(x).run(m, x.shape.fast, t.h);
  }
};

/// Slips that move the same words in as many tiles, of words that all have been written: only numbers tell.
enum class BlindSlip { none, forms_dS_before_dV, forgets_D_in_dS, forgets_the_scale };

struct BlindMaterialised {
  template <Machine M>
  static void run(M& m, const BackwardOperands& x, const MaterialisedBackward::Tiling& t, BlindSlip slip) {
    using enum BlindSlip;
    output_dots(m, x, [&](const Sizes& s) { return MaterialisedBackward::footprint(s, t); });
    probabilities(m, x, t.P);
    if (slip == forms_dS_before_dV) score_gradients(m, x, t.dS);  // P is no more when dV is formed
    gemm(m, x.shape.fast, x.dV, transposed(x.P), {x.dO}, t.dV);
    BackwardOperands other = x;
    if (slip == forgets_D_in_dS) other.shape.score = Score::identity;
    if (slip == forgets_the_scale) other.scale = 1;
    if (slip != forms_dS_before_dV) score_gradients(m, other, t.dS);
    gemm(m, x.shape.fast, x.dQ, {x.P}, {x.K}, t.dQ);
    gemm(m, x.shape.fast, x.dK, transposed(x.P), {x.Q}, t.dK);
  }
};

}  // namespace redblue::test::mutants
