#pragma once
#include "redblue/kernel/materialised.hpp"
#include "redblue/schedule/backward/operands.hpp"
#include "redblue/schedule/parts/index_words.hpp"
#include "redblue/schedule/parts/ring_steps.hpp"
#include "redblue/schedule/parts/score_phase.hpp"

namespace redblue::schedule {

/// ringB3, two passes, each with a ring: queries pass keys and values in one, for dQ and D = rowsum(P o dP); then keys
/// pass queries in the other, for dK and dV. Gradients leave word by word, so that no gradient is resident. The first
/// pass forms the softmax itself, so that O is not read; the second takes lse as given. For windows: of the rings for
/// gradients the one that takes the least fast memory.
///   pass 1  reads n_q (d + d_v) + n_k (d + d_v)   writes n_q (d + 1)    footprint s (d + d_v) + 2 Br s + Br
///   pass 2  reads n_q (d + d_v + 2) + n_k (d + d_v)   writes n_k (d + d_v)   footprint r (d + d_v + 2) + 2 Bc r + 1
/// s: the most keys that a block of Br queries sees. r: the most queries that see a block of Bc keys. Under a pattern
/// those that are held at once: theory notes 2g have fewer weights there, for P here has a word for all of them.
struct RingTwoPassBackward : Defaults {
  using Operands = BackwardOperands;
  static constexpr std::string_view name = "ring_two_pass";
  static constexpr std::string_view label = "ringB3";
  static constexpr std::string_view idea = "two passes, the keys and then the queries of a window resident in rings";
  static constexpr Traits traits{.windows = true, .own_softmax = true, .masks = true, .patterns = true, .products = 7};
  static constexpr std::array workspace{SlowArray::D};

  struct Tiling {
    index_t Br = 1;  ///< queries that pass at a time
    index_t Bc = 1;  ///< keys that pass at a time
    void knobs(const auto& knob) {
      knob({"Br", &Sizes::n_q}, Br);
      knob({"Bc", &Sizes::n_k}, Bc);
    }
  };
  static std::string_view caveat(const Sizes&, Tiling) {
    return "it forms the softmax itself for dq: o is not read, and lse for dk and dv alone";
  }

  static Tiling smallest(const Sizes& x, const Multiples& m) {
    return {smallest_tile(x.n_q, m.query), smallest_tile(x.n_k, m.key)};
  }
  /// All move the same words: the smallest blocks that fit, doubled while there is room.
  static std::optional<Tiling> choose_tiling(const Sizes& x, const Limits& limits) {
    const auto rows_fit = [&](index_t rows) { return limits.fit(query_phase(x, rows)); };
    const auto keys_fit = [&](index_t keys) { return limits.fit(key_phase(x, keys)); };
    const std::optional<index_t> Br = smallest_block(x, limits, SlowArray::Q, rows_fit),
                                 Bc = smallest_block(x, limits, SlowArray::K, keys_fit);
    if (!Br || !Bc) return std::nullopt;
    return Tiling{doubled(*Br, x.n_q, rows_fit), doubled(*Bc, x.n_k, keys_fit)};
  }

  /// What each pass holds, and how much of it.
  static RingSide keys_of(const Sizes& x, index_t Br) { return RingSide::of_keys(x.pairs(), std::min(Br, x.n_q)); }
  static RingSide queries_of(const Sizes& x, index_t Bc) {
    return RingSide::of_queries(x.pairs(), std::min(Bc, x.n_k));
  }
  static Phase query_phase(const Sizes& x, index_t Br) {
    const index_t s = keys_of(x, Br).places_together(x), rows = std::min(Br, x.n_q);
    const Words word = std::max({x.word(SlowArray::Q), x.word(SlowArray::dO), x.word(SlowArray::dQ)}),
                statistic = std::max(x.tile(SlowArray::lse, rows, 1), x.tile(SlowArray::D, rows, 1)),
                pairs = x.tile(SlowArray::P, rows, s);
    return {
        x.tile(SlowArray::K, s, x.d) + x.tile(SlowArray::V, s, x.d_v) + pairs +
            std::max(pairs + std::max({x.word(SlowArray::Q), x.word(SlowArray::dO), statistic}), x.word(SlowArray::dQ)),
        word};
  }
  static Phase key_phase(const Sizes& x, index_t Bc) {
    const index_t r = queries_of(x, Bc).places_together(x), keys = std::min(Bc, x.n_k);
    const Words pairs = x.tile(SlowArray::P, r, keys),
                values = std::max({x.word(SlowArray::K), x.word(SlowArray::V), x.word(SlowArray::dV)}),
                word = std::max(values, x.word(SlowArray::dK));
    return {x.tile(SlowArray::Q, r, x.d) + x.tile(SlowArray::dO, r, x.d_v) + x.tile(SlowArray::lse, r, 1) +
                x.tile(SlowArray::D, r, 1) + pairs + std::max(pairs + values, x.word(SlowArray::dK)),
            word};
  }
  static std::array<Phase, 2> phases(const Sizes& x, Tiling t) { return {query_phase(x, t.Br), key_phase(x, t.Bc)}; }
  static Words footprint(const Sizes& x, Tiling t) { return footprint_of(phases(x, t)); }
  static Words prefetch(const Sizes& x, Tiling t) { return prefetch_of(phases(x, t)); }
  static Io io(const Sizes& x, Tiling t) {
    const Words keys = keys_of(x, t.Br).items_met(), rows = queries_of(x, t.Bc).items_met();
    return Io()
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
    const RingSide keys = keys_of(x, t.Br), queries = queries_of(x, t.Bc);
    return keys.pairs_with_held(keys.places_together(x)) * (Words(2) * x.d + x.d_v) +
           queries.pairs_with_held(queries.places_together(x)) * (Words(2) * x.d + Words(2) * x.d_v);
  }

