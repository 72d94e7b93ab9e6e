#pragma once
#include "redblue/core/machine.hpp"
#include "redblue/kernel/attention.hpp"
#include "redblue/schedule/forward/operands.hpp"
#include "redblue/schedule/parts/limits.hpp"
#include "redblue/schedule/parts/visible.hpp"

namespace redblue::schedule {

/// FlashAttention-2 as a GPU runs it: blocks of keys, then of values, are resident instead of streaming past.
/// For the same Br it moves the same words as flash, but resident keys take room, so Br is smaller.
///   reads n_q d + (d + d_v) SUM_I kappa_I   writes n_q (d_v + 1)
///   footprint Br (d + d_v + 2) + Br Bc + Bc max(d, d_v)
struct FlashTiledForward : Defaults {
  using Operands = ForwardOperands;
  static constexpr std::string_view name = "flash_tiled";
  static constexpr std::string_view idea = "keeping blocks of queries, keys and values resident";
  static constexpr Traits traits{.masks = true};
  static constexpr std::array<SlowArray, 0> workspace{};

  struct Tiling {
    index_t Br = 1;  ///< queries resident at a time
    index_t Bc = 1;  ///< keys, then values, resident at a time
    void knobs(const auto& knob) {
      knob({"Br", &Sizes::n_q}, Br);
      knob({"Bc", &Sizes::n_k}, Bc);
    }
  };

  static Tiling smallest(const Sizes& x, const Multiples& m) {
    return {smallest_tile(x.n_q, m.query), smallest_tile(x.n_k, m.key)};
  }
  static std::optional<Tiling> choose_tiling(const Sizes& x, const Limits& limits) {
    const index_t Bc = smallest_tile(x.n_k, limits.multiple.key);  // the words do not depend on Bc
    const index_t step = limits.multiple.query;
    const auto fits = [&](index_t Br) { return limits.fit(footprint(x, {Br, Bc}), prefetch(x, {Br, Bc})); };
    const index_t largest = largest_query_block(x, limits, Bc, [&](index_t rows) { return row_tiles(x, rows); }, fits);
    const index_t Br = fewest_visits(x, largest, step, fits);
    if (Br == 0) return std::nullopt;
    return Tiling{Br, Bc};
  }

  /// A block of queries that sees no key holds none; one that sees fewer than Bc keys holds those.
  static Words footprint(const Sizes& x, Tiling t) {
    return query_blocks_footprint(x, t.Br, [&](index_t rows, index_t kappa) {
      const index_t Bc = std::min(t.Bc, kappa);
      return row_tiles(x, rows) + x.tile(SlowArray::S, rows, Bc) + block(x, Bc);
    });
  }
  /// Q_i, O_i, m_i and l_i.
  static Words row_tiles(const Sizes& x, index_t rows) {
    return x.tile(SlowArray::Q, rows, x.d) + x.tile(SlowArray::O, rows, x.d_v) + 2 * x.statistic(SlowArray::lse, rows);
  }
  /// A block of keys or values.
  static Words block(const Sizes& x, index_t keys) {
    return std::max(x.tile(SlowArray::K, keys, x.d), x.tile(SlowArray::V, keys, x.d_v));
  }
  /// The next block.
  static Words prefetch(const Sizes& x, Tiling t) { return block(x, std::min(t.Bc, x.n_k)); }
  static Io io(const Sizes& x, Tiling t) { return query_outer_io(x, visited_keys(x, t.Br)); }
  static Words macs(const Sizes& x, Tiling t) { return visited_pairs(x, t.Br) * (Words(x.d) + x.d_v); }

  template <Machine M>
  static void run(M& m, const ForwardOperands& x, Tiling t) {
    const auto Q = tiled(x.Q, t.Br), O = tiled(x.O, t.Br), lse = tiled(x.lse, t.Br);
    m.each(Q.rows(), [&](auto& w, index_t i) {
      const auto Q_i = w.load(Q(i));
      const auto O_i = w.alloc(O(i));
      const auto m_i = w.alloc(lse(i)), l_i = w.alloc(lse(i));
      w.compute(kernel::SoftmaxInit{}, O_i, m_i, l_i);
      const index_t kappa = x.shape.mask.visible(Q(i).row, Q(i).shape.rows, x.shape.n_k);
      for (index_t j = 0; j < kappa; j += t.Bc) {
        const index_t keys = std::min(t.Bc, kappa - j);
        const auto S_ij = w.alloc(SlowArray::S, {Q(i).shape.rows, keys});
        {
          const auto K_j = w.load(x.K.rows(j, keys));
          w.compute(kernel::Scores{x.scale, x.shape.mask, Q(i).row, j}, S_ij, Q_i, K_j);
        }
        const auto V_j = w.load(x.V.rows(j, keys));
        w.compute(kernel::OnlineSoftmax{}, S_ij, O_i, m_i, l_i);
        w.compute(kernel::Gemm{}, O_i, S_ij, V_j);  // O += S V
      }
      w.compute(kernel::SoftmaxFinish{}, O_i, m_i, l_i);
      w.store(O_i, O(i));
      w.store(m_i, lse(i));
    });
  }
};

}  // namespace redblue::schedule
