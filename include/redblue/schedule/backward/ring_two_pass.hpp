#pragma once
#include "redblue/kernel/materialised.hpp"
#include "redblue/schedule/backward/operands.hpp"
#include "redblue/schedule/parts/ring.hpp"
#include "redblue/schedule/parts/score_phase.hpp"

namespace redblue::schedule {

/// ringB3, two passes, each with a ring: queries pass keys and values in one, for dQ and D = rowsum(P o dP); then keys
/// pass queries in the other, for dK and dV. Gradients leave word by word, so that no gradient is resident. The first
/// pass forms the softmax itself, so that O is not read; the second takes lse as given. For windows: of the rings for
/// gradients the one that takes the least fast memory.
///   pass 1  reads n_q (d + d_v) + n_k (d + d_v)   writes n_q (d + 1)    footprint s (d + d_v) + 2 Br s + Br
///   pass 2  reads n_q (d + d_v + 2) + n_k (d + d_v)   writes n_k (d + d_v)   footprint r (d + d_v + 2) + 2 Bc r + 1
/// s: the most keys that a block of Br queries sees. r: the most queries that see a block of Bc keys. Theory notes 2g.
struct RingTwoPassBackward : Defaults {
  using Operands = BackwardOperands;
  static constexpr std::string_view name = "ring_two_pass";
  static constexpr std::string_view label = "ringB3";
  static constexpr std::string_view idea = "two passes, the keys and then the queries of a window resident in rings";
  static constexpr Traits traits{.windows = true, .own_softmax = true, .masks = true, .products = 7};
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

