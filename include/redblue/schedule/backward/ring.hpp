#pragma once
#include "redblue/kernel/materialised.hpp"
#include "redblue/schedule/backward/operands.hpp"
#include "redblue/schedule/parts/ring.hpp"
#include "redblue/schedule/parts/score_phase.hpp"
#include "redblue/schedule/parts/visible.hpp"

namespace redblue::schedule {

/// ringB1, keys, values and their gradients in rings: each key is loaded when the first query comes that sees it, and
/// its gradients are stored when no later query does. All keys of a query are then resident at once, so that the
/// schedule forms the softmax and D = rowsum(P o dP) itself and reads neither O nor lse. For windows: there it moves
/// the words that every schedule moves (docs/proofs/trivial.md), whatever M, once fast memory holds a window.
///   reads n_q (d + d_v) + n_k (d + d_v)   writes n_q d + n_k (d + d_v)
///   footprint 2 s (d + d_v) + Br kappa + max(Br (d + kappa + max(bv, 1)), Br d)
/// s: the most keys that a block of queries sees. kappa: those of one block. Theory notes 2g. Modifiers:
/// parts/modifiers.hpp.
struct RingBackward : Defaults {
  using Operands = BackwardOperands;
  static constexpr std::string_view name = "ring";
  static constexpr std::string_view label = "ringB1";
  static constexpr std::string_view idea = "keeping the keys of a window and their gradients resident in rings";
  static constexpr Traits traits{.windows = true, .own_softmax = true, .masks = true, .modifiers = true, .products = 5};
  static constexpr std::array<SlowArray, 0> workspace{};

  struct Tiling {
    index_t Br = 1;  ///< queries resident at a time
    index_t bv = 1;  ///< columns of dO at a time
    void knobs(const auto& knob) {
      knob({"Br", &Sizes::n_q}, Br);
      knob({"bv", &Sizes::d_v}, bv);
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
    const auto fits = [&](Tiling u) { return limits.fit(footprint(x, u), prefetch(x, u)); };
    const auto rows_fit = [&](index_t rows) { return fits({rows, t.bv}); };
    const std::optional<index_t> Br = smallest_block(x, limits, SlowArray::Q, rows_fit);
    if (!Br) return std::nullopt;
    if (fits({*Br, x.d_v})) t.bv = x.d_v;
    t.Br = doubled(*Br, x.n_q, rows_fit);
    return t;
  }

