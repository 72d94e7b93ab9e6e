#pragma once
#include "redblue/schedules/operands/forward.hpp"
#include "redblue/schedules/pairs/index_words.hpp"
#include "redblue/schedules/pairs/rows.hpp"

namespace redblue::schedule {

/// sF2, the small cache under a pattern: SDDMM, then SpMM. Raw scores of the pairs are written to slow memory once and
/// read back by a product that takes their exponentials, as in small_cache; its sums z are formed again
/// (docs/model.md).
///   reads SD + ceil(d_v/c2) nnz + A(a2) d_v + n_q   writes nnz + n_q (d_v + 1)
///         SD: tiles SUM (r + c) d, panels d (n_q + A(a))
///   footprint max(2 a + the largest e + min(r, c) + 1 or a d + g + 1,  a2 c2 + 2 a2 + min(a2, c2) + 1)
/// A bias for each pair passes once, a word for each pair of the pattern; weights are dropped as they are formed.
struct SparseForward : Defaults {
  using Operands = ForwardOperands;
  static constexpr std::string_view name = "sparse";
  static constexpr std::string_view label = "sF2";
  static constexpr std::string_view idea = "materialising the scores of the pairs once";
  static constexpr Traits traits{
      .keeps_scores = true, .masks = true, .patterns = true, .lists_pairs = true, .modifiers = true};
  static constexpr std::array workspace{SlowArray::S};

  struct Tiling {
    PairTiling scores;
    GemmTiling output;
    void tile_sizes(const auto& tile_size) {
      tile_size({"panel", nullptr, 0, 1}, scores.panel);
      tile_size({"a", &Sizes::n_q}, scores.a);
      tile_size({"room", nullptr, 2}, scores.room, scores.form() == Panel::none);
      tile_size({"a2", &Sizes::n_q}, output.b1);
      tile_size({"c2", &Sizes::d_v}, output.b2);
    }
  };

  static Tiling smallest(const Sizes& x, const Multiples& m) {
    const index_t q = smallest_tile(x.n_q, m.query);
    return {{q, 2}, {q, smallest_tile(x.d_v, m.feature)}};
  }
  static std::optional<Tiling> choose_tiling(const Sizes& x, const Limits& limits) {
    const Multiples& s = limits.multiple;
    const auto output =
        output_cost(x).choose(x, limits, s.query, s.feature, [&](GemmTiling t) { return output_phase(x, t); });
    if (!output) return std::nullopt;
    const auto scores = scores_cost(x).choose(x, limits);
    if (!scores) return std::nullopt;
    return Tiling{*scores, *output};
  }

  static PairCost scores_cost(const Sizes& x) {
    return {.T = SlowArray::S, .A = SlowArray::Q, .B = SlowArray::K, .w = x.d, .stats = 2};
  }
  static GemmCost output_cost(const Sizes& x) {
    return {SlowArray::O, SlowArray::S, SlowArray::V, x.n_q, x.n_k, x.d_v, Entries::of_pairs(x)};
  }
  /// A product beside lse and z.
  static Phase output_phase(const Sizes& x, GemmTiling t) {
    Phase product = output_cost(x).phase(x, t);
    product.footprint += 2 * x.tile(SlowArray::lse, std::min(t.b1, x.n_q), 1);
    return product;
  }
  static std::array<Phase, 4> phases(const Sizes& x, const Tiling& t) {
    const index_t b1 = std::min(t.output.b1, x.n_q), b2 = std::min(t.output.b2, x.d_v);
    return {scores_cost(x).phase(x, t.scores), sinks_phase(x, slopes_tile(x), t.scores.a), output_phase(x, t.output),
            sinks_phase(x, x.tile(SlowArray::O, b1, b2), b1)};
  }
  static Words footprint(const Sizes& x, const Tiling& t) { return footprint_of(phases(x, t)); }
  static Words prefetch(const Sizes& x, const Tiling& t) { return prefetch_of(phases(x, t)); }
  static Io io(const Sizes& x, const Tiling& t) {
    const auto blocks = [&](index_t rows) { return x.pairs().row_blocks(std::min(rows, x.n_q)).count(); };
    const Words sweeps = blocks(t.scores.a) + blocks(t.output.b1) * ceil_div(x.d_v, t.output.b2);
    return scores_cost(x).io(x, t.scores) + output_cost(x).io(t.output) + sinks_io(x, sweeps) +
           Io().write(SlowArray::S, x.nnz()).write(SlowArray::lse, x.n_q).read(SlowArray::lse, x.n_q);
  }
  static Words macs(const Sizes& x, const Tiling&) { return x.nnz() * (Words(x.d) + x.d_v); }
  /// Scores are written once, and read once at least.
  static Io least_io(const Sizes& x) {
    const Words pairs = visible_pairs(x);
    return Io().read(SlowArray::S, pairs).write(SlowArray::S, pairs);
  }
  static IndexWords index(const Sizes& x, const Tiling& t) {
    return index_of_phases({sddmm_index(x, t.scores), spmm_index(x, output_cost(x), t.output, false)});
  }

