#pragma once
#include "redblue/kernels/materialised.hpp"
#include "redblue/schedules/operands/forward.hpp"
#include "redblue/schedules/parts/score_phase.hpp"

namespace redblue::schedule {

/// The small cache, M < d^2: raw scores are written to slow memory once and read back by a second product. After Saha &
/// Ye 2024 (arXiv 2402.07443, Algorithm 1), with one resident tile instead of three (half the constant) and a stable
/// softmax, which costs n_q words each way. The second product sums the weights again and divides by that sum z, so
/// that the rounding of lse, which is eps |lse|, cancels. Optimal to leading order (docs/proofs/f-prime.md).
///   reads  tile d (B(b) + A(a)) or panel d (n_q + A(a)), + ceil(d_v/c2) nnz + A(a2) d_v + n_q
///   writes nnz + n_q + n_q d_v
///   footprint max(tile: a b + min(a, b) + 1 + 2 a | panel: a (d + 2 + b) + 1,  a2 c2 + 2 a2 + min(a2, c2) + 1)
/// A given O and lse (Sizes::accumulate) are as one more key: the second product, too, takes the lse that was given,
/// once for each block of columns, and the first keeps it for that. n_q (d_v + 1 + ceil(d_v/c2)) reads and n_q writes
/// more.
struct SmallCacheForward : Defaults {
  using Operands = ForwardOperands;
  static constexpr std::string_view name = "small_cache";
  static constexpr std::string_view idea = "materialising scores once";
  static constexpr Traits traits{
      .keeps_scores = true, .masks = true, .hides = true, .modifiers = true, .any_score = true, .accumulates = true};
  static constexpr std::array workspace{SlowArray::S, SlowArray::lse_g};

  struct Tiling {
    ScoreTiling scores;
    GemmTiling output;
    void tile_sizes(const auto& tile_size) {
      tile_size({"panel", nullptr, 0, 1}, scores.panel, scores.panel != 0);
      tile_size({"a", &Sizes::n_q}, scores.a);
      tile_size({"b", &Sizes::n_k}, scores.b, scores.panel == 0 || scores.b > 1);
      tile_size({"a2", &Sizes::n_q}, output.b1);
      tile_size({"c2", &Sizes::d_v}, output.b2);
    }
  };

  static Tiling smallest(const Sizes& x, const Multiples& m) {
    const index_t q = smallest_tile(x.n_q, m.query);
    return {{false, q, smallest_tile(x.n_k, m.key)}, {q, smallest_tile(x.d_v, m.feature)}};
  }
  static std::optional<Tiling> choose_tiling(const Sizes& x, const Limits& limits) {
    const Multiples& s = limits.multiple;
    const auto scores = scores_cost(x).choose(x, limits);
    const auto output =
        output_cost(x).choose(x, limits, s.query, s.feature, [&](GemmTiling t) { return output_phase(x, t); });
    if (!scores || !output) return std::nullopt;
    return Tiling{*scores, *output};
  }

  static ScoreCost scores_cost(const Sizes& x) {
    return {SlowArray::S, SlowArray::Q, SlowArray::K, x.d, 2 * x.statistics(), SlowArray::lse, false, true};
  }
  static GemmCost output_cost(const Sizes& x) {
    GemmCost cost{SlowArray::O, SlowArray::S, SlowArray::V, x.n_q, x.n_k, x.d_v, Entries::of_pairs(x)};
    cost.given = x.accumulate;
    if (x.accumulate) cost.beside = SlowArray::lse_g, cost.words_beside = x.row_statistics();
    return cost;
  }
  /// A product beside lse and z.
  static Phase output_phase(const Sizes& x, GemmTiling t) {
    Phase product = output_cost(x).phase(x, t);
    product.footprint += 2 * x.statistic(SlowArray::lse, std::min(t.b1, x.n_q));
    return product;
  }
  static std::array<Phase, 6> phases(const Sizes& x, Tiling t) {
    const index_t b1 = std::min(t.output.b1, x.n_q), b2 = std::min(t.output.b2, x.d_v);
    return {scores_cost(x).phase(x, t.scores),
            sinks_phase(x, slopes_tile(x), t.scores.a),
            given_phase(x, 0, t.scores.a),
            output_phase(x, t.output),
            sinks_phase(x, x.tile(SlowArray::O, b1, b2), b1),
            given_phase(x, x.tile(SlowArray::O, b1, b2), b1)};
  }
  static Words footprint(const Sizes& x, Tiling t) { return footprint_of(phases(x, t)); }
  static Words prefetch(const Sizes& x, Tiling t) { return prefetch_of(phases(x, t)); }
  static Io io(const Sizes& x, Tiling t) {
    return scores_cost(x).io(x, t.scores) +
           Io().write(SlowArray::S, x.nnz())
               .write(SlowArray::lse, x.row_statistics())
               .read(SlowArray::lse, x.row_statistics()) +
           sinks_io(x, ceil_div(x.n_q, t.scores.a) + ceil_div(x.n_q, t.output.b1) * ceil_div(x.d_v, t.output.b2)) +
           output_cost(x).io(t.output) + given_io(x);
  }
  /// What the first product moves of a given lse.
  static Io given_io(const Sizes& x) {
    if (!x.accumulate) return {};
    return Io().read(SlowArray::lse, x.row_statistics()).write(SlowArray::lse_g, x.row_statistics());
  }
  /// The start of a block of rows from a given lse, which passes.
  static Phase given_phase(const Sizes& x, Words also, index_t rows) {
    if (!x.accumulate) return {0, 0};
    return {also + 2 * x.statistic(SlowArray::lse, std::min(rows, x.n_q)) + passing_given(x), 0};
  }
  /// lse_g keeps the lse that was given, if one was.
  static bool needs(const Sizes& x, SlowArray a) { return a != SlowArray::lse_g || x.accumulate; }
  /// Where the lse lies that was given for some queries: several sequences lie below each other.
  static Block given_lse(const ForwardOperands& x, Range rows) {
    return SlowMatrix{SlowArray::lse_g, x.lse.shape, x.instance(), x.shape.row0}.rows(rows);
  }
  static Words macs(const Sizes& x, Tiling t) { return scores_cost(x).macs(x, t.scores) + output_cost(x).macs(); }

