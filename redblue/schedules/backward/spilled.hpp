#pragma once
#include "redblue/schedules/passes/key_pass.hpp"
#include "redblue/schedules/passes/probabilities.hpp"

namespace redblue::schedule {

/// e4, dK and dV with keys resident; dS is written on the way, and a product forms dQ from it. Five products; nnz words
/// go out and back. Best around M = 1.3 d^2 .. 2.5 d^2.
///   reads 2 n_q d_v + [n_k (d + d_v) + B(Bc) (d + d_v + 2)] + ceil(d/b2) nnz + A(b1) d
///   writes n_q + n_k (d + d_v) + nnz + n_q d
///   footprint max(3, Bc (2 d + 2 d_v + 2 br) + br (d + 2) + 1, F_mm)
/// Given gradients (Sizes::accumulate) are n_q d + n_k (d + d_v) words more to read.
struct SpilledBackward : Defaults {
  using Operands = BackwardOperands;
  static constexpr std::string_view name = "spilled";
  static constexpr std::string_view label = "e4";
  static constexpr std::string_view idea = "keeping keys and values resident and spilling dS";
  static constexpr Traits traits{.keeps_scores = true,
                                 .masks = true,
                                 .hides = true,
                                 .modifiers = true,
                                 .any_score = true,
                                 .lse_gradient = true,
                                 .accumulates = true,
                                 .products = 5};
  static constexpr std::array workspace{SlowArray::D, SlowArray::P};

  struct Tiling {
    KeyPass keys;
    GemmTiling dQ;
    void tile_sizes(const auto& tile_size) {
      keys.tile_sizes(tile_size);
      tile_size({"b1", &Sizes::n_q}, dQ.b1);
      tile_size({"b2", &Sizes::d}, dQ.b2);
    }
  };

  static Tiling smallest(const Sizes& x, const Multiples& m) {
    const index_t q = smallest_tile(x.n_q, m.query);
    return {{smallest_tile(x.n_k, m.key), q}, {q, smallest_tile(x.d, m.feature)}};
  }
  static std::optional<Tiling> choose_tiling(const Sizes& x, const Limits& limits) {
    const Multiples& s = limits.multiple;
    const auto keys = choose_key_pass(x, limits, queries_io(x, 1));
    const auto dQ = query_gradients_cost(x).choose(x, limits, s.query, s.feature);
    if (!keys || !dQ || !limits.fit(output_dots_phase(x))) return std::nullopt;
    return Tiling{*keys, *dQ};
  }

  static std::array<Phase, 3> phases(const Sizes& x, Tiling t) {
    return {output_dots_phase(x), key_pass_phase(x, t.keys), query_gradients_cost(x).phase(x, t.dQ)};
  }
  static Words footprint(const Sizes& x, Tiling t) { return footprint_of(phases(x, t)); }
  static Words prefetch(const Sizes& x, Tiling t) { return prefetch_of(phases(x, t)); }
  static Io io(const Sizes& x, Tiling t) {
    return output_dots_io(x) + key_pass_io(x, key_visits(x, t.keys.Bc)) + Io().write(SlowArray::P, x.nnz()) +
           query_gradients_cost(x).io(t.dQ);
  }
  static Words macs(const Sizes& x, Tiling t) {
    return x.pairs().pairs_of_keys(t.keys.Bc) * (Words(2) * x.d + Words(2) * x.d_v) + query_gradients_cost(x).macs();
  }

  template <Machine M>
  static void run(M& m, const BackwardOperands& x, Tiling t) {
    output_dots(m, x, [&](const Sizes& s) { return footprint(s, t); });
    const Blocks blocks = x.shape.pairs().key_blocks(t.keys.Bc);
    for_blocks_of_keys(m, x.shape, blocks.count(), [&](auto& m_j, index_t j) {
      const Range J = blocks(j);
      key_pass(m_j, x, J, t.keys.br,
               [&](auto& w, Range I, const Arg& dS_ij, const auto&) { store_visible(w, x.shape, dS_ij, x.P, {I, J}); });
    });
    query_gradients(m, x, t.dQ);  // dQ = dS K
  }
};

}  // namespace redblue::schedule
