#pragma once
#include "redblue/schedule/parts/key_pass.hpp"
#include "redblue/schedule/parts/query_pass.hpp"

namespace redblue::schedule {

/// e3, two passes, scores and dP computed in both (7 products instead of 5): dQ with queries resident, then dK and dV
/// with keys resident. Every output is written once and every block is independent, so results are the same bits for
/// any number of workers. Optimal including the constant for d/8 <= d_v <= d and d^2 << M << n d (docs/proofs/b14.md).
///   pass 1  reads n_q (d + 2 d_v + 1) + SUM kappa_I (d + d_v)   writes n_q (d + 1)
///           footprint Br (2 d + d_v + 2 + 2 bc) + bc d + 1
///   pass 2  reads n_k (d + d_v) + SUM rows_J (d + d_v + 2)      writes n_k (d + d_v)
///           footprint Bc (2 d + 2 d_v + 2 br) + br (d + 2) + 1
/// Leading 14 n^2 d^2/M.
struct TwoPassBackward : Defaults {
  using Operands = BackwardOperands;
  static constexpr std::string_view name = "two_pass";
  static constexpr std::string_view label = "e3";
  static constexpr std::string_view idea = "one pass for dQ, one for dK and dV, scores computed twice";
  static constexpr Traits traits{.masks = true, .any_score = true, .products = 7};
  static constexpr std::array workspace{SlowArray::D};

  struct Tiling {
    QueryPass queries;
    KeyPass keys;
    void knobs(const auto& knob) {
      queries.knobs(knob);
      keys.knobs(knob);
    }
  };

  static Tiling smallest(const Sizes& x, const Multiples& m) {
    const index_t q = smallest_tile(x.n_q, m.query), k = smallest_tile(x.n_k, m.key);
    return {{q, k}, {k, q}};
  }
  static std::optional<Tiling> choose_tiling(const Sizes& x, const Limits& limits) {
    const auto queries = choose_query_pass(x, limits, [&](QueryPass t) { return query_pass_phase(x, t); });
    const auto keys = choose_key_pass(x, limits);
    if (!queries || !keys) return std::nullopt;
    return Tiling{*queries, *keys};
  }

  static std::array<Phase, 2> phases(const Sizes& x, Tiling t) {
    return {query_pass_phase(x, t.queries), key_pass_phase(x, t.keys)};
  }
  static Words footprint(const Sizes& x, Tiling t) { return footprint_of(phases(x, t)); }
  static Words prefetch(const Sizes& x, Tiling t) { return prefetch_of(phases(x, t)); }
  static Io io(const Sizes& x, Tiling t) {
    return query_pass_io(x, visited_keys(x, t.queries.Br)) + key_pass_io(x, visited_queries(x, t.keys.Bc)) +
           Io().write(SlowArray::dQ, Words(x.n_q) * x.d).write(SlowArray::D, x.row_statistics());
  }
  static Words macs(const Sizes& x, Tiling t) {
    return visited_pairs(x, t.queries.Br) * (Words(2) * x.d + x.d_v) +
           visited_query_pairs(x, t.keys.Bc) * (Words(2) * x.d + Words(2) * x.d_v);
  }

  template <Machine M>
  static void run(M& m, const BackwardOperands& x, Tiling t) {
    const auto Q = tiled(x.Q, t.queries.Br), dQ = tiled(x.dQ, t.queries.Br), dO = tiled(x.dO, t.queries.Br),
               O = tiled(x.O, t.queries.Br), lse = tiled(x.lse, t.queries.Br), D = tiled(x.D, t.queries.Br);
    m.each(Q.rows(), [&]<class W>(W& w, index_t i) {
      const auto dQ_i = w.alloc(dQ(i)), Q_i = w.load(Q(i)), dO_i = w.load(dO(i)), lse_i = w.load(lse(i)),
                 D_i = w.alloc(D(i));
      w.compute(kernel::Zero{}, dQ_i);
      query_pass(w, x, QueryTiles<W>{Q(i).row, dQ_i, Q_i, dO_i, lse_i, D_i, O(i)}, t.queries.bc,
                 keys_from_slow_memory(x));
      w.store(D_i, D(i));
      w.store(dQ_i, dQ(i));
    });
    const auto K = tiled(x.K, t.keys.Bc);
    m.each(K.rows(), [&](auto& w, index_t j) {
      key_pass(w, x, K(j).row, K(j).shape.rows, t.keys.br, [](auto&, index_t, index_t, const Arg&, const auto&) {});
    });
  }
};

}  // namespace redblue::schedule
