#pragma once
#include "redblue/schedules/ring/blocks.hpp"

namespace redblue::schedule {

/// ringB3, two passes, each with a ring: queries pass keys and values in one, for dQ and D = rowsum(P o dP); then keys
/// pass queries in the other, for dK and dV. Gradients leave word by word, so that no gradient is resident. The first
/// pass forms the softmax itself, so that O is not read; the second takes lse as given. For windows: of the rings for
/// gradients the one that takes the least fast memory.
///   pass 1  reads n_q (d + d_v) + n_k (d + d_v)   writes n_q (d + 1)
///           footprint s (d + d_v) + Br (2 kappa + max(bd, bv))
///   pass 2  reads n_q (d + d_v + 2) + n_k (d + d_v)   writes n_k (d + d_v)
///           footprint r (d + d_v + 2) + Bc (2 rho + max(bd, bv))
/// s: the most keys that a block of Br queries sees, r: the most queries that see a block of Bc keys, under a pattern
/// the most held at once. kappa and rho: those of one block. Theory notes 2g.
struct RingTwoPassBackward : Defaults {
  using Operands = BackwardOperands;
  static constexpr std::string_view name = "ring_two_pass";
  static constexpr std::string_view label = "ringB3";
  static constexpr std::string_view idea = "two passes, the keys and then the queries of a window resident in rings";
  static constexpr Traits traits{
      .windows = true, .own_softmax = true, .masks = true, .patterns = true, .lse_gradient = true, .products = 7};
  static constexpr std::array workspace{SlowArray::D};

  struct Tiling {
    index_t Br = 1;  ///< queries that pass at a time
    index_t Bc = 1;  ///< keys that pass at a time
    index_t bd = 1;  ///< columns of Q, K, dQ and dK that pass at a time
    index_t bv = 1;  ///< of dO, V and dV
    void tile_sizes(const auto& tile_size) {
      tile_size({"Br", &Sizes::n_q}, Br);
      tile_size({"Bc", &Sizes::n_k}, Bc);
      tile_size({"bd", &Sizes::d}, bd);
      tile_size({"bv", &Sizes::d_v}, bv);
    }
  };
  static std::string_view caveat(const Sizes&, Tiling) {
    return "it forms the softmax itself for dq: o is not read, and lse for dk and dv alone";
  }

  static Tiling smallest(const Sizes& x, const Multiples& m) {
    return {smallest_tile(x.n_q, m.query), smallest_tile(x.n_k, m.key), smallest_tile(x.d, m.feature),
            smallest_tile(x.d_v, m.feature)};
  }
  /// All move the same words: the smallest blocks that fit, with all columns where they fit, doubled while there is
  /// room.
  static std::optional<Tiling> choose_tiling(const Sizes& x, const Limits& limits) {
    Tiling t = smallest(x, limits.multiple);
    const auto rows_fit = [&](index_t rows) { return limits.fit(query_phase(x, {rows, t.Bc, t.bd, t.bv})); };
    const auto keys_fit = [&](index_t keys) { return limits.fit(key_phase(x, {t.Br, keys, t.bd, t.bv})); };
    const std::optional<index_t> Br = smallest_block(x, limits, SlowArray::Q, rows_fit),
                                 Bc = smallest_block(x, limits, SlowArray::K, keys_fit);
    if (!Br || !Bc) return std::nullopt;
    const Tiling whole{*Br, *Bc, x.d, x.d_v};
    if (limits.fit(footprint(x, whole), prefetch(x, whole))) t = whole;
    t.Br = doubled(*Br, x.n_q, rows_fit);
    t.Bc = doubled(*Bc, x.n_k, keys_fit);
    return t;
  }