  template <Machine M>
  static void run(M& m, const ForwardOperands& x, Tiling t) {
    scores(m, x, t);
    output(m, x, t);
  }

  /// Phase 1: raw scores and lse.
  template <Machine M>
  static void scores(M& m, const ForwardOperands& x, Tiling t) {
    const Blocks blocks = x.shape.pairs().row_blocks(t.scores.a);
    m.each(blocks.count(), [&](auto& w, index_t i) {
      const Range I = blocks(i);
      const auto m_i = w.alloc(x.lse.rows(I)), l_i = w.alloc(x.lse.rows(I));
      const Slopes slopes(w, x);
      w.compute(kernel::StatisticsInit{}, m_i, l_i);
      if (x.shape.accumulate && x.shape.statistics() > 0) {
        w.compute(kernel::StatisticsAdd{}, m_i, l_i, w.stream(x.lse.rows(I)));
        w.store(m_i, given_lse(x, I));
      }
      begin_with_sinks(w, x, I.begin, m_i, l_i);
      score_phase(w, x.shape, x.S.array, I, x.Q, x.K, t.scores, [&](const Arg& T, const Box& box) {
        w.compute(kernel::Scale{x.scale}, T);
        hide(w, x.shape, T, box);
        modify(w, x, T, box, slopes.arg());
        if (x.shape.statistics() > 0) {
          const index_t first = box.rows.begin - I.begin, rows = box.rows.size();
          w.compute(kernel::StatisticsAdd{}, m_i.rows(first, rows), l_i.rows(first, rows), T);
        }
        store_visible(w, x.shape, T, x.S, box);
      });
      if (x.shape.statistics() > 0) w.compute(kernel::LogSum{}, m_i, l_i);  // m <- lse
      w.store(m_i, x.lse.rows(I));
    });
  }

  /// Phase 2: O = exp(S - lse) V / z, z the row sums of exp(S - lse); the exponential is taken, and weights are
  /// dropped, as scores pass.
  template <Machine M>
  static void output(M& m, const ForwardOperands& x, Tiling t) {
    const Entries entries = Entries::of_pairs(x.shape);
    const Blocks blocks = entries.row_blocks(x.shape.n_q, t.output.b1), columns{x.shape.d_v, t.output.b2};
    m.each(blocks.count(), [&](auto& w, index_t i) {
      const Range I = blocks(i);
      const auto lse_i = w.load(x.lse.rows(I));
      for (index_t k = 0; k < columns.count(); ++k) {
        const Range C = columns(k);
        const bool given = x.shape.accumulate;
        const auto O_ik = given ? w.load(x.O.block(I, C)) : w.alloc(x.O.block(I, C)), z_i = w.alloc(x.lse.rows(I));
        if (!given) {
          w.compute(kernel::Zero{}, O_ik);
          w.compute(kernel::Zero{}, z_i);
        } else if (x.shape.statistics() > 0) {
          w.compute(kernel::BeginWithGiven{}, O_ik, z_i, lse_i, w.stream(given_lse(x, I)));
        }
        if (x.sinks.shape.words() > 0) w.compute(kernel::AddSinkWeights{I.begin}, z_i, lse_i, w.stream(x.sinks.all()));
        for_rank_one(w, x.shape.fast, O_ik.shape(), {x.S}, I, {x.V}, C, entries,
                     [&](Range r, index_t key, const auto& s, const auto& v) {
                       const auto part = [&](const auto& tile) { return tile.rows(r.begin - I.begin, r.size()); };
                       const kernel::Drop dropped = drop(x.shape, x.instance(), x.shape.place(r.begin, key));
                       w.compute(kernel::WeightsAccumulate{x.shape.score, dropped}, part(O_ik), part(z_i), s,
                                 part(lse_i), v);
                     });
        if (x.shape.statistics() > 0) w.compute(kernel::DivideRows{}, O_ik, z_i);
        w.store(O_ik, x.O.block(I, C));
      }
    });
  }
};

}  // namespace redblue::schedule
