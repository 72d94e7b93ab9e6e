#pragma once
#include "redblue/kernels/materialised.hpp"
#include "redblue/schedules/operands/forward.hpp"
#include "redblue/schedules/parts/score_phase.hpp"

namespace redblue::schedule {

/// A schedule for small caches without n x n workspace: a tile of scores is formed by rank-one updates, turned into
/// weights where it lies, and multiplied into O, whose columns are revisited in slow memory. 2 sqrt(6) n^2 d / sqrt(M)
/// words to leading order.
///   reads d B(b) + (d + d_v) A(a) + d_v (B(b) - n_q)   writes d_v B(b) + n_q   footprint a b + 4 a + 1
/// B(b) = SUM_J rho_J and A(a) = SUM_I kappa_I; without a mask ceil(n_k/b) n_q and ceil(n_q/a) n_k.
struct ScoreTilesForward : Defaults {
  using Operands = ForwardOperands;
  static constexpr std::string_view name = "score_tiles";
  static constexpr std::string_view idea = "keeping a tile of scores resident";
  static constexpr Traits traits{
      .keeps_scores = true, .masks = true, .hides = true, .modifiers = true, .rewrites_outputs = true};
  static constexpr std::array<SlowArray, 0> workspace{};

  struct Tiling {
    index_t a = 1;  ///< queries of the score tile
    index_t b = 1;  ///< keys of the score tile
    void tile_sizes(const auto& tile_size) {
      tile_size({"a", &Sizes::n_q}, a);
      tile_size({"b", &Sizes::n_k}, b);
    }
  };

  static Tiling smallest(const Sizes& x, const Multiples& m) {
    return {smallest_tile(x.n_q, m.query), smallest_tile(x.n_k, m.key)};
  }
  static std::optional<Tiling> choose_tiling(const Sizes& x, const Limits& limits) {
    const Prices& p = limits.price;
    const Words row = p.reading(SlowArray::Q) * x.d + (p.reading(SlowArray::O) + p.writing(SlowArray::O)) * x.d_v;
    const Words key = p.reading(SlowArray::K) * x.d + p.reading(SlowArray::V) * x.d_v;
    const auto best = best_score_tile(x, limits, row, key, limits.M / x.word(SlowArray::S), [&](index_t a, index_t b) {
      return limits.fit(footprint(x, {a, b}), prefetch(x, {a, b}));
    });
    if (!best) return std::nullopt;
    return Tiling{(*best)[0], (*best)[1]};
  }

  /// A column of Q or O and a streamed word beside a tile; with second buffers, the next ones.
  static Phase phase(const Sizes& x, Tiling t) {
    return over_largest_tiles(x, t.a, t.b, [&](index_t a, index_t b) {
      const Words column = std::max(x.tile(SlowArray::Q, a, 1) + x.word(SlowArray::K),
                                    x.tile(SlowArray::O, a, 1) + x.word(SlowArray::V));
      const Words rows = 3 * x.tile(SlowArray::lse, a, 1) + slopes_tile(x);
      const Words tile = x.tile(SlowArray::S, a, b) + std::max(column, passing_bias(x, 0));
      return Phase{rows + std::max(tile, passing_sink(x, 0)), column};
    });
  }
  static Words footprint(const Sizes& x, Tiling t) { return phase(x, t).footprint; }
  static Words prefetch(const Sizes& x, Tiling t) { return phase(x, t).prefetch; }
  static Io io(const Sizes& x, Tiling t) {
    const Words rows = x.pairs().visited_rows(t.b), keys = x.pairs().visited_keys(t.a);
    return box_modifiers_io(x, t.a, t.b) + sinks_io(x, ceil_div(x.n_q, t.a)) +
           Io().read(SlowArray::Q, rows * x.d)
               .read(SlowArray::K, keys * x.d)
               .read(SlowArray::V, keys * x.d_v)
               .read(SlowArray::O, (rows - x.n_q) * x.d_v)
               .write(SlowArray::O, rows * x.d_v)
               .write(SlowArray::lse, x.n_q);
  }
  static Words macs(const Sizes& x, Tiling t) { return box_words(x, t.a, t.b) * (Words(x.d) + x.d_v); }