  /// Keys that the rings hold.
  static index_t places(const Sizes& x, Tiling t) { return most_seen_keys(x, t.Br); }
  static Words footprint(const Sizes& x, Tiling t) {
    const index_t s = places(x, t);
    return x.tile(SlowArray::K, s, x.d) + x.tile(SlowArray::V, s, x.d_v) + x.tile(SlowArray::dK, s, x.d) +
           x.tile(SlowArray::dV, s, x.d_v) + query_blocks_footprint(x, t.Br, [&](index_t rows, index_t kappa) {
             const Words P = x.tile(SlowArray::P, rows, kappa),
                         lse = x.statistic(SlowArray::lse, rows) + passing_sink(x, 0),
                         dBias = x.modifiers.bias_gradient ? x.word(SlowArray::dBias) : Words(0),
                         passing = std::max({x.tile(SlowArray::dO, rows, std::min(t.bv, x.d_v)), lse,
                                             x.statistic(SlowArray::D, rows), passing_bias(x, 0), dBias});
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
                blocks = ceil_div(x.n_q, t.Br);
    return modifiers_io(x, pairs, visits, blocks) + sinks_io(x, blocks) + bias_gradient_io(x, pairs, visits) +
           Io().read(SlowArray::Q, Words(x.n_q) * x.d)
               .read(SlowArray::K, Words(x.n_k) * x.d)
               .read(SlowArray::V, Words(x.n_k) * x.d_v)
               .read(SlowArray::dO, Words(x.n_q) * x.d_v)
               .write(SlowArray::dQ, Words(x.n_q) * x.d)
               .write(SlowArray::dK, Words(x.n_k) * x.d)
               .write(SlowArray::dV, Words(x.n_k) * x.d_v);
  }
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
    const Pairs pairs = x.shape.pairs();
    const Blocks blocks = pairs.row_blocks(t.Br);
    const Ring ring{places(x.shape, t)};
    const Shape K{ring.places, x.shape.d}, V{ring.places, x.shape.d_v};
    const Keys<M> keys{m.alloc(SlowArray::K, K), m.alloc(SlowArray::V, V), m.alloc(SlowArray::dK, K),
                       m.alloc(SlowArray::dV, V)};
    index_t loaded = 0;  // keys before it are in the rings, or were
    for (index_t i = 0; i < blocks.count(); ++i) {
      const Box box{blocks(i), pairs.keys_of(blocks(i))};
      ring.for_parts({std::max(loaded, box.keys.begin), box.keys.end}, [&](Range J, Range rows) {
        m.load_into(keys.K.rows(rows.begin, rows.size()), x.K.rows(J));
        m.load_into(keys.V.rows(rows.begin, rows.size()), x.V.rows(J));
        m.compute(kernel::Zero{}, keys.dK.rows(rows.begin, rows.size()));
        m.compute(kernel::Zero{}, keys.dV.rows(rows.begin, rows.size()));
      });
      loaded = box.keys.end;
      gradients(m, x, ring, keys, box, t.bv);
      const index_t needed = i + 1 < blocks.count() ? pairs.keys_of(blocks(i + 1)).begin : x.shape.n_k;
      ring.for_parts({box.keys.begin, needed}, [&](Range J, Range rows) {
        m.store(keys.dK.rows(rows.begin, rows.size()), x.dK.rows(J));
        m.store(keys.dV.rows(rows.begin, rows.size()), x.dV.rows(J));
      });
    }
  }

  /// dQ of the queries of a box, and what they add to dK and dV.
  template <class M>
  static void gradients(M& m, const BackwardOperands& x, const Ring& ring, const Keys<M>& keys, const Box& box,
                        index_t bv) {
    const auto [I, seen] = box;
    const auto rows_of = [&](const Tile<M>& tile, Range rows) { return tile.rows(rows.begin, rows.size()); };
    const auto columns_of = [&](const Tile<M>& tile, Range rows, Range columns) {
      return part_of(tile.arg(), {{0, ring.places}, {0, x.shape.d_v}}, rows, columns);
    };
    const Place place{x.shape.mask, I.begin, seen.begin};
    const kernel::WeightsOfTile weights = weights_of_tile(x.shape, x.instance(), place);
    const auto visit = [&](const auto& k, const auto&... a) { m.compute(k, a...); };
    const TilesOfWeights tiles(x.shape.modifiers);
    const auto dS = m.alloc(SlowArray::P, {I.size(), seen.size()});
    {
      const auto Q_i = m.load(x.Q.rows(I)), slopes = m.load(x.slopes.all());
      {
        const auto P = m.alloc(SlowArray::P, dS.shape()), G = m.alloc(SlowArray::P, tiles.G ? dS.shape() : Shape{0, 0}),
                   F = m.alloc(SlowArray::P, tiles.F ? dS.shape() : Shape{0, 0});
        ring.for_parts(seen, [&](Range J, Range rows) {
          m.compute(kernel::Scores{x.scale, {x.shape.mask, I.begin, J.begin}}, part_of(P.arg(), box, I, J), Q_i,
                    rows_of(keys.K, rows));
        });
        weights.modified(visit, P.arg(), G.arg(), F.arg(), x.bias_of(I, seen), slopes.arg());
        {
          const auto lse_i = m.alloc(x.lse.rows(I));
          m.compute(kernel::BlockSoftmax{}, P, lse_i);
          if (x.shape.modifiers.sinks) m.compute(kernel::AddSinks{I.begin}, P, lse_i, m.stream(x.sinks.all()));
        }
        weights.weighted(visit, P.arg(), G.arg(), F.arg());
        m.compute(kernel::Zero{}, dS);
        for (index_t c = 0; c < x.shape.d_v; c += bv) {
          const Range columns{c, std::min(c + bv, x.shape.d_v)};
          const auto dO_i = m.load(x.dO.block(I, columns));
          ring.for_parts(seen, [&](Range J, Range rows) {  // dP += dO V^T; dV += P^T dO
            m.compute(kernel::ValueGradients{}, part_of(dS.arg(), box, I, J), columns_of(keys.dV, rows, columns),
                      part_of(P.arg(), box, I, J), columns_of(keys.V, rows, columns), dO_i);
          });
        }
        {
          const auto D_i = m.alloc(x.D.rows(I));
          m.compute(kernel::RowDots{}, D_i, P, dS);
          weights.gradient(visit, x.scale, dS.arg(), P.arg(), G.arg(), F.arg(), D_i.arg());  // dS = scale P o (dP - D)
        }
        if (x.shape.modifiers.bias_gradient)
          m.update(kernel::AddBiasGradient{false, 1 / x.scale}, x.of_scores(x.dBias, I, seen), tiles.F ? P : dS);
      }
      ring.for_parts(seen, [&](Range J, Range rows) {
        m.compute(kernel::Gemm{true, false}, rows_of(keys.dK, rows), part_of(dS.arg(), box, I, J), Q_i);
      });
    }
    const auto dQ_i = m.alloc(x.dQ.rows(I));
    m.compute(kernel::Zero{}, dQ_i);
    ring.for_parts(seen, [&](Range J, Range rows) {
      m.compute(kernel::Gemm{}, dQ_i, part_of(dS.arg(), box, I, J), rows_of(keys.K, rows));
    });
    m.store(dQ_i, x.dQ.rows(I));
  }
};

}  // namespace redblue::schedule
