#pragma once
#include "redblue/schedules/pairs/index_words.hpp"
#include "redblue/schedules/second/score_sweeps.hpp"

namespace redblue::schedule {

/// Gradients of gradients in two sweeps: the first is that of three_sweeps, the second has keys resident, finishes LK
/// and LV block by block, and revisits LQ in slow memory, as fused_key_outer of the backward pass does with dQ.
///   1  reads n_q (2 d + 2 d_v + 1) + 2 A(Br) (d + d_v)   writes n_q (d_v + 3)
///   2  reads 2 n_k (d + d_v) + B(Bc) (2 d + d_v + 4) + (B(Bc) - n_q) d   writes n_k (d + d_v) + B(Bc) d
/// A(Br) = SUM_I kappa_I and B(Bc) = SUM_J rho_J as in three_sweeps. Leading 12 + 30 = 42 n^2 d^2/M for d_v = d.
struct SecondFusedKeyOuter : Defaults {
  using Operands = SecondOperands;
  static constexpr std::string_view name = "fused_key_outer";
  static constexpr std::string_view idea = "a sweep for LdO, and one with keys resident that revisits LQ";
  static constexpr Traits traits{.masks = true,
                                 .patterns = true,
                                 .modifiers = true,
                                 .rewrites_outputs = true,
                                 .lse_gradient = true,
                                 .products = 15};
  static constexpr std::array workspace{SlowArray::D, SlowArray::Hm, SlowArray::Xm};

  struct Tiling {
    QueryPass outputs;
    KeyPass keys;
    void tile_sizes(const auto& tile_size) {
      outputs.tile_sizes(tile_size);
      keys.tile_sizes(tile_size);
    }
  };

  static Tiling smallest(const Sizes& x, const Multiples& m) {
    const index_t q = smallest_tile(x.n_q, m.query), k = smallest_tile(x.n_k, m.key);
    return {{q, k}, {k, q}};
  }
  static std::optional<Tiling> choose_tiling(const Sizes& x, const Limits& limits) {
    const auto outputs = choose_query_pass(
        x, limits, [&](QueryPass t) { return output_sweep_phase(x, t); },
        prices_with_moving_sinks(x, kSecondMoving, limits));
    const auto keys =
        choose_second_keys(x, limits, [&](KeyPass t) { return keys_phase(x, t); }, second_queries_and_lq_io(x));
    if (!outputs || !keys) return std::nullopt;
    return Tiling{*outputs, *keys};
  }

  static Phase keys_phase(const Sizes& x, KeyPass t) { return key_sweep_phase(x, t, room_for_lq(x)); }
  static std::array<Phase, 2> phases(const Sizes& x, Tiling t) {
    return {output_sweep_phase(x, t.outputs), keys_phase(x, t.keys)};
  }
  static Words footprint(const Sizes& x, Tiling t) { return footprint_of(phases(x, t)); }
  static Words prefetch(const Sizes& x, Tiling t) { return prefetch_of(phases(x, t)); }
  static Io io(const Sizes& x, Tiling t) {
    const Words visits = x.pairs().visited_rows(t.keys.Bc);
    Words hidden;
    for_rows_without_keys(x.pairs(), [&](Range rows) { hidden += rows.size(); });
    return output_sweep_io(x, t.outputs.Br) + key_sweep_io(x, key_visits(x, t.keys.Bc)) +
           Io().read(SlowArray::LQ, (visits + hidden - x.n_q) * x.d).write(SlowArray::LQ, (visits + hidden) * x.d);
  }
  static Words macs(const Sizes& x, Tiling t) {
    return x.pairs().pairs_of_rows(t.outputs.Br) * (Words(3) * x.d + Words(2) * x.d_v) +
           x.pairs().pairs_of_keys(t.keys.Bc) * (Words(7) * x.d + Words(3) * x.d_v);
  }
  static IndexWords index(const Sizes& x, Tiling t) {
    return index_of_phases({row_pass_index(x, t.outputs.Br).words(), key_pass_index(x, t.keys.Bc).words()});
  }

  template <Machine M>
  static void run(M& m, const SecondOperands& x, Tiling t) {
    const Pairs pairs = x.shape.pairs();
    const Blocks rows = pairs.row_blocks(t.outputs.Br), keys = pairs.key_blocks(t.keys.Bc);
    m.each(rows.count(), [&](auto& w, index_t i) { output_sweep(w, x, rows(i), t.outputs.bc); });
    for_rows_without_keys(pairs, [&](Range I) { m.update(kernel::ZeroOver{}, x.LQ.rows(I)); });
    for (index_t j = 0; j < keys.count(); ++j) {
      const Range J = keys(j);
      key_sweep(m, x, J, t.keys.br,
                [&](auto& w, Range I, const Arg& G, const Arg& dS, const auto& K_j, const auto& gK_j) {
                  add_to_lq(w, x, I, G, dS, K_j, gK_j, [&](const auto& f) {
                    for_first_visits(pairs, I, J, 0, [&](Range part, bool first) { f(part, first, x.LQ.rows(part)); });
                  });
                });
    }
  }
};

}  // namespace redblue::schedule