  static Phase query_phase(const Sizes& x, index_t Br) {
    const index_t s = most_seen_keys(x, Br), rows = std::min(Br, x.n_q);
    const Words word = std::max({x.word(SlowArray::Q), x.word(SlowArray::dO), x.word(SlowArray::dQ)}),
                statistic = std::max(x.tile(SlowArray::lse, rows, 1), x.tile(SlowArray::D, rows, 1)),
                pairs = x.tile(SlowArray::P, rows, s);
    return {
        x.tile(SlowArray::K, s, x.d) + x.tile(SlowArray::V, s, x.d_v) + pairs +
            std::max(pairs + std::max({x.word(SlowArray::Q), x.word(SlowArray::dO), statistic}), x.word(SlowArray::dQ)),
        word};
  }
  static Phase key_phase(const Sizes& x, index_t Bc) {
    const index_t r = most_seeing_rows(x, Bc), keys = std::min(Bc, x.n_k);
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
  static Io io(const Sizes& x, Tiling) {
    return Io()
        .read(SlowArray::Q, Words(2) * x.n_q * x.d)
        .read(SlowArray::K, Words(2) * x.n_k * x.d)
        .read(SlowArray::V, Words(2) * x.n_k * x.d_v)
        .read(SlowArray::dO, Words(2) * x.n_q * x.d_v)
        .read(SlowArray::lse, x.n_q)
        .read(SlowArray::D, x.n_q)
        .write(SlowArray::D, x.n_q)
        .write(SlowArray::dQ, Words(x.n_q) * x.d)
        .write(SlowArray::dK, Words(x.n_k) * x.d)
        .write(SlowArray::dV, Words(x.n_k) * x.d_v);
  }
  static Words macs(const Sizes& x, Tiling t) {
    return x.pairs().pairs_with_last_keys(t.Br, most_seen_keys(x, t.Br)) * (Words(2) * x.d + x.d_v) +
           x.pairs().pairs_with_last_rows(t.Bc, most_seeing_rows(x, t.Bc)) * (Words(2) * x.d + Words(2) * x.d_v);
  }

  template <Machine M>
  static void run(M& m, const BackwardOperands& x, Tiling t) {
    query_gradients(m, x, t.Br);
    key_gradients(m, x, t.Bc);
  }

  /// The scores of pairs that do not see each other become -inf: `box` holds queries and keys that came last, of which
  /// those in a ring lie in its order.
  template <class M>
  static void hide_in_ring(M& m, const BackwardOperands& x, const Arg& S, const Box& box, const Ring& ring,
                           bool rows_lie_there) {
    const Box tile{{0, S.shape().rows}, {0, S.shape().cols}};
    ring.for_parts(rows_lie_there ? box.rows : box.keys, [&](Range part, Range places) {
      if (rows_lie_there)
        hide(m, x.shape, part_of(S, tile, places, tile.keys), {part, box.keys});
      else
        hide(m, x.shape, part_of(S, tile, tile.rows, places), {box.rows, part});
    });
  }

  /// dQ and D, block by block of queries.
  template <class M>
  static void query_gradients(M& m, const BackwardOperands& x, index_t Br) {
    const Blocks blocks = x.shape.pairs().row_blocks(Br);
    const Ring ring{most_seen_keys(x.shape, Br)};
    const auto K = m.alloc(SlowArray::K, {ring.places, x.shape.d}),
               V = m.alloc(SlowArray::V, {ring.places, x.shape.d_v});
    index_t loaded = 0;
    for (index_t i = 0; i < blocks.count(); ++i) {
      const Range I = blocks(i), seen = x.shape.pairs().keys_of(I);
      ring.for_parts({std::max(loaded, seen.begin), seen.end}, [&](Range J, Range rows) {
        m.load_into(K.rows(rows.begin, rows.size()), x.K.rows(J));
        m.load_into(V.rows(rows.begin, rows.size()), x.V.rows(J));
      });
      loaded = seen.end;
      const Range held = ring.held(loaded);
      const Arg K_j = K.rows(0, held.size()), V_j = V.rows(0, held.size());
      const auto dP = m.alloc(SlowArray::P, {I.size(), ring.places});
      const Arg dS = dP.cols(held.size());
      {
        const auto S = m.alloc(SlowArray::P, dP.shape());
        const Arg P = S.cols(held.size());
        m.compute(kernel::Scores{x.scale}, P, m.stream(x.Q.rows(I)), K_j);
        hide_in_ring(m, x, P, {I, held}, ring, false);
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
    const Blocks blocks = x.shape.pairs().key_blocks(Bc);
    const Ring ring{most_seeing_rows(x.shape, Bc)};
    const auto tile_of = [&](const SlowMatrix& a) { return m.alloc(a.array, {ring.places, a.shape.cols}); };
    const auto Q = tile_of(x.Q), dO = tile_of(x.dO), lse = tile_of(x.lse), D = tile_of(x.D);
    index_t loaded = 0;
    for (index_t j = 0; j < blocks.count(); ++j) {
      const Range J = blocks(j), seeing = x.shape.pairs().rows_of(J);
      ring.for_parts({std::max(loaded, seeing.begin), seeing.end}, [&](Range I, Range rows) {
        m.load_into(Q.rows(rows.begin, rows.size()), x.Q.rows(I));
        m.load_into(dO.rows(rows.begin, rows.size()), x.dO.rows(I));
        m.load_into(lse.rows(rows.begin, rows.size()), x.lse.rows(I));
        m.load_into(D.rows(rows.begin, rows.size()), x.D.rows(I));
      });
      loaded = seeing.end;
      const Range held = ring.held(loaded);
      const Arg Q_i = Q.rows(0, held.size()), dO_i = dO.rows(0, held.size());
      const auto dP = m.alloc(SlowArray::P, {ring.places, J.size()});
      const Arg dS = dP.rows(0, held.size());
      {
        const auto S = m.alloc(SlowArray::P, dP.shape());
        const Arg P = S.rows(0, held.size());
        m.compute(kernel::Scores{x.scale}, P, Q_i, m.stream(x.K.rows(J)));
        hide_in_ring(m, x, P, {held, J}, ring, true);
        m.compute(kernel::Weights{x.shape.score}, P, lse.rows(0, held.size()));  // P = exp(S - lse)
        m.update(kernel::GemmOver{true, false, true}, x.dV.rows(J), P, dO_i);    // dV = P^T dO
        m.compute(kernel::Zero{}, dS);
        m.compute(kernel::Gemm{false, true}, dS, dO_i, m.stream(x.V.rows(J)));  // dP = dO V^T
        m.compute(kernel::ScoreGradient{x.shape.score, x.scale}, dS, P, D.rows(0, held.size()));
      }
      m.update(kernel::GemmOver{true, false, true}, x.dK.rows(J), dS, Q_i);  // dK = dS^T Q
    }
  }
};

}  // namespace redblue::schedule