  template <Machine M>
  static void run(M& m, const BackwardOperands& x, Tiling t) {
    query_gradients(m, x, t.Br);
    key_gradients(m, x, t.Bc);
  }

  /// dQ and D, block by block of queries.
  template <class M>
  static void query_gradients(M& m, const BackwardOperands& x, index_t Br) {
    const RingSide side = keys_of(x.shape, Br);
    RingSteps steps(side, side.places_together(x.shape), x.shape.n_k, RingOrder::together);
    const auto K = m.alloc(SlowArray::K, {steps.places(), x.shape.d}),
               V = m.alloc(SlowArray::V, {steps.places(), x.shape.d_v});
    for (index_t i = 0; i < side.blocks.count(); ++i) {
      const Range I = side.blocks(i);
      for (const RingStep& j : steps.next()) {
        if (!j.enters) continue;
        m.load_into(K.rows(j.rows.begin, j.rows.size()), x.K.rows(j.items));
        m.load_into(V.rows(j.rows.begin, j.rows.size()), x.V.rows(j.items));
      }
      const std::vector<RingPart> held = steps.held();
      const index_t keys = held_rows(held);
      const Arg K_j = K.rows(0, keys), V_j = V.rows(0, keys);
      const auto dP = m.alloc(SlowArray::P, {I.size(), steps.places()});
      const Arg dS = dP.cols(keys);
      {
        const auto S = m.alloc(SlowArray::P, dP.shape());
        const Arg P = S.cols(keys);
        m.compute(kernel::Scores{x.scale}, P, m.stream(x.Q.rows(I)), K_j);
        for (const RingPart& j : held) hide(m, x.shape, part_of(P, {}, {0, I.size()}, j.columns), {I, j.items});
        {
          const auto lse_i = m.alloc(x.lse.rows(I));
          m.compute(kernel::BlockSoftmax{}, P, lse_i);
        }
        m.compute(kernel::Zero{}, dS);
        m.compute(kernel::Gemm{false, true}, dS, m.stream(x.dO.rows(I)), V_j);  // dP = dO V^T
        const auto D_i = m.alloc(x.D.rows(I));
        m.compute(kernel::RowDots{}, D_i, P, dS);
        m.compute(kernel::ScoreGradient{x.shape.score, x.scale}, dS, P, D_i);  // dS = scale P o (dP - D)
        m.store(D_i, x.D.rows(I));
      }
      m.update(kernel::GemmOver{false, false, true}, x.dQ.rows(I), dS, K_j);  // dQ = dS K
    }
  }

  /// dK and dV, block by block of keys.
  template <class M>
  static void key_gradients(M& m, const BackwardOperands& x, index_t Bc) {
    const RingSide side = queries_of(x.shape, Bc);
    RingSteps steps(side, side.places_together(x.shape), x.shape.n_q, RingOrder::together);
    const auto tile_of = [&](const SlowMatrix& a) { return m.alloc(a.array, {steps.places(), a.shape.cols}); };
    const auto Q = tile_of(x.Q), dO = tile_of(x.dO), lse = tile_of(x.lse), D = tile_of(x.D);
    for (index_t j = 0; j < side.blocks.count(); ++j) {
      const Range J = side.blocks(j);
      for (const RingStep& i : steps.next()) {
        if (!i.enters) continue;
        m.load_into(Q.rows(i.rows.begin, i.rows.size()), x.Q.rows(i.items));
        m.load_into(dO.rows(i.rows.begin, i.rows.size()), x.dO.rows(i.items));
        m.load_into(lse.rows(i.rows.begin, i.rows.size()), x.lse.rows(i.items));
        m.load_into(D.rows(i.rows.begin, i.rows.size()), x.D.rows(i.items));
      }
      const std::vector<RingPart> held = steps.held();
      const index_t queries = held_rows(held);
      const Arg Q_i = Q.rows(0, queries), dO_i = dO.rows(0, queries);
      const auto dP = m.alloc(SlowArray::P, {steps.places(), J.size()});
      const Arg dS = dP.rows(0, queries);
      {
        const auto S = m.alloc(SlowArray::P, dP.shape());
        const Arg P = S.rows(0, queries);
        m.compute(kernel::Scores{x.scale}, P, Q_i, m.stream(x.K.rows(J)));
        for (const RingPart& i : held) hide(m, x.shape, part_of(P, {}, i.rows, {0, J.size()}), {i.items, J});
        m.compute(kernel::Weights{x.shape.score}, P, lse.rows(0, queries));    // P = exp(S - lse)
        m.update(kernel::GemmOver{true, false, true}, x.dV.rows(J), P, dO_i);  // dV = P^T dO
        m.compute(kernel::Zero{}, dS);
        m.compute(kernel::Gemm{false, true}, dS, dO_i, m.stream(x.V.rows(J)));  // dP = dO V^T
        m.compute(kernel::ScoreGradient{x.shape.score, x.scale}, dS, P, D.rows(0, queries));
      }
      m.update(kernel::GemmOver{true, false, true}, x.dK.rows(J), dS, Q_i);  // dK = dS^T Q
    }
  }
};

}  // namespace redblue::schedule
