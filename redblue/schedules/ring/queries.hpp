#pragma once
#include "redblue/schedules/ring/pinned_keys.hpp"
#include "redblue/schedules/ring/steps.hpp"
#include "redblue/schedules/ring/tiling.hpp"

namespace redblue::schedule {

/// ringB2, queries, their gradients and statistics in rings: each is loaded when the first key comes that it sees, and
/// its gradient is stored when it sees no later key. Keys pass in blocks, each with its gradients. O and lse are those
/// that are given. For windows: there it moves the words that every schedule moves (docs/proofs/trivial.md) and those
/// of O and lse, in less fast memory than ringB1 (ring/backward.hpp).
///   reads n_q (d + 2 d_v + 1) + n_k (d + d_v)   writes n_q d + n_k (d + d_v)
///   footprint s (2 d + d_v + 2) + Bc (2 d + 2 d_v) + max(2 br Bc, 1)
/// Under a pattern keys that see much more than others, such as global tokens, may be pinned: they are resident for the
/// whole run with their gradients, and meet each query when it is loaded. G of them take G (2 d + 2 d_v) words.
/// s: the most queries that see one block of keys and the next, or br if that is more; under a pattern those that stay
/// from one block to the next (parts/ring_side.hpp), and n_q in reads is of those that see a key. Theory notes 2g.
/// Modifiers: parts/modifiers.hpp.
struct RingQueriesBackward : Defaults {
  using Operands = BackwardOperands;
  static constexpr std::string_view name = "ring_queries";
  static constexpr std::string_view label = "ringB2";
  static constexpr std::string_view idea = "keeping the queries of a window and their gradients resident in rings";
  static constexpr Traits traits{.windows = true,
                                 .masks = true,
                                 .patterns = true,
                                 .modifiers = true,
                                 .any_score = true,
                                 .lse_gradient = true,
                                 .products = 5};
  static constexpr std::array<SlowArray, 0> workspace{};

  struct Tiling {
    index_t Bc = 1;      ///< keys and values resident at a time
    index_t br = 1;      ///< queries per step
    index_t pinned = 0;  ///< keys resident throughout, of a pattern
    void tile_sizes(const auto& tile_size) {
      tile_size({"Bc", &Sizes::n_k}, Bc);
      tile_size({"br", &Sizes::n_q}, br);
      tile_size({"pinned", &Sizes::n_k, 0}, pinned, pinned > 0);
    }
  };

  static Tiling smallest(const Sizes& x, const Multiples& m) {
    return {smallest_tile(x.n_k, m.key), smallest_tile(x.n_q, m.query)};
  }
  /// Bc and br are doubled in turn while there is room (parts/ring_tiling.hpp).
  static std::optional<Tiling> choose_tiling(const Sizes& x, const Limits& limits) {
    return ring_tiling<RingQueriesBackward>(x, limits, {SlowArray::K, &Tiling::Bc, Sinks::none}, [&](Tiling t) {
      const auto fits_with = [&](Tiling u) { return fits<RingQueriesBackward>(x, u, limits); };
      for (index_t enough = 2; enough <= kEnough; enough *= 2) {
        t.Bc = doubled_block(x, t.Bc, x.n_k, [&](index_t keys) { return fits_with({keys, t.br, t.pinned}); }, enough);
        t.br = doubled(t.br, x.n_q, [&](index_t rows) { return fits_with({t.Bc, rows, t.pinned}); }, enough);
      }
      return t;
    });
  }

  /// The queries that pass, and how many the rings hold.
  static RingSide side(const Sizes& x, Tiling t) {
    return RingSide::of_queries(x.pairs(), std::min(t.Bc, x.n_k), pinned_rows(x, t.pinned));
  }
  static index_t places(const Sizes& x, Tiling t) { return side(x, t).places(t.br); }
  /// What is loaded of queries.
  static Words arriving(const Sizes& x, index_t rows) {
    return x.tile(SlowArray::Q, rows, x.d) + x.tile(SlowArray::dO, rows, x.d_v) + x.statistic(SlowArray::lse, rows);
  }
  static Words passing_output(const Sizes& x) {
    return x.statistics() > 0 ? std::max(x.word(SlowArray::O), passing_lse_gradient(x)) : Words(0);
  }
  static Words footprint(const Sizes& x, Tiling t) {
    const RingSide rows = side(x, t);
    const RingSide::Largest largest = rows.largest();
    const index_t s = rows.places(t.br), pin = std::min(rows.longest_pin(), std::min(t.Bc, x.n_k));
    const Words queries = arriving(x, s) + x.statistic(SlowArray::D, s) + x.tile(SlowArray::dQ, s, x.d);
    const auto block = [&](index_t keys) { return key_tiles(x, keys) + bias_tiles(x, keys) + slopes_tile(x); };
    const auto pairs = [&](index_t keys) {
      return TilesOfWeights(x.modifiers).count() * x.tile(SlowArray::P, std::min(t.br, x.n_q), keys) +
             std::max(passing_bias_of_pairs(x), passing_bias_gradient(x));
    };
    return queries + key_tiles(x, rows.pinned) +
           std::max({block(largest.all), block(largest.meeting) + pairs(largest.meeting),
                     block(largest.entered) + passing_output(x),
                     pin > 0 ? block(largest.entered) + pairs(pin) : Words(0)});
  }
  /// The next queries, and the next word of O.
  static Words prefetch(const Sizes& x, Tiling t) {
    return arriving(x, std::min(t.br, x.n_q)) +
           std::max({passing_output(x), passing_bias_of_pairs(x), passing_bias_gradient(x)});
  }
  static Io io(const Sizes& x, Tiling t) {
    const RingSide queries = side(x, t);
    const RingSide::Sums sums = queries.sums();
    const Words pairs = sums.pairs, rows = queries.items_met();
    return modifiers_io(x, pairs, x.n_k, queries.blocks.count()) + bias_gradient_io(x, pairs, x.n_k, sums.visits) +
           lse_gradient_io(x, rows) +
           Io().read(SlowArray::Q, rows * x.d)
               .read(SlowArray::K, Words(x.n_k) * x.d)
               .read(SlowArray::V, Words(x.n_k) * x.d_v)
               .read(SlowArray::O, rows * x.statistics() * x.d_v)
               .read(SlowArray::lse, rows * x.statistics())
               .read(SlowArray::dO, rows * x.d_v)
               .write(SlowArray::dQ, Words(x.n_q) * x.d)
               .write(SlowArray::dK, Words(x.n_k) * x.d)
               .write(SlowArray::dV, Words(x.n_k) * x.d_v);
  }
  static IndexWords index(const Sizes& x, Tiling t) { return side(x, t).index(x); }
  static Words macs(const Sizes& x, Tiling t) { return side(x, t).sums().pairs * (Words(3) * x.d + Words(2) * x.d_v); }

