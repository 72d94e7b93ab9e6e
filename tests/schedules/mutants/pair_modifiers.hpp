#pragma once
#include "redblue/schedules/sparse/backward.hpp"
#include "redblue/schedules/sparse/forward.hpp"

/// Slips in the modifiers of schedules that hold a word for each pair: a bias with a row for each query, its gradient,
/// slopes and sinks.
namespace redblue::test::mutants {

using namespace redblue::schedule;

enum class ModifiedSparseSlip {
  none,
  begins_without_sinks,
  loads_slopes_for_every_tile,
  forgets_the_bias,
  forgets_the_bias_of_the_first_run,
  streams_the_bias_of_hidden_pairs,
  streams_the_bias_of_a_tile_at_once,
};

/// `sparse` of the forward pass; its second phase is right.
struct ModifiedSparse {
  using S = SparseForward;
  template <Machine M>
  static void run(M& m, const ForwardOperands& x, const S::Tiling& t, ModifiedSparseSlip slip) {
    using enum ModifiedSparseSlip;
    const Blocks blocks = x.shape.pairs().row_blocks(std::min(t.scores.a, x.shape.n_q));
    for (index_t i = 0; i < blocks.count(); ++i) {
      const Range I = blocks(i);
      const auto m_i = m.alloc(x.lse.rows(I)), l_i = m.alloc(x.lse.rows(I));
      const auto slopes = m.load(x.slopes.all());
      m.compute(kernel::StatisticsInit{}, m_i, l_i);
      if (slip != begins_without_sinks) begin_with_sinks(m, x, I.begin, m_i, l_i);
      for_pair_tiles(*x.shape.pattern, I, t.scores.room, [&](const PairTile& tile) {
        if (slip == loads_slopes_for_every_tile) m.load_into(slopes, x.slopes.all());
        pair_tile(m, x.shape, x.S.array, tile, x.Q, x.K, [&](const auto& T, const auto&, const auto& box) {
          begin_pair_scores(m, x, box(I), T, kNoWords, slopes);
          bias(m, x, tile, box(I), T, slip);
          m.compute(kernel::PairStatistics(box(I)), m_i, l_i, T);
          for_pair_rows(x.shape, tile, x.S,
                        [&](index_t first, const Block& row) { m.store(T.rows(first, row.shape.rows), row); });
        });
      });
      m.compute(kernel::LogSum{}, m_i, l_i);
      m.store(m_i, x.lse.rows(I));
    }
    S::output(m, x, t.output);
  }

  template <class M, class T>
  static void bias(M& m, const ForwardOperands& x, const PairTile& tile, const kernel::PairBox& box, const T& T_ij,
                   ModifiedSparseSlip slip) {
    using enum ModifiedSparseSlip;
    if (slip == forgets_the_bias) return;
    if (slip == streams_the_bias_of_a_tile_at_once)
      return m.compute(kernel::PairBias(with_keys(box)), T_ij, m.stream(x.bias.block({0, 1}, tile.keys)));
    for_runs_of(box, [&](Range row, Range keys, const kernel::PairBox& run, index_t pair) {
      if (slip == forgets_the_bias_of_the_first_run && row.begin == 0 && keys.begin == 0) return;
      if (slip == streams_the_bias_of_hidden_pairs) keys = {keys.begin, tile.keys.end};
      m.compute(kernel::PairBias(run), T_ij.rows(pair, run.cols), m.stream(x.bias.block(row, keys)));
    });
  }
};

enum class BiasGradientSlip {
  none,
  forgets_the_gradient,
  forgets_the_last_row,
  adds_hidden_pairs,
  adds_twice,
  begins_at_0_for_every_run,
};

/// `sparse` of gradients, as far as dS; its products are right.
struct BiasOfPairs {
  using S = SparseBackward;
  template <Machine M>
  static void run(M& m, const BackwardOperands& x, const S::Tiling& t, BiasGradientSlip slip) {
    const Sizes& s = x.shape;
    m.update(kernel::ZeroOver{}, x.dBias.all());  // as parts/cores.hpp does for the first of those that share it
    output_dots(m, x, [&](const Sizes& sizes) { return S::footprint(sizes, t); });
    pair_weights(m, x, t.P);
    spmm(m, s, x.dV, x.P, true, x.dO, t.dV);
    const Blocks blocks = s.pairs().row_blocks(std::min(t.dS.a, s.n_q));
    for (index_t i = 0; i < blocks.count(); ++i)
      for_pair_products(m, s, x.P.array, blocks(i), t.dS, x.dO, x.V,
                        [&](const PairTile& tile, const auto& T, const auto& rows, const auto& box) {
                          for (const Range& run : rows)
                            m.compute(kernel::PairSubtract(box(run)), T, m.stream(x.D.rows(run)));
                          for_pair_rows(s, tile, x.P, [&](index_t first, const Block& row) {
                            const Arg part = T.rows(first, row.shape.rows);
                            m.compute(kernel::ScaleByWeights{x.scale}, part, m.stream(row));
                            m.store(part, row);
                          });
                          gradient(m, x, tile, box(tile.rows), T, slip);
                        });
    spmm(m, s, x.dQ, x.P, false, x.K, t.dQ);
    spmm(m, s, x.dK, x.P, true, x.Q, t.dK);
  }

  template <class M, class T>
  static void gradient(M& m, const BackwardOperands& x, const PairTile& tile, const kernel::PairBox& box, const T& T_ij,
                       BiasGradientSlip slip) {
    using enum BiasGradientSlip;
    if (slip == forgets_the_gradient) return;
    for_runs_of(box, [&](Range row, Range keys, const kernel::PairBox& run, index_t pair) {
      if (slip == forgets_the_last_row && row.end == x.shape.n_q) return;
      if (slip == adds_hidden_pairs) keys.end = tile.keys.end;
      kernel::PairBiasGradient add(1 / x.scale, run);
      add.first = slip == begins_at_0_for_every_run;
      for (int k = 0; k < (slip == adds_twice ? 2 : 1); ++k)
        m.update(add, x.dBias.block(row, keys), T_ij.rows(pair, run.cols));
    });
  }
};

}  // namespace redblue::test::mutants
