#pragma once
#include "redblue/kernels/materialised.hpp"
#include "redblue/schedules/operands/forward.hpp"
#include "redblue/schedules/parts/score_phase.hpp"

namespace redblue::schedule {

/// Three passes, each matrix through slow memory: S = scale Q K^T; P = softmax(S), over S; O = P V. The baseline.
///   rho = 1 if a row of scores fits in fast memory, else 2
///   reads d (B(b2) + A(b1)) + rho nnz + ceil(d_v/b4) nnz + A(b3) d_v   writes 2 nnz + n_q d_v (+ n_q if lse is
///   required) footprint max(F_mm, F_mm, rho = 1 ? n_k + 2 : 3), n_k being the keys that a query sees at most
/// Bias, ALiBi and softcap act on the tiles of scores before they are stored, sinks and dropout in the second pass.
struct NaiveForward : Defaults {
  using Operands = ForwardOperands;
  static constexpr std::string_view name = "naive";
  static constexpr std::string_view idea = "three passes through slow memory";
  static constexpr Traits traits{.keeps_scores = true, .masks = true, .hides = true, .modifiers = true};
  static constexpr std::array workspace{SlowArray::S};

  struct Tiling {
    index_t b1 = 1;   ///< tile of S: queries
    index_t b2 = 1;   ///< tile of S: keys
    index_t b3 = 1;   ///< tile of O: queries
    index_t b4 = 1;   ///< tile of O: value columns
    index_t rho = 2;  ///< sweeps over a row of scores
    void tile_sizes(const auto& tile_size) {
      tile_size({"b1", &Sizes::n_q}, b1);
      tile_size({"b2", &Sizes::n_k}, b2);
      tile_size({"b3", &Sizes::n_q}, b3);
      tile_size({"b4", &Sizes::d_v}, b4);
      tile_size({"rho", nullptr, 1, 2}, rho);
    }
    ScoreTiling scores() const { return {false, b1, b2}; }
    GemmTiling output() const { return {b3, b4}; }
  };

  static bool writes(const Sizes& x, SlowArray output) { return output != SlowArray::lse || x.lse_required; }
  static Tiling smallest(const Sizes& x, const Multiples& m) {
    const index_t q = smallest_tile(x.n_q, m.query);
    return {q, smallest_tile(x.n_k, m.key), q, smallest_tile(x.d_v, m.feature), 2};
  }
  static std::optional<Tiling> choose_tiling(const Sizes& x, const Limits& limits) {
    const Multiples& s = limits.multiple;
    const auto qk = scores(x).choose_tile(x, limits);
    const auto pv = output(x).choose(x, limits, s.query, s.feature);
    const index_t rho = limits.fit(softmax(x, 1)) ? 1 : 2;
    if (!qk || !pv || !limits.fit(softmax(x, rho))) return std::nullopt;
    return Tiling{qk->a, qk->b, pv->b1, pv->b2, rho};
  }

  static ScoreCost scores(const Sizes& x) {
    return {SlowArray::S, SlowArray::Q, SlowArray::K, x.d, 0, SlowArray::lse, false, true};
  }
  static GemmCost output(const Sizes& x) {
    return {SlowArray::O, SlowArray::S, SlowArray::V, x.n_q, x.n_k, x.d_v, Entries::of_pairs(x)};
  }
  /// A row of scores, or one streamed word of it, with its two statistics.
  static Phase softmax(const Sizes& x, index_t rho) {
    const Words row = rho == 1 ? x.tile(SlowArray::S, 1, x.pairs().most_keys(1)) : x.word(SlowArray::S);
    return {passing_sink(x, row) + 2 * x.tile(SlowArray::lse, 1, 1), row};
  }
  static std::array<Phase, 3> phases(const Sizes& x, Tiling t) {
    return {scores(x).phase(x, t.scores()), softmax(x, t.rho), output(x).phase(x, t.output())};
  }
  static Words footprint(const Sizes& x, Tiling t) { return footprint_of(phases(x, t)); }
  static Words prefetch(const Sizes& x, Tiling t) { return prefetch_of(phases(x, t)); }
  static Io io(const Sizes& x, Tiling t) {
    return scores(x).io(x, t.scores()) +
           Io().read(SlowArray::S, x.nnz() * t.rho)
               .write(SlowArray::S, x.nnz() * 2)
               .read(SlowArray::sinks, x.modifiers.sinks ? x.n_q : 0)
               .write(SlowArray::lse, x.lse_required ? x.n_q : 0) +
           output(x).io(t.output());
  }
  static Words macs(const Sizes& x, Tiling t) { return scores(x).macs(x, t.scores()) + output(x).macs(); }

  template <Machine M>
  static void run(M& m, const ForwardOperands& x, Tiling t) {
    const Pairs pairs = x.shape.pairs();
    const Blocks blocks = pairs.row_blocks(t.b1);
    m.each(blocks.count(), [&](auto& w, index_t i) {
      const Slopes slopes(w, x);
      score_phase(w, x.shape, x.S.array, blocks(i), x.Q, x.K, t.scores(), [&](const Arg& T, const Box& box) {
        w.compute(kernel::Scale{x.scale}, T);
        hide_formed(w, x.shape, T, box);
        modify(w, x, T, box, slopes.arg());
        store_visible(w, x.shape, T, x.S, box);
      });
    });
    m.each(x.shape.n_q, [&](auto& w, index_t i) {
      const Range row{i, i + 1};
      const Range keys = pairs.keys_of(row);
      const Block S_i = x.S.block(row, keys);
      const auto m_i = w.alloc(SlowArray::lse, {1, 1}), l_i = w.alloc(SlowArray::lse, {1, 1});
      w.compute(kernel::StatisticsInit{}, m_i, l_i);
      if (const index_t head = i % x.shape.mask.group; x.shape.modifiers.sinks)
        w.compute(kernel::BeginWithSinks{}, m_i, l_i, w.stream(x.sinks.rows({head, head + 1})));
      const auto weigh = [&](const auto& normalise) {
        if (t.rho == 1) {
          const auto s = w.load(S_i);
          w.compute(kernel::StatisticsAdd{}, m_i, l_i, s);
          w.compute(normalise, s, m_i, l_i);
          w.store(s, S_i);
        } else {
          w.compute(kernel::StatisticsAdd{}, m_i, l_i, w.stream(S_i));
          w.update(normalise, S_i, m_i, l_i);
        }
      };
      if (x.shape.modifiers.dropout > 0)
        weigh(kernel::NormaliseAndDrop{false, drop(x.shape, x.instance(), x.shape.formed(i, keys.begin))});
      else
        weigh(kernel::NormaliseRows{});
      if (x.shape.lse_required) {
        w.compute(kernel::LogSum{}, m_i, l_i);
        w.store(m_i, x.lse.rows(row));
      }
    });
    gemm(m, x.shape.fast, x.O, {x.S}, {x.V}, t.output(), Entries::of_pairs(x.shape));
  }
};

}  // namespace redblue::schedule