  /// The rings.
  template <class M>
  struct Queries {
    Tile<M> Q, dO, lse, D, dQ;
    Queries(M& m, const BackwardOperands& x, index_t s)
        : Q(m.alloc(SlowArray::Q, {s, x.Q.shape.cols})),
          dO(m.alloc(SlowArray::dO, {s, x.dO.shape.cols})),
          lse(m.alloc(SlowArray::lse, {s, x.lse.shape.cols})),
          D(m.alloc(SlowArray::D, {s, x.D.shape.cols})),
          dQ(m.alloc(SlowArray::dQ, {s, x.dQ.shape.cols})) {}
  };

  template <Machine M>
  static void run(M& m, const BackwardOperands& x, Tiling t) {
    const RingSide rows = side(x.shape, t);
    RingSteps steps(rows, places(x.shape, t), t.br, RingOrder::leaving_first);
    const Queries<M> queries(m, x, steps.places());
    const PinnedKeys<M> pinned(m, x, rows.blocks.pins(), std::min(t.Bc, x.shape.n_k));
    for (index_t j = 0; j < rows.blocks.count(); ++j) {
      const KeyTiles<M> keys(m, x, rows.blocks(j));
      for (const RingStep& i : steps.next()) {
        if (i.enters) {
          enter(m, x, queries, i);
          pinned.for_parts(keys.slopes.arg(),
                           [&](const KeyArgs& some) { attend(m, x, queries, i, some, pinned.most(), t.br); });
        }
        attend(m, x, queries, i, keys.args(), keys.keys.size(), t.br);
        if (i.leaves) m.store(queries.dQ.rows(i.rows.begin, i.rows.size()), x.dQ.rows(i.items));
      }
      keys.store(m, x);
    }
    pinned.store(m, x);
    for_unmet(rows, [&](Range I) { m.update(kernel::ZeroOver{}, x.dQ.rows(I)); });
  }

  /// Queries take their places in the rings.
  template <class M>
  static void enter(M& m, const BackwardOperands& x, const Queries<M>& queries, const RingStep& i) {
    const auto of = [&](const Tile<M>& tile) { return tile.rows(i.rows.begin, i.rows.size()); };
    m.load_into(of(queries.dO), x.dO.rows(i.items));
    if (x.shape.statistics() > 0) {  // D = rowsum(dO o O)
      m.compute(kernel::RowDots{}, of(queries.D), of(queries.dO), m.stream(x.O.rows(i.items)));
      subtract_lse_gradient(m, x, of(queries.D), i.items);
    }
    m.load_into(of(queries.Q), x.Q.rows(i.items));
    m.load_into(of(queries.lse), x.lse.rows(i.items));
    m.compute(kernel::Zero{}, of(queries.dQ));
  }
  /// What queries in the rings and some keys, `most` at a time, add to each other's gradients.
  template <class M>
  static void attend(M& m, const BackwardOperands& x, const Queries<M>& queries, const RingStep& i, const KeyArgs& keys,
                     index_t most, index_t br) {
    const auto of = [&](const Tile<M>& tile) { return tile.rows(i.rows.begin, i.rows.size()); };
    const PairTiles<M> pairs(m, x.shape.modifiers, {std::min(br, x.shape.n_q), most});
    const QueryArgs args{of(queries.Q), of(queries.lse), of(queries.D), of(queries.dO)};
    const Arg dS = key_step(m, x, i.items, i.items.end, args, keys, pairs);
    m.compute(kernel::Gemm{}, of(queries.dQ), dS, keys.K);  // dQ += dS K
  }
};

}  // namespace redblue::schedule
