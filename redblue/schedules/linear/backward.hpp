#pragma once
#include "redblue/schedules/linear/state.hpp"
#include "redblue/schedules/operands/backward.hpp"

namespace redblue::schedule {

/// Gradients of linear attention with one state resident at a time: dQ = scale dO Z^T with Z = K^T V, then, from the
/// last key to the first, dK = scale V G^T and dV = scale K G with G = Q^T dO (linear_state.hpp).
///   reads 2 n_k (d + d_v) + n_q (d + 2 d_v)   writes n_q d + n_k (d + d_v)
///   footprint d d_v + the largest of bc d, br d, bc max(d, d_v), + 1
/// Under a mask queries enter G just before the last key that they see.
struct LinearBackward : Defaults {
  using Operands = BackwardOperands;
  static constexpr std::string_view name = "linear";
  static constexpr std::string_view idea = "keeping one state at a time resident, K^T V and then Q^T dO";
  static constexpr Traits traits{.masks = true, .any_score = true, .only_score = Score::identity};
  static constexpr std::array<SlowArray, 0> workspace{};

  struct Tiling {
    index_t br = 1;  ///< queries per step (at most those of one position under a mask)
    index_t bc = 1;  ///< keys per step (one in the second pass under a mask)
    void tile_sizes(const auto& tile_size) {
      tile_size({"br", &Sizes::n_q}, br);
      tile_size({"bc", &Sizes::n_k}, bc);
    }
  };

  static std::optional<std::string_view> unsupported(const Sizes& x) { return state_unsupported(x); }
  static Tiling smallest(const Sizes& x, const Multiples& m) {
    return {smallest_tile(x.n_q, m.query), smallest_tile(x.n_k, m.key)};
  }
  static std::optional<Tiling> choose_tiling(const Sizes& x, const Limits& limits) {
    return smallest_if_it_fits<LinearBackward>(x, limits);
  }

  /// The most queries that enter G at once: all that see the last key, those that see the prefix alone, or those of
  /// one position.
  static index_t queries_entering(const Sizes& x, index_t br) {
    if (x.mask.full()) return std::min(br, x.n_q);
    const Pairs pairs = x.pairs();
    const index_t first = x.n_q - pairs.rows_of({x.n_k - 1, x.n_k}).begin, p = x.mask.prefix;
    const index_t later = x.n_k > 1 ? std::min<index_t>(x.mask.group, x.n_q) : 0;
    return std::min(br, std::max({first, later, p > 0 && p < x.n_k ? pairs.rows_of({p, p + 1}).begin : 0}));
  }
  /// G, and the larger of arriving queries and a block of dK or dV, with one streamed word each. Second buffers: the
  /// next queries and the next streamed word.
  static Phase keys_phase(const Sizes& x, Tiling t) {
    const index_t queries = queries_entering(x, t.br), keys = x.mask.full() ? std::min(t.bc, x.n_k) : 1;
    const Words arriving = x.tile(SlowArray::Q, queries, x.d) + x.word(SlowArray::dO);
    const auto rows = [&](SlowArray to, SlowArray from, index_t cols) { return x.tile(to, keys, cols) + x.word(from); };
    return {x.tile(SlowArray::G, x.d, x.d_v) +
                std::max({arriving, rows(SlowArray::dK, SlowArray::V, x.d), rows(SlowArray::dV, SlowArray::K, x.d_v)}),
            arriving};
  }
  static Phase queries_phase(const Sizes& x, Tiling t) {
    return queries_on_state_phase(x, SlowArray::dQ, SlowArray::dO, x.d, t.br, t.bc);
  }
  static Words footprint(const Sizes& x, Tiling t) {
    return std::max(queries_phase(x, t).footprint, keys_phase(x, t).footprint);
  }
  static Words prefetch(const Sizes& x, Tiling t) {
    return std::max(queries_phase(x, t).prefetch, keys_phase(x, t).prefetch);
  }
  static Io io(const Sizes& x, Tiling) {
    const Words keys = x.n_k, queries = x.n_q;
    return Io()
        .read(SlowArray::K, 2 * keys * x.d)
        .read(SlowArray::V, 2 * keys * x.d_v)
        .read(SlowArray::Q, queries * x.d)
        .read(SlowArray::dO, 2 * queries * x.d_v)
        .write(SlowArray::dQ, Words(x.n_q) * x.d)
        .write(SlowArray::dK, Words(x.n_k) * x.d)
        .write(SlowArray::dV, Words(x.n_k) * x.d_v);
  }
  static Words macs(const Sizes& x, Tiling) { return (2 * Words(x.n_q) + 3 * Words(x.n_k)) * x.d * x.d_v; }

