#pragma once
#include "redblue/kernels/materialised.hpp"
#include "redblue/schedules/operands/backward.hpp"
#include "redblue/schedules/pairs/index_words.hpp"
#include "redblue/schedules/parts/score_phase.hpp"
#include "redblue/schedules/parts/visible.hpp"
#include "redblue/schedules/ring/steps.hpp"

namespace redblue::schedule {

/// ringB1, keys, values and their gradients in rings: each key is loaded when the first query comes that sees it, and
/// its gradients are stored when no later query does. All keys of a query are then resident at once, so that the
/// schedule forms the softmax and D = rowsum(P o dP) itself and reads neither O nor lse. For windows: there it moves
/// the words that every schedule moves (docs/proofs/trivial.md), whatever M, once fast memory holds a window.
///   reads n_q (d + d_v) + n_k (d + d_v)   writes n_q d + n_k (d + d_v)
///   footprint 2 s (d + d_v) + Br kappa + max(Br (d + kappa + max(bv, 1)), Br d)
/// s: the most keys that a block of queries sees, under a pattern the most held at once. kappa: those of one block.
/// Theory notes 2g. Modifiers: parts/modifiers.hpp.
struct RingBackward : Defaults {
  using Operands = BackwardOperands;
  static constexpr std::string_view name = "ring";
  static constexpr std::string_view label = "ringB1";
  static constexpr std::string_view idea = "keeping the keys of a window and their gradients resident in rings";
  static constexpr Traits traits{.windows = true,
                                 .own_softmax = true,
                                 .masks = true,
                                 .patterns = true,
                                 .modifiers = true,
                                 .lse_gradient = true,
                                 .products = 5};
  static constexpr std::array<SlowArray, 0> workspace{};

  struct Tiling {
    index_t Br = 1;  ///< queries resident at a time
    index_t bv = 1;  ///< columns of dO at a time
    void tile_sizes(const auto& tile_size) {
      tile_size({"Br", &Sizes::n_q}, Br);
      tile_size({"bv", &Sizes::d_v}, bv);
    }
  };
  static std::string_view caveat(const Sizes& x, Tiling) {
    return x.modifiers.sinks_gradient
               ? "it forms the softmax itself: o and lse are read for the gradient of sinks alone"
               : "it forms the softmax itself: o and lse are not read";
  }

  static Tiling smallest(const Sizes& x, const Multiples& m) {
    return {smallest_tile(x.n_q, m.query), smallest_tile(x.d_v, m.feature)};
  }
  /// All move the same words: the smallest Br that fits, with all columns of dO where they fit, doubled while there is
  /// room.
  static std::optional<Tiling> choose_tiling(const Sizes& x, const Limits& limits) {
    Tiling t = smallest(x, limits.multiple);
    const auto fits = [&](Tiling u) {  // the rings alone are asked first: that takes little time
      return limits.fit(rings(x, u), 0) && limits.fit(footprint(x, u), prefetch(x, u));
    };
    const auto rows_fit = [&](index_t rows) { return fits({rows, t.bv}); };
    const std::optional<index_t> Br = smallest_block(x, limits, SlowArray::Q, rows_fit);
    if (!Br) return std::nullopt;
    if (fits({*Br, x.d_v})) t.bv = x.d_v;
    t.Br = doubled_block(x, *Br, x.n_q, rows_fit);
    return t;
  }