  /// What each pass holds, and how much of it.
  static RingSide keys_of(const Sizes& x, Tiling t) { return RingSide::of_keys(x.pairs(), std::min(t.Br, x.n_q)); }
  static RingSide queries_of(const Sizes& x, Tiling t) {
    return RingSide::of_queries(x.pairs(), std::min(t.Bc, x.n_k));
  }
  static Phase query_phase(const Sizes& x, Tiling t) {
    const index_t s = keys_of(x, t).places_together(x), bd = std::min(t.bd, x.d), bv = std::min(t.bv, x.d_v);
    const auto arriving = [&](index_t rows) {
      return std::max(x.tile(SlowArray::Q, rows, bd), x.tile(SlowArray::dO, rows, bv));
    };
    const Words block = seen_keys_footprint(x, t.Br, [&](index_t rows, index_t kappa) {
      const Words P = x.tile(SlowArray::P, rows, kappa),
                  statistic = std::max(x.tile(SlowArray::lse, rows, 1),
                                       x.tile(SlowArray::D, rows, 1) + passing_lse_gradient(x));
      return P + std::max(P + std::max(arriving(rows), statistic), x.tile(SlowArray::dQ, rows, bd));
    });
    return {x.tile(SlowArray::K, s, x.d) + x.tile(SlowArray::V, s, x.d_v) + block, arriving(std::min(t.Br, x.n_q))};
  }
  static Phase key_phase(const Sizes& x, Tiling t) {
    const index_t r = queries_of(x, t).places_together(x), bd = std::min(t.bd, x.d), bv = std::min(t.bv, x.d_v);
    const auto arriving = [&](index_t keys) {
      return std::max(x.tile(SlowArray::K, keys, bd), x.tile(SlowArray::V, keys, bv));
    };
    const Words block = seeing_queries_footprint(x, t.Bc, [&](index_t keys, index_t rho) {
      const Words P = x.tile(SlowArray::P, rho, keys);
      return P +
             std::max(P + std::max(arriving(keys), x.tile(SlowArray::dV, keys, bv)), x.tile(SlowArray::dK, keys, bd));
    });
    return {x.tile(SlowArray::Q, r, x.d) + x.tile(SlowArray::dO, r, x.d_v) + x.tile(SlowArray::lse, r, 1) +
                x.tile(SlowArray::D, r, 1) + block,
            arriving(std::min(t.Bc, x.n_k))};
  }
  static std::array<Phase, 2> phases(const Sizes& x, Tiling t) { return {query_phase(x, t), key_phase(x, t)}; }
  static Words footprint(const Sizes& x, Tiling t) { return footprint_of(phases(x, t)); }
  static Words prefetch(const Sizes& x, Tiling t) { return prefetch_of(phases(x, t)); }
  static Io io(const Sizes& x, Tiling t) {
    const Words keys = keys_of(x, t).items_met(), rows = queries_of(x, t).items_met();
    return lse_gradient_io(x, x.n_q)
        .read(SlowArray::Q, (rows + x.n_q) * x.d)
        .read(SlowArray::K, (keys + x.n_k) * x.d)
        .read(SlowArray::V, (keys + x.n_k) * x.d_v)
        .read(SlowArray::dO, (rows + x.n_q) * x.d_v)
        .read(SlowArray::lse, rows)
        .read(SlowArray::D, rows)
        .write(SlowArray::D, x.n_q)
        .write(SlowArray::dQ, Words(x.n_q) * x.d)
        .write(SlowArray::dK, Words(x.n_k) * x.d)
        .write(SlowArray::dV, Words(x.n_k) * x.d_v);
  }
  static IndexWords index(const Sizes& x, Tiling t) {
    return index_of_phases({row_pass_index(x, t.Br).words(), key_pass_index(x, t.Bc).words()});
  }
  static Words macs(const Sizes& x, Tiling t) {
    return x.pairs().pairs_of_rows(t.Br) * (Words(2) * x.d + x.d_v) +
           x.pairs().pairs_of_keys(t.Bc) * (Words(2) * x.d + Words(2) * x.d_v);
  }

  template <Machine M>
  static void run(M& m, const BackwardOperands& x, Tiling t) {
    query_gradients(m, x, t);
    key_gradients(m, x, t);
  }

  /// dQ and D, block by block of queries.
  template <class M>
  static void query_gradients(M& m, const BackwardOperands& x, Tiling t) {
    const RingSide side = keys_of(x.shape, t);
    RingSteps steps(side, side.places_together(x.shape), x.shape.n_k, RingOrder::together);
    const auto K = m.alloc(SlowArray::K, {steps.places(), x.shape.d}),
               V = m.alloc(SlowArray::V, {steps.places(), x.shape.d_v});
    for (index_t i = 0; i < side.blocks.count(); ++i) {
      const std::vector<RingStep>& of_block = steps.next();
      for (const RingStep& j : of_block) {
        if (!j.enters) continue;
        m.load_into(K.rows(j.rows.begin, j.rows.size()), x.K.rows(j.items));
        m.load_into(V.rows(j.rows.begin, j.rows.size()), x.V.rows(j.items));
      }
      query_block(m, x, K.arg(), V.arg(), side.blocks(i), joined(of_block), {t.bd, t.bv});
    }
  }
  /// dK and dV, block by block of keys.
  template <class M>
  static void key_gradients(M& m, const BackwardOperands& x, Tiling t) {
    const RingSide side = queries_of(x.shape, t);
    RingSteps steps(side, side.places_together(x.shape), x.shape.n_q, RingOrder::together);
    const auto shape_of = [&](const SlowMatrix& a) { return Shape{steps.places(), a.shape.cols}; };
    const RingOfQueries<M> ring{m.alloc(SlowArray::Q, shape_of(x.Q)), m.alloc(SlowArray::dO, shape_of(x.dO)),
                                m.alloc(SlowArray::lse, shape_of(x.lse)), m.alloc(SlowArray::D, shape_of(x.D))};
    for (index_t j = 0; j < side.blocks.count(); ++j) {
      const std::vector<RingStep>& of_block = steps.next();
      for (const RingStep& i : of_block) {
        if (!i.enters) continue;
        m.load_into(ring.Q.rows(i.rows.begin, i.rows.size()), x.Q.rows(i.items));
        m.load_into(ring.dO.rows(i.rows.begin, i.rows.size()), x.dO.rows(i.items));
        m.load_into(ring.lse.rows(i.rows.begin, i.rows.size()), x.lse.rows(i.items));
        m.load_into(ring.D.rows(i.rows.begin, i.rows.size()), x.D.rows(i.items));
      }
      key_block(m, x, ring, side.blocks(j), joined(of_block), {t.bd, t.bv});
    }
  }
};

}  // namespace redblue::schedule