  template <Machine M>
  static void run(M& m, const BackwardOperands& x, Tiling t) {
    queries_on_state(m, x, x.dQ, x.dO, true, t.br, t.bc);  // dQ = scale dO Z^T
    const Sizes& s = x.shape;
    const auto G = m.alloc(x.G.all());
    m.compute(kernel::Zero{}, G);
    const index_t bc = s.mask.full() ? t.bc : 1;
    index_t entered = s.n_q;  // queries from here on are in G
    for (index_t j = (ceil_div(s.n_k, bc) - 1) * bc; j >= 0; j -= bc) {
      const Range J{j, std::min(j + bc, s.n_k)};
      const index_t first = s.pairs().rows_of({j, j + 1}).begin;
      for (index_t rows = 0; entered > first; entered -= rows) {
        rows = std::min(t.br, entered - first);
        extend_state(m, G, x.Q.rows(entered - rows, rows), x.dO.rows(entered - rows, rows));  // G += Q^T dO
      }
      apply_state(m, x.dK.rows(J), x.V.rows(J), G, true, x.scale);   // dK = scale V G^T
      apply_state(m, x.dV.rows(J), x.K.rows(J), G, false, x.scale);  // dV = scale K G
    }
  }
};

/// Gradients of linear attention without a mask, both states resident: G from the queries, then one pass over keys
/// gives dK, dV and Z, then one over dO gives dQ.
///   reads n_q (d + 2 d_v) + n_k (d + d_v)   writes n_q d + n_k (d + d_v)
///   footprint max(d d_v + br d + 1, 2 d d_v + max(bc (d + max(d, d_v)), br d) + 1)
struct LinearTwoStateBackward : Defaults {
  using Operands = BackwardOperands;
  static constexpr std::string_view name = "linear_two_states";
  static constexpr std::string_view idea = "keeping both states resident, Q^T dO and K^T V";
  static constexpr Traits traits{.any_score = true, .only_score = Score::identity};
  static constexpr std::array<SlowArray, 0> workspace{};

  using Tiling = LinearBackward::Tiling;

  static Tiling smallest(const Sizes& x, const Multiples& m) { return LinearBackward::smallest(x, m); }
  static std::optional<Tiling> choose_tiling(const Sizes& x, const Limits& limits) {
    return smallest_if_it_fits<LinearTwoStateBackward>(x, limits);
  }

  static Words footprint(const Sizes& x, Tiling t) {
    const index_t br = std::min(t.br, x.n_q), bc = std::min(t.bc, x.n_k);
    const Words word = x.word(SlowArray::dO);
    // K_j and V_j are loaded: each serves twice. dK_j or dV_j beside them.
    return x.tile(SlowArray::G, x.d, x.d_v) + x.tile(SlowArray::Z, x.d, x.d_v) +
           std::max({x.tile(SlowArray::Q, br, x.d) + word, x.tile(SlowArray::dQ, br, x.d) + word,
                     keys(x, bc) + std::max(x.tile(SlowArray::dK, bc, x.d), x.tile(SlowArray::dV, bc, x.d_v))});
  }
  /// K_j and V_j.
  static Words keys(const Sizes& x, index_t bc) {
    return x.tile(SlowArray::K, bc, x.d) + x.tile(SlowArray::V, bc, x.d_v);
  }
  /// The next keys and values, or the next queries and a word.
  static Words prefetch(const Sizes& x, Tiling t) {
    return std::max(keys(x, std::min(t.bc, x.n_k)),
                    x.tile(SlowArray::Q, std::min(t.br, x.n_q), x.d) + x.word(SlowArray::dO));
  }
  static Io io(const Sizes& x, Tiling) {
    return Io()
        .read(SlowArray::K, Words(x.n_k) * x.d)
        .read(SlowArray::V, Words(x.n_k) * x.d_v)
        .read(SlowArray::Q, Words(x.n_q) * x.d)
        .read(SlowArray::dO, Words(2) * x.n_q * x.d_v)
        .write(SlowArray::dQ, Words(x.n_q) * x.d)
        .write(SlowArray::dK, Words(x.n_k) * x.d)
        .write(SlowArray::dV, Words(x.n_k) * x.d_v);
  }
  static Words macs(const Sizes& x, Tiling) { return (Words(2) * x.n_q + Words(3) * x.n_k) * x.d * x.d_v; }

  template <Machine M>
  static void run(M& m, const BackwardOperands& x, Tiling t) {
    const auto Q = tiled(x.Q, t.br), dQ = tiled(x.dQ, t.br), dO = tiled(x.dO, t.br), K = tiled(x.K, t.bc),
               V = tiled(x.V, t.bc), dK = tiled(x.dK, t.bc), dV = tiled(x.dV, t.bc);
    const auto G = m.alloc(x.G.all()), Z = m.alloc(x.Z.all());
    m.compute(kernel::Zero{}, G);
    m.compute(kernel::Zero{}, Z);
    for (index_t i = 0; i < Q.rows(); ++i) extend_state(m, G, Q(i), dO(i));  // G += Q^T dO
    const auto times_G = [&](const Block& to, const auto& tile, bool transpose) {
      const auto T = m.alloc(to);
      m.compute(kernel::Zero{}, T);
      m.compute(kernel::Gemm{false, transpose}, T, tile, G);
      m.compute(kernel::Scale{x.scale}, T);
      m.store(T, to);
    };
    for (index_t j = 0; j < K.rows(); ++j) {
      const auto K_j = m.load(K(j)), V_j = m.load(V(j));
      m.compute(kernel::Gemm{true, false}, Z, K_j, V_j);  // Z += K^T V
      times_G(dK(j), V_j, true);                          // dK = scale V G^T
      times_G(dV(j), K_j, false);                         // dV = scale K G
    }
    for (index_t i = 0; i < Q.rows(); ++i) apply_state(m, dQ(i), dO(i), Z, true, x.scale);  // dQ = scale dO Z^T
  }
};

}  // namespace redblue::schedule