  /// Keys that the rings hold.
  static index_t places(const Sizes& x, Tiling t) {
    return RingSide::of_keys(x.pairs(), std::min(t.Br, x.n_q)).places_together(x);
  }
  static Words rings(const Sizes& x, Tiling t) {
    const index_t s = places(x, t);
    return x.tile(SlowArray::K, s, x.d) + x.tile(SlowArray::V, s, x.d_v) + x.tile(SlowArray::dK, s, x.d) +
           x.tile(SlowArray::dV, s, x.d_v);
  }
  static Words footprint(const Sizes& x, Tiling t) {
    return rings(x, t) + seen_keys_footprint(x, t.Br, [&](index_t rows, index_t kappa) {
             const Words P = x.tile(SlowArray::P, rows, kappa),
                         lse = x.statistic(SlowArray::lse, rows) + passing_sink(x, 0),
                         dBias = x.modifiers.bias_gradient ? x.word(SlowArray::dBias) : Words(0),
                         passing = std::max({x.tile(SlowArray::dO, rows, std::min(t.bv, x.d_v)), lse,
                                             x.statistic(SlowArray::D, rows) + passing_lse_gradient(x),
                                             passing_bias(x, 0), dBias});
             return P + std::max(x.tile(SlowArray::Q, rows, x.d) + slopes_tile(x) +
                                     (TilesOfWeights(x.modifiers).count() - 1) * P + passing,
                                 x.tile(SlowArray::dQ, rows, x.d));
           });
  }
  /// The next columns of dO.
  static Words prefetch(const Sizes& x, Tiling t) {
    return x.tile(SlowArray::dO, std::min(t.Br, x.n_q), std::min(t.bv, x.d_v));
  }
  static Io io(const Sizes& x, Tiling t) {
    const Words pairs = x.pairs().pairs_of_rows(t.Br), visits = x.pairs().visited_keys(t.Br),
                blocks = x.pairs().row_blocks(t.Br).count();
    const Words keys = RingSide::of_keys(x.pairs(), t.Br).items_met();
    return modifiers_io(x, pairs, visits, blocks) + sinks_io(x, blocks) + bias_gradient_io(x, pairs, visits) +
           lse_gradient_io(x, x.n_q) +
           Io().read(SlowArray::Q, Words(x.n_q) * x.d)
               .read(SlowArray::K, keys * x.d)
               .read(SlowArray::V, keys * x.d_v)
               .read(SlowArray::dO, Words(x.n_q) * x.d_v)
               .write(SlowArray::dQ, Words(x.n_q) * x.d)
               .write(SlowArray::dK, Words(x.n_k) * x.d)
               .write(SlowArray::dV, Words(x.n_k) * x.d_v);
  }
  static IndexWords index(const Sizes& x, Tiling t) { return row_pass_index(x, t.Br).words(); }
  static Words macs(const Sizes& x, Tiling t) {
    return x.pairs().pairs_of_rows(t.Br) * (Words(3) * x.d + Words(2) * x.d_v);
  }

  /// The rings of keys and values and of their gradients.
  template <class M>
  struct Keys {
    Tile<M> K, V, dK, dV;
  };

  template <Machine M>
  static void run(M& m, const BackwardOperands& x, Tiling t) {
    const RingSide side = RingSide::of_keys(x.shape.pairs(), t.Br);
    RingSteps steps(side, places(x.shape, t), x.shape.n_k, RingOrder::together);
    const Shape K{steps.places(), x.shape.d}, V{steps.places(), x.shape.d_v};
    const Keys<M> keys{m.alloc(SlowArray::K, K), m.alloc(SlowArray::V, V), m.alloc(SlowArray::dK, K),
                       m.alloc(SlowArray::dV, V)};
    for (index_t i = 0; i < side.blocks.count(); ++i) {
      const std::vector<RingStep>& of_block = steps.next();
      for (const RingStep& j : of_block) {
        if (!j.enters) continue;
        m.load_into(keys.K.rows(j.rows.begin, j.rows.size()), x.K.rows(j.items));
        m.load_into(keys.V.rows(j.rows.begin, j.rows.size()), x.V.rows(j.items));
        m.compute(kernel::Zero{}, keys.dK.rows(j.rows.begin, j.rows.size()));
        m.compute(kernel::Zero{}, keys.dV.rows(j.rows.begin, j.rows.size()));
      }
      gradients(m, x, keys, side.blocks(i), joined(of_block), t.bv);
      for (const RingStep& j : of_block) {
        if (!j.leaves) continue;
        m.store(keys.dK.rows(j.rows.begin, j.rows.size()), x.dK.rows(j.items));
        m.store(keys.dV.rows(j.rows.begin, j.rows.size()), x.dV.rows(j.items));
      }
    }
    for_unmet(side, [&](Range J) {
      m.update(kernel::ZeroOver{}, x.dK.rows(J));
      m.update(kernel::ZeroOver{}, x.dV.rows(J));
    });
  }

