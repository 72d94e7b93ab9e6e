#pragma once
#include "redblue/schedule/parts/query_pass.hpp"

namespace redblue::schedule {

/// e2, all gradients in one pass with queries resident: dQ is finished block by block, dK and dV are revisited in slow
/// memory. The last block of queries goes first: it sees every key that any query sees, so first visits are known.
///   T = ceil(n_q/Br): reads n_q (d + 2 d_v + 1) + (2 T - 1) n_k (d + d_v)   writes T n_k (d + d_v) + n_q d
///   footprint Br (2 d + d_v + 2 + 2 bc) + bc d + 1
/// Under a mask T n_k is the sum of the keys that the blocks see. Leading 18 n^2 d^2/M.
struct FusedQueryOuterBackward : Defaults {
  using Operands = BackwardOperands;
  static constexpr std::string_view name = "fused_query_outer";
  static constexpr std::string_view label = "e2";
  static constexpr std::string_view idea = "keeping queries resident and revisiting dK and dV";
  static constexpr Traits traits{.masks = true, .any_score = true, .rewrites_outputs = true, .products = 5};
  static constexpr std::array<SlowArray, 0> workspace{};

  using Tiling = QueryPass;

  static Tiling smallest(const Sizes& x, const Multiples& m) {
    return {smallest_tile(x.n_q, m.query), smallest_tile(x.n_k, m.key)};
  }
  static std::optional<Tiling> choose_tiling(const Sizes& x, const Limits& limits) {
    const auto queries = choose_query_pass(x, limits, [&](QueryPass t) { return pass(x, t); });
    if (!queries) return std::nullopt;
    return Tiling{*queries};
  }

  /// If no query sees a key, the footprint is one word: the zero that is written.
  static Words footprint(const Sizes& x, Tiling t) {
    const bool unseen = x.mask.visible(x.n_q - 1, x.n_k) < x.n_k;
    return std::max(pass(x, t).footprint, unseen ? revisited(x) : Words(0));
  }
  static Words prefetch(const Sizes& x, Tiling t) { return pass(x, t).prefetch; }
  /// A word of dK or dV.
  static Words revisited(const Sizes& x) { return std::max(x.word(SlowArray::dK), x.word(SlowArray::dV)); }
  static Phase pass(const Sizes& x, QueryPass t) { return query_pass_phase(x, t, revisited(x)); }
  static Io io(const Sizes& x, Tiling t) {
    const Words visits = visited_keys(x, t.Br), again = visits - x.mask.visible(x.n_q - 1, x.n_k);
    return query_pass_io(x, visits) + Io().write(SlowArray::dQ, Words(x.n_q) * x.d)
                                          .read(SlowArray::dK, again * x.d)
                                          .write(SlowArray::dK, (again + x.n_k) * x.d)
                                          .read(SlowArray::dV, again * x.d_v)
                                          .write(SlowArray::dV, (again + x.n_k) * x.d_v);
  }
  static Words macs(const Sizes& x, Tiling t) { return visited_pairs(x, t.Br) * (Words(3) * x.d + Words(2) * x.d_v); }

  template <Machine M>
  static void run(M& m, const BackwardOperands& x, Tiling t) {
    const auto Q = tiled(x.Q, t.Br), dQ = tiled(x.dQ, t.Br), dO = tiled(x.dO, t.Br), O = tiled(x.O, t.Br),
               lse = tiled(x.lse, t.Br);
    const auto pass = keys_from_slow_memory(x);
    for (index_t i = Q.rows() - 1; i >= 0; --i) {
      const bool first = i + 1 == Q.rows();
      const auto dQ_i = m.alloc(dQ(i)), Q_i = m.load(Q(i)), dO_i = m.load(dO(i)), lse_i = m.load(lse(i)),
                 D_i = m.alloc(x.D.array, lse(i).shape);
      m.compute(kernel::Zero{}, dQ_i);
      query_pass(m, x, QueryTiles<M>{Q(i).row, dQ_i, Q_i, dO_i, lse_i, D_i, O(i)}, t.bc, pass,
                 [&](index_t j, index_t keys, const Arg& P_ij, const Arg& dS_ij) {
                   m.update(kernel::GemmOver{true, false, first}, x.dV.rows(j, keys), P_ij, dO_i);  // dV += P^T dO
                   m.update(kernel::GemmOver{true, false, first}, x.dK.rows(j, keys), dS_ij, Q_i);  // dK += dS^T Q
                 });
      m.store(dQ_i, dQ(i));
    }
    for (index_t j = x.shape.mask.visible(x.shape.n_q - 1, x.shape.n_k); j < x.shape.n_k; ++j) {  // seen by no query
      m.update(kernel::ZeroOver{}, x.dK.rows(j, 1));
      m.update(kernel::ZeroOver{}, x.dV.rows(j, 1));
    }
  }
};

}  // namespace redblue::schedule
