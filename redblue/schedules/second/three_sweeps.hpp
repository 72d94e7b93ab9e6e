#pragma once
#include "redblue/schedules/pairs/index_words.hpp"
#include "redblue/schedules/second/output_sweep.hpp"
#include "redblue/schedules/second/score_sweeps.hpp"

namespace redblue::schedule {

/// Gradients of gradients in three sweeps, in O(n d) memory, of L = <gQ, dQ> + <gK, dK> + <gV, dV>. With
/// H = scale (gQ K^T + Q gK^T) + gBias, dP = dO V^T, E = dO gV^T, D = rowsum(dO o O), w = rowsum(P o H),
/// x = rowsum(dO o LdO), dS = P o (dP - D), G = P o ((dP - D) o (H - w) + E - x):
///   1  queries resident:  LdO = (P o (H - w)) V + P gV, and D, w, x for the others
///   2  queries resident:  LQ = scale (G K + dS gK)
///   3  keys resident:     LK = scale (G^T Q + dS^T gQ), LV = (P o (H - w))^T dO, LBias = G where a bias moves
///   1  reads n_q (2 d + 2 d_v + 1) + 2 A(Br) (d + d_v)        writes n_q (d_v + 3)
///   2  reads n_q (2 d + d_v + 4) + 2 A(Br2) (d + d_v)         writes n_q d
///   3  reads 2 n_k (d + d_v) + B(Bc) (2 d + d_v + 4)          writes n_k (d + d_v)
/// A(Br) = SUM_I kappa_I and B(Bc) = SUM_J rho_J as in two_pass. Leading 12 + 16 + 18 = 46 n^2 d^2/M for d_v = d.
/// Where sinks move, of weight p, w has the term p gSinks, and LSinks is formed when the sweeps have ended
/// (parts/modifiers.hpp).
struct SecondThreeSweeps : Defaults {
  using Operands = SecondOperands;
  static constexpr std::string_view name = "three_sweeps";
  static constexpr std::string_view idea = "one sweep for each of LdO, LQ, and LK with LV, scores computed three times";
  static constexpr Traits traits{
      .masks = true, .patterns = true, .modifiers = true, .lse_gradient = true, .products = 20};
  static constexpr std::array workspace{SlowArray::D, SlowArray::Hm, SlowArray::Xm};

  struct Tiling {
    QueryPass outputs;
    index_t Br2 = 1;  ///< queries resident at a time in sweep 2
    index_t bc2 = 1;  ///< keys per step there
    KeyPass keys;
    QueryPass queries() const { return {Br2, bc2}; }
    void tile_sizes(const auto& tile_size) {
      outputs.tile_sizes(tile_size);
      tile_size({"Br2", &Sizes::n_q}, Br2);
      tile_size({"bc2", &Sizes::n_k}, bc2);
      keys.tile_sizes(tile_size);
    }
  };

  static Tiling smallest(const Sizes& x, const Multiples& m) {
    const index_t q = smallest_tile(x.n_q, m.query), k = smallest_tile(x.n_k, m.key);
    return {{q, k}, q, k, {k, q}};
  }
  static std::optional<Tiling> choose_tiling(const Sizes& x, const Limits& limits) {
    const VisitPrices price = prices_with_modifiers(x, limits, limits.price.of(second_keys_io(x, 1)), Sinks::none);
    const auto outputs = choose_query_pass(
        x, limits, [&](QueryPass t) { return output_sweep_phase(x, t); },
        prices_with_moving_sinks(x, kSecondMoving, limits));
    const auto queries = choose_query_pass(x, limits, [&](QueryPass t) { return query_sweep_phase(x, t); }, price);
    const auto keys =
        choose_second_keys(x, limits, [&](KeyPass t) { return keys_phase(x, t); }, second_queries_io(x, 1));
    if (!outputs || !queries || !keys) return std::nullopt;
    return Tiling{*outputs, queries->Br, queries->bc, *keys};
  }

  static Phase keys_phase(const Sizes& x, KeyPass t) {
    return key_sweep_phase(x, t, [](index_t) { return Words(0); });
  }
  static std::array<Phase, 3> phases(const Sizes& x, const Tiling& t) {
    return {output_sweep_phase(x, t.outputs), query_sweep_phase(x, t.queries()), keys_phase(x, t.keys)};
  }
  static Words footprint(const Sizes& x, const Tiling& t) { return footprint_of(phases(x, t)); }
  static Words prefetch(const Sizes& x, const Tiling& t) { return prefetch_of(phases(x, t)); }
  static Io io(const Sizes& x, const Tiling& t) {
    return output_sweep_io(x, t.outputs.Br) + query_sweep_io(x, t.Br2) + key_sweep_io(x, key_visits(x, t.keys.Bc));
  }
  static Words macs(const Sizes& x, const Tiling& t) {
    return x.pairs().pairs_of_rows(t.outputs.Br) * (Words(3) * x.d + Words(2) * x.d_v) +
           x.pairs().pairs_of_rows(t.Br2) * (Words(5) * x.d + Words(2) * x.d_v) +
           x.pairs().pairs_of_keys(t.keys.Bc) * (Words(5) * x.d + Words(3) * x.d_v);
  }
  static IndexWords index(const Sizes& x, const Tiling& t) {
    return index_of_phases({row_pass_index(x, t.outputs.Br).words(), row_pass_index(x, t.Br2).words(),
                            key_pass_index(x, t.keys.Bc).words()});
  }

  template <Machine M>
  static void run(M& m, const SecondOperands& x, const Tiling& t) {
    const Pairs pairs = x.shape.pairs();
    const Blocks of_outputs = pairs.row_blocks(t.outputs.Br), rows = pairs.row_blocks(t.Br2),
                 keys = pairs.key_blocks(t.keys.Bc);
    m.each(of_outputs.count(), [&](auto& w, index_t i) { output_sweep(w, x, of_outputs(i), t.outputs.bc); });
    m.each(rows.count(), [&](auto& w, index_t i) { query_sweep(w, x, rows(i), t.bc2); });
    for_blocks_of_keys(m, x.shape, keys.count(), [&](auto& w, index_t j) {
      key_sweep(w, x, keys(j), t.keys.br, [](auto&, Range, const Arg&, const Arg&, const auto&, const auto&) {});
    });
  }
};

}  // namespace redblue::schedule