  template <Machine M>
  static void run(M& m, const ForwardOperands& x, const Tiling& t) {
    scores(m, x, t.scores);
    output(m, x, t.output);
  }

  /// Raw scores and lse.
  template <Machine M>
  static void scores(M& m, const ForwardOperands& x, PairTiling t) {
    const Blocks blocks = x.shape.pairs().row_blocks(std::min(t.a, x.shape.n_q));
    m.each(blocks.count(), [&](auto& w, index_t i) {
      const Range I = blocks(i);
      const auto m_i = w.alloc(x.lse.rows(I)), l_i = w.alloc(x.lse.rows(I));
      const Slopes slopes(w, x);
      w.compute(kernel::StatisticsInit{}, m_i, l_i);
      begin_with_sinks(w, x, I.begin, m_i, l_i);
      const auto finish = [&](const PairTile& tile, const auto& T, const auto&, const auto& box) {
        const index_t first_row = tile.rows.begin - I.begin, rows = tile.rows.size();
        pair_scores(w, x, box(tile.rows), T, kNoWords, slopes.arg());
        w.compute(kernel::PairStatistics(box(tile.rows)), m_i.rows(first_row, rows), l_i.rows(first_row, rows), T);
        for_pair_rows(x.shape, tile, x.S,
                      [&](index_t first, const Block& row) { w.store(T.rows(first, row.shape.rows), row); });
      };
      for_pair_products(w, x.shape, x.S.array, I, t, x.Q, x.K, finish);
      w.compute(kernel::LogSum{}, m_i, l_i);  // m <- lse
      w.store(m_i, x.lse.rows(I));
    });
  }

  /// O = exp(S - lse) V / z, z the row sums of exp(S - lse).
  template <Machine M>
  static void output(M& m, const ForwardOperands& x, GemmTiling t) {
    const Sizes& s = x.shape;
    const Blocks blocks = s.pairs().row_blocks(std::min(t.b1, s.n_q)), columns{s.d_v, t.b2};
    const kernel::DropOfPairs drop = drop_of_pairs(s, x.instance());
    m.each(blocks.count(), [&](auto& w, index_t i) {
      const Range I = blocks(i);
      const auto lse_i = w.load(x.lse.rows(I));
      for (index_t k = 0; k < columns.count(); ++k) {
        const Range C = columns(k);
        const auto O_ik = w.alloc(x.O.block(I, C)), z_i = w.alloc(x.lse.rows(I));
        w.compute(kernel::Zero{}, O_ik);
        w.compute(kernel::Zero{}, z_i);
        if (x.sinks.shape.words() > 0) w.compute(kernel::AddSinkWeights{I.begin}, z_i, lse_i, w.stream(x.sinks.all()));
        for_pair_terms(w, s, O_ik.shape(), x.S, false, I, x.V, C,
                       [&](index_t j, Range window, const auto& scores, const auto& v) {
                         const Place place{s.mask, I.begin, j};
                         w.compute(kernel::PairWeightsAccumulate{place, {{}, window.begin, window.size(), false, drop}},
                                   O_ik, z_i, scores, lse_i, v);
                       });
        w.compute(kernel::DivideRows{}, O_ik, z_i);
        w.store(O_ik, x.O.block(I, C));
      }
    });
  }
};

}  // namespace redblue::schedule
