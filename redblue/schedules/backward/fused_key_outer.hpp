#pragma once
#include "redblue/schedules/pairs/index_words.hpp"
#include "redblue/schedules/passes/key_pass.hpp"

namespace redblue::schedule {

/// e1, all gradients in one pass with keys resident: dK and dV are finished block by block, dQ is revisited in slow
/// memory. FlashAttention's order (Dao et al. 2022, arXiv 2205.14135, Algorithm 4) with one statistic per row.
///   reads 2 n_q d_v + n_k (d + d_v) + B(Bc) (d + d_v + 2) + (B(Bc) - n_q) d
///   writes n_q + B(Bc) d + n_k (d + d_v)   footprint Bc (2 d + 2 d_v + 2 br) + br (d + 2) + 1
/// Given gradients (Sizes::accumulate) are n_q d + n_k (d + d_v) words more to read.
/// B(Bc) = SUM_J rho_J: queries that see a block of keys; without a mask ceil(n_k/Bc) n_q. Leading 16 n^2 d^2/M.
struct FusedKeyOuterBackward : Defaults {
  using Operands = BackwardOperands;
  static constexpr std::string_view name = "fused_key_outer";
  static constexpr std::string_view label = "e1";
  static constexpr std::string_view idea = "keeping keys and values resident and revisiting dQ";
  static constexpr Traits traits{.masks = true,
                                 .patterns = true,
                                 .modifiers = true,
                                 .any_score = true,
                                 .rewrites_outputs = true,
                                 .lse_gradient = true,
                                 .accumulates = true,
                                 .products = 5};
  static constexpr std::array workspace{SlowArray::D};

  using Tiling = KeyPass;

  static Tiling smallest(const Sizes& x, const Multiples& m) {
    return {smallest_tile(x.n_k, m.key), smallest_tile(x.n_q, m.query)};
  }
  static std::optional<Tiling> choose_tiling(const Sizes& x, const Limits& limits) {
    const auto keys = choose_key_pass(x, limits, revisited_queries_io(x), x.word(SlowArray::dQ));
    if (!keys || !limits.fit(output_dots_phase(x))) return std::nullopt;
    return Tiling{*keys};
  }

  static std::array<Phase, 2> phases(const Sizes& x, Tiling t) {
    return {output_dots_phase(x), key_pass_phase(x, t, x.word(SlowArray::dQ))};
  }
  static Words footprint(const Sizes& x, Tiling t) { return footprint_of(phases(x, t)); }
  static Words prefetch(const Sizes& x, Tiling t) { return prefetch_of(phases(x, t)); }
  static Io io(const Sizes& x, Tiling t) {
    const Words visits = x.pairs().visited_rows(t.Bc);
    const Io rest = output_dots_io(x) + key_pass_io(x, key_visits(x, t.Bc));
    if (x.accumulate) return rest + Io().read(SlowArray::dQ, visits * x.d).write(SlowArray::dQ, visits * x.d);
    Words hidden;
    for_rows_without_keys(x.pairs(), [&](Range rows) { hidden += rows.size(); });
    return rest +
           Io().read(SlowArray::dQ, (visits + hidden - x.n_q) * x.d).write(SlowArray::dQ, (visits + hidden) * x.d);
  }
  static Words macs(const Sizes& x, Tiling t) {
    return x.pairs().pairs_of_keys(t.Bc) * (Words(3) * x.d + Words(2) * x.d_v);
  }
  static IndexWords index(const Sizes& x, Tiling t) { return key_pass_index(x, t.Bc).words(); }

  template <Machine M>
  static void run(M& m, const BackwardOperands& x, Tiling t) {
    output_dots(m, x, [&](const Sizes& s) { return footprint(s, t); });
    const Pairs pairs = x.shape.pairs();
    const Blocks blocks = pairs.key_blocks(t.Bc);
    if (!x.shape.accumulate) for_rows_without_keys(pairs, [&](Range I) { m.update(kernel::ZeroOver{}, x.dQ.rows(I)); });
    m.in_turn(blocks.count(), [&](index_t j) {
      const Range J = blocks(j);
      key_pass(m, x, J, t.br, [&](auto& w, Range I, const Arg& dS_ij, const auto& K_j) {
        for_first_visits(pairs, I, J, 0, [&](Range part, bool first) {
          add_query_gradients(w, x, {I, J}, part, first && !x.shape.accumulate, x.dQ.rows(part), dS_ij, K_j);
        });
      });
    });
  }
};

}  // namespace redblue::schedule