  /// dQ of the queries I, and what they add to dK and dV of the keys that they see.
  template <class M>
  static void gradients(M& m, const BackwardOperands& x, const Keys<M>& keys, Range I,
                        const std::vector<RingPart>& seen, index_t bv) {
    const Shape pairs{I.size(), seen.empty() ? 0 : seen.back().columns.end};
    const auto of = [](const Tile<M>& tile, const RingPart& j, Range columns) {
      return part_of(tile.arg(), {}, j.rows, columns);
    };
    const auto at = [&](const Tile<M>& tile, const RingPart& j) {  // those of a tile of pairs
      return tile.shape().words() == 0 ? tile.arg() : part_of(tile.arg(), {}, {0, I.size()}, j.columns);
    };
    const auto weights_at = [&](const RingPart& j) {
      return weights_of_tile(x.shape, x.instance(), {x.shape.mask, I.begin, j.items.begin});
    };
    const auto visit = [&](const auto& k, const auto&... a) { m.compute(k, a...); };
    const TilesOfWeights tiles(x.shape.modifiers);
    const Range features{0, x.shape.d};
    const auto dS = m.alloc(SlowArray::P, pairs);
    {
      const auto Q_i = m.load(x.Q.rows(I));
      const Slopes slopes(m, x);
      {
        const auto P = m.alloc(SlowArray::P, pairs), G = m.alloc(SlowArray::P, tiles.G ? pairs : Shape{0, 0}),
                   F = m.alloc(SlowArray::P, tiles.F ? pairs : Shape{0, 0});
        for (const RingPart& j : seen) {
          m.compute(kernel::Scores{x.scale, {x.shape.mask, I.begin, j.items.begin}}, at(P, j), Q_i,
                    of(keys.K, j, features));
          weights_at(j).modified(visit, at(P, j), at(G, j), at(F, j), x.bias_of(I, j.items), slopes.arg());
        }
        {
          const auto lse_i = m.alloc(x.lse.rows(I));
          m.compute(kernel::BlockSoftmax{}, P, lse_i);
          if (x.shape.modifiers.sinks) m.compute(kernel::AddSinks{I.begin}, P, lse_i, m.stream(x.sinks.all()));
        }
        for (const RingPart& j : seen) weights_at(j).weighted(visit, at(P, j), at(G, j), at(F, j));
        m.compute(kernel::Zero{}, dS);
        for (index_t c = 0; c < x.shape.d_v; c += bv) {
          const Range columns{c, std::min(c + bv, x.shape.d_v)};
          const auto dO_i = m.load(x.dO.block(I, columns));
          for (const RingPart& j : seen)  // dP += dO V^T; dV += P^T dO
            m.compute(kernel::ValueGradients{}, at(dS, j), of(keys.dV, j, columns), at(P, j), of(keys.V, j, columns),
                      dO_i);
        }
        {
          const auto D_i = m.alloc(x.D.rows(I));
          m.compute(kernel::RowDots{}, D_i, P, dS);
          subtract_lse_gradient(m, x, D_i, I);
          for (const RingPart& j : seen)  // dS = scale P o (dP - D)
            weights_at(j).gradient(visit, x.scale, at(dS, j), at(P, j), at(G, j), at(F, j), D_i.arg());
        }
        for (const RingPart& j : seen)
          if (x.shape.modifiers.bias_gradient)
            m.update(kernel::AddBiasGradient{false, 1 / x.scale}, x.of_scores(x.dBias, I, j.items),
                     at(tiles.F ? P : dS, j));
      }
      for (const RingPart& j : seen) m.compute(kernel::Gemm{true, false}, of(keys.dK, j, features), at(dS, j), Q_i);
    }
    const auto dQ_i = m.alloc(x.dQ.rows(I));
    m.compute(kernel::Zero{}, dQ_i);
    for (const RingPart& j : seen) m.compute(kernel::Gemm{}, dQ_i, at(dS, j), of(keys.K, j, features));
    m.store(dQ_i, x.dQ.rows(I));
  }
};

}  // namespace redblue::schedule
