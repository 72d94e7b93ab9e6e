#pragma once
#include "redblue/schedules/pairs/index_words.hpp"
#include "redblue/schedules/passes/key_pass.hpp"
#include "redblue/schedules/passes/query_pass.hpp"

namespace redblue::schedule {

/// e3, two passes, scores and dP computed in both (7 products instead of 5): dQ with queries resident, then dK and dV
/// with keys resident. Every output is written once and every block is independent, so results are the same bits for
/// any number of workers. Optimal including the constant for d/8 <= d_v <= d and d^2 << M << n d (docs/proofs/b14.md).
///   pass 1  reads n_q (d + 2 d_v + 1) + A(Br) (d + d_v)   writes n_q (d + 1)
///           footprint Br (2 d + d_v + 2 + 2 bc) + bc d + 1
///   pass 2  reads n_k (d + d_v) + B(Bc) (d + d_v + 2)      writes n_k (d + d_v)
///           footprint Bc (2 d + 2 d_v + 2 br) + br (d + 2) + 1
/// Given gradients (Sizes::accumulate) are n_q d + n_k (d + d_v) words more to read. Leading 14 n^2 d^2/M.
struct TwoPassBackward : Defaults {
  using Operands = BackwardOperands;
  static constexpr std::string_view name = "two_pass";
  static constexpr std::string_view label = "e3";
  static constexpr std::string_view idea = "one pass for dQ, one for dK and dV, scores computed twice";
  static constexpr Traits traits{.masks = true,
                                 .patterns = true,
                                 .modifiers = true,
                                 .any_score = true,
                                 .lse_gradient = true,
                                 .accumulates = true,
                                 .products = 7};
  static constexpr std::array workspace{SlowArray::D};

  struct Tiling {
    QueryPass queries;
    KeyPass keys;
    void tile_sizes(const auto& tile_size) {
      queries.tile_sizes(tile_size);
      keys.tile_sizes(tile_size);
    }
  };

  static Tiling smallest(const Sizes& x, const Multiples& m) {
    const index_t q = smallest_tile(x.n_q, m.query), k = smallest_tile(x.n_k, m.key);
    return {{q, k}, {k, q}};
  }
  static std::optional<Tiling> choose_tiling(const Sizes& x, const Limits& limits) {
    const auto queries = choose_query_pass(
        x, limits, [&](QueryPass t) { return query_pass_phase(x, t); },
        prices_with_modifiers(x, limits, limits.price.of(keys_io(x, 1)), Sinks::none));
    const auto keys = choose_key_pass(x, limits, queries_io(x, 1));
    if (!queries || !keys) return std::nullopt;
    return Tiling{*queries, *keys};
  }

  static std::array<Phase, 2> phases(const Sizes& x, Tiling t) {
    return {query_pass_phase(x, t.queries), key_pass_phase(x, t.keys)};
  }
  static Words footprint(const Sizes& x, Tiling t) { return footprint_of(phases(x, t)); }
  static Words prefetch(const Sizes& x, Tiling t) { return prefetch_of(phases(x, t)); }
  static Io io(const Sizes& x, Tiling t) {
    return query_pass_io(x, t.queries.Br) + key_pass_io(x, key_visits(x, t.keys.Bc)) + given_query_gradients_io(x) +
           Io().write(SlowArray::dQ, Words(x.n_q) * x.d).write(SlowArray::D, x.row_statistics());
  }
  static Words macs(const Sizes& x, Tiling t) {
    return x.pairs().pairs_of_rows(t.queries.Br) * (Words(2) * x.d + x.d_v) +
           x.pairs().pairs_of_keys(t.keys.Bc) * (Words(2) * x.d + Words(2) * x.d_v);
  }
  static IndexWords index(const Sizes& x, Tiling t) {
    return index_of_phases({row_pass_index(x, t.queries.Br).words(), key_pass_index(x, t.keys.Bc).words()});
  }

  template <Machine M>
  static void run(M& m, const BackwardOperands& x, Tiling t) {
    const Blocks rows = x.shape.pairs().row_blocks(t.queries.Br), keys = x.shape.pairs().key_blocks(t.keys.Bc);
    m.each(rows.count(), [&]<class W>(W& w, index_t i) {
      const Range I = rows(i);
      const auto dQ_i = begin_gradient(w, x.shape, x.dQ.rows(I)), Q_i = w.load(x.Q.rows(I)),
                 dO_i = w.load(x.dO.rows(I)), lse_i = w.load(x.lse.rows(I)), D_i = w.alloc(x.D.rows(I));
      begin_from_zero(w, x.shape, dQ_i);
      query_pass(w, x, QueryTiles{I, dQ_i.arg(), Q_i.arg(), dO_i.arg(), lse_i.arg(), D_i.arg(), x.O.rows(I)},
                 t.queries.bc, keys_from_slow_memory(x));
      w.store(D_i, x.D.rows(I));
      w.store(dQ_i, x.dQ.rows(I));
    });
    for_blocks_of_keys(m, x.shape, keys.count(), [&](auto& w, index_t j) {
      key_pass(w, x, keys(j), t.keys.br, [](auto&, Range, const Arg&, const auto&) {});
    });
  }
};

}  // namespace redblue::schedule