  template <Machine M>
  static void run(M& m, const ForwardOperands& x, Tiling t) {
    const Pairs pairs = x.shape.pairs();
    const Blocks blocks = pairs.row_blocks(t.a), key_blocks = pairs.key_blocks(t.b);
    m.each(blocks.count(), [&](auto& w, index_t i) {
      const Range I = blocks(i), met = blocks_of(pairs.keys_of(I), t.b);
      const auto m_i = w.alloc(x.lse.rows(I)), l_i = w.alloc(x.lse.rows(I)), alpha = w.alloc(x.lse.rows(I));
      const Slopes slopes(w, x);
      w.compute(kernel::StatisticsInit{}, m_i, l_i);
      begin_with_sinks(w, x, I.begin, m_i, l_i);
      for (index_t j = met.begin; j < met.end; ++j) {
        const Range J = key_blocks(j);
        const Box box = box_of(pairs, I, J);
        const auto of_rows = [&](const auto& tile, Range r) { return tile.rows(r.begin - I.begin, r.size()); };
        const auto room = w.alloc(SlowArray::S, {I.size(), J.size()});
        const Arg S_ij = room.part({box.rows.size(), box.keys.size()});
        w.compute(kernel::Zero{}, S_ij);
        for (index_t k = 0; k < x.shape.d; ++k) {
          const auto q_room = w.alloc(x.Q.array, {I.size(), 1});
          const Arg q = q_room.rows(0, box.rows.size());
          w.load_into(q, x.Q.block(box.rows, {k, k + 1}));
          w.compute(kernel::Gemm{false, true}, S_ij, q, w.stream(x.K.block(box.keys, {k, k + 1})));  // S += q k^T
        }
        w.compute(kernel::Scale{x.scale}, S_ij);
        hide(w, x.shape, S_ij, box);
        modify(w, x, S_ij, box, slopes.arg());
        // S <- exp(S - m); alpha <- exp(m_old - m)
        w.compute(kernel::TileSoftmax{}, S_ij, of_rows(m_i, box.rows), of_rows(l_i, box.rows),
                  of_rows(alpha, box.rows));
        if (x.shape.modifiers.dropout > 0)
          w.compute(drop(x.shape, x.instance(), x.shape.formed(box.rows.begin, box.keys.begin)), S_ij);
        // Rows whose first keys these are, the last of the box, have no O yet; those whose last keys these are, the
        // first of the box, are divided by their sums.
        const Range again{box.rows.begin, first_visit(pairs, box.rows, J)}, fresh{again.end, box.rows.end},
            done{box.rows.begin, last_visit(pairs, box.rows, J)};
        for (index_t k = 0; k < x.shape.d_v; ++k) {
          const Range column{k, k + 1};
          const auto o_room = w.alloc(x.O.array, {I.size(), 1});
          const auto of_box = [&](Range r) { return o_room.rows(r.begin - box.rows.begin, r.size()); };
          const Arg o = of_box(box.rows);
          if (fresh.size() > 0) w.compute(kernel::Zero{}, of_box(fresh));
          if (again.size() > 0) {
            w.load_into(of_box(again), x.O.block(again, column));
            w.compute(kernel::ScaleRows{}, of_box(again), of_rows(alpha, again));
          }
          w.compute(kernel::Gemm{}, o, S_ij, w.stream(x.V.block(box.keys, column)));  // o += S v
          if (done.size() > 0) w.compute(kernel::DivideRows{}, of_box(done), of_rows(l_i, done));
          w.store(o, x.O.block(box.rows, column));
        }
      }
      w.compute(kernel::LogSum{}, m_i, l_i);
      w.store(m_i, x.lse.rows(I));
    });
  }
};

}  // namespace redblue::schedule
