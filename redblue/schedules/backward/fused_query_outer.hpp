#pragma once
#include "redblue/schedules/passes/query_pass.hpp"

namespace redblue::schedule {

/// e2, all gradients in one pass with queries resident: dQ is finished block by block, dK and dV are revisited in slow
/// memory. The last block of queries goes first: unless the mask has a left edge it sees every key.
///   reads n_q (d + 2 d_v + 1) + (2 A(Br) - n_k) (d + d_v)   writes A(Br) (d + d_v) + n_q d
///   footprint Br (2 d + d_v + 2 + 2 bc) + bc d + 1
/// Given gradients (Sizes::accumulate) are n_q d + n_k (d + d_v) words more to read.
/// A(Br) = SUM_I kappa_I: keys that the blocks see; without a mask ceil(n_q/Br) n_k. Leading 18 n^2 d^2/M.
struct FusedQueryOuterBackward : Defaults {
  using Operands = BackwardOperands;
  static constexpr std::string_view name = "fused_query_outer";
  static constexpr std::string_view label = "e2";
  static constexpr std::string_view idea = "keeping queries resident and revisiting dK and dV";
  static constexpr Traits traits{.masks = true,
                                 .hides = true,
                                 .modifiers = true,
                                 .any_score = true,
                                 .rewrites_outputs = true,
                                 .lse_gradient = true,
                                 .accumulates = true,
                                 .products = 5};
  static constexpr std::array<SlowArray, 0> workspace{};

  using Tiling = QueryPass;

  static std::optional<std::string_view> unsupported(const Sizes& x) {
    if (x.modifiers.bias_gradient) return "forms no gradient of a bias";
    return std::nullopt;
  }
  static Tiling smallest(const Sizes& x, const Multiples& m) {
    return {smallest_tile(x.n_q, m.query), smallest_tile(x.n_k, m.key)};
  }
  static std::optional<Tiling> choose_tiling(const Sizes& x, const Limits& limits) {
    const auto queries = choose_query_pass(
        x, limits, [&](QueryPass t) { return pass(x, t); },
        prices_with_modifiers(x, limits, limits.price.of(keys_io(x, 1) + gradients_io(x, 1, 1)), Sinks::none));
    if (!queries) return std::nullopt;
    return Tiling{*queries};
  }

  static Words footprint(const Sizes& x, Tiling t) { return pass(x, t).footprint; }
  static Words prefetch(const Sizes& x, Tiling t) { return pass(x, t).prefetch; }
  /// A word of dK or dV.
  static Words revisited(const Sizes& x) { return std::max(x.word(SlowArray::dK), x.word(SlowArray::dV)); }
  static Phase pass(const Sizes& x, QueryPass t) { return query_pass_phase(x, t, revisited(x)); }
  static Io io(const Sizes& x, Tiling t) {
    const Words visits = x.pairs().visited_keys(t.Br);
    return query_pass_io(x, t.Br) + gradients_io(x, x.accumulate ? visits : visits - x.n_k, visits) +
           given_query_gradients_io(x) + Io().write(SlowArray::dQ, Words(x.n_q) * x.d);
  }
  static Io gradients_io(const Sizes& x, Words reads, Words writes) {
    return Io()
        .read(SlowArray::dK, reads * x.d)
        .read(SlowArray::dV, reads * x.d_v)
        .write(SlowArray::dK, writes * x.d)
        .write(SlowArray::dV, writes * x.d_v);
  }
  static Words macs(const Sizes& x, Tiling t) {
    return x.pairs().pairs_of_rows(t.Br) * (Words(3) * x.d + Words(2) * x.d_v);
  }

  template <Machine M>
  static void run(M& m, const BackwardOperands& x, Tiling t) {
    const Pairs pairs = x.shape.pairs();
    const Blocks blocks = pairs.row_blocks(t.Br);
    const auto pass = keys_from_slow_memory(x);
    const bool given = x.shape.accumulate;
    index_t seen = given ? 0 : x.shape.n_k;  // keys from here on have gradients
    for (index_t i = blocks.count() - 1; i >= 0; --i) {
      const Range I = blocks(i);
      const auto dQ_i = begin_gradient(m, x.shape, x.dQ.rows(I)), Q_i = m.load(x.Q.rows(I)),
                 dO_i = m.load(x.dO.rows(I)), lse_i = m.load(x.lse.rows(I)), D_i = m.alloc(x.D.rows(I));
      begin_from_zero(m, x.shape, dQ_i);
      query_pass(m, x, QueryTiles{I, dQ_i.arg(), Q_i.arg(), dO_i.arg(), lse_i.arg(), D_i.arg(), x.O.rows(I)}, t.bc,
                 pass, [&](Range J, const Arg& P_ij, const Arg& dS_ij) {
                   const index_t again = std::clamp(seen, J.begin, J.end);
                   for (const Range r : {Range{J.begin, again}, Range{again, J.end}}) {
                     if (r.size() == 0) continue;
                     const bool first = r.end <= seen;
                     const auto of = [&](Arg tile) {
                       tile.block.col += r.begin - J.begin;
                       tile.block.shape.cols = r.size();
                       return tile;
                     };
                     m.update(kernel::GemmOver{true, false, first}, x.dV.rows(r), of(P_ij), dO_i);  // dV += P^T dO
                     m.update(kernel::GemmOver{true, false, first}, x.dK.rows(r), of(dS_ij), Q_i);  // dK += dS^T Q
                   }
                 });
      m.store(dQ_i, x.dQ.rows(I));
      if (!given) seen = pairs.keys_of(I).begin;
    }
  }
};

}  // namespace redblue::schedule
