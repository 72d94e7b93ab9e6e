#pragma once
#include "redblue/kernels/attention.hpp"
#include "redblue/language/machine.hpp"
#include "redblue/schedules/operands/forward.hpp"
#include "redblue/schedules/parts/limits.hpp"
#include "redblue/schedules/parts/visible.hpp"

namespace redblue::schedule {

/// FlashAttention-2 as a GPU runs it: blocks of keys, then of values, are resident instead of streaming past.
/// For the same Br it moves the same words as flash, but resident keys take room, so Br is smaller.
///   reads n_q d + (d + d_v) A(Br)   writes n_q (d_v + 1)
///   footprint Br (d + d_v + 2) + Br Bc + Bc max(d, d_v)
/// Modifiers: parts/modifiers.hpp.
struct FlashTiledForward : Defaults {
  using Operands = ForwardOperands;
  static constexpr std::string_view name = "flash_tiled";
  static constexpr std::string_view idea = "keeping blocks of queries, keys and values resident";
  static constexpr Traits traits{.masks = true, .modifiers = true, .accumulates = true};
  static constexpr std::array<SlowArray, 0> workspace{};

  struct Tiling {
    index_t Br = 1;  ///< queries resident at a time
    index_t Bc = 1;  ///< keys, then values, resident at a time
    void tile_sizes(const auto& tile_size) {
      tile_size({"Br", &Sizes::n_q}, Br);
      tile_size({"Bc", &Sizes::n_k}, Bc);
    }
  };

  static Tiling smallest(const Sizes& x, const Multiples& m) {
    return {smallest_tile(x.n_q, m.query), smallest_tile(x.n_k, m.key)};
  }
  static std::optional<Tiling> choose_tiling(const Sizes& x, const Limits& limits) {
    const index_t Bc = smallest_tile(x.n_k, limits.multiple.key);  // the words do not depend on Bc
    const index_t step = limits.multiple.query;
    const index_t Br = choose_query_block(
        x, step, [&](index_t size) { return limits.fit(footprint(x, {size, Bc}), prefetch(x, {size, Bc})); },
        query_block_prices(x, limits));
    if (Br == 0) return std::nullopt;
    return Tiling{Br, Bc};
  }

  static Words footprint(const Sizes& x, Tiling t) {
    return query_blocks_footprint(x, t.Br, [&](index_t rows, index_t kappa) {
      const index_t keys = std::min(t.Bc, kappa);
      const Words step = x.tile(SlowArray::S, rows, keys) + std::max(block(x, keys), passing_bias(x, 0));
      return row_tiles(x, rows) + slopes_tile(x) + std::max(passing_sink(x, step), passing_given(x));
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
  static Io io(const Sizes& x, Tiling t) { return query_outer_io(x, t.Br, x.pairs().visited_keys(t.Br)); }
  static Words macs(const Sizes& x, Tiling t) { return x.pairs().pairs_of_rows(t.Br) * (Words(x.d) + x.d_v); }

  template <Machine M>
  static void run(M& m, const ForwardOperands& x, Tiling t) {
    const Pairs pairs = x.shape.pairs();
    const Blocks blocks = pairs.row_blocks(t.Br);
    m.each(blocks.count(), [&](auto& w, index_t i) {
      const Range I = blocks(i), keys = pairs.keys_of(I);
      const auto Q_i = w.load(x.Q.rows(I));
      const auto O_i = x.shape.accumulate ? w.load(x.O.rows(I)) : w.alloc(x.O.rows(I));
      const auto m_i = w.alloc(x.lse.rows(I)), l_i = w.alloc(x.lse.rows(I));
      const Slopes slopes(w, x);
      if (x.shape.accumulate)
        begin_with_given(w, x, I, O_i, m_i, l_i);
      else
        w.compute(kernel::SoftmaxInit{}, O_i, m_i, l_i);
      begin_with_sinks(w, x, I.begin, m_i, l_i);
      for (index_t j = keys.begin; j < keys.end; j += t.Bc) {
        const Range J{j, std::min(j + t.Bc, keys.end)};
        const Place place = x.shape.place(I.begin, j);
        const auto S_ij = w.alloc(SlowArray::S, {I.size(), J.size()});
        {
          const auto K_j = w.load(x.K.rows(J));
          w.compute(kernel::Scores{x.scale, place}, S_ij, Q_i, K_j);
        }
        modify(w, modify_scores(x.shape, place), S_ij, x.bias_of(I, J), slopes.arg());
        const auto V_j = w.load(x.V.rows(J));
        w.compute(kernel::OnlineSoftmax{}, S_ij, O_i, m_i, l_i);
        if (x.shape.modifiers.dropout > 0) w.compute(drop(x.shape, x.instance(), place), S_ij);
        w.compute(kernel::Gemm{}, O_i, S_ij, V_j);  // O += S V
      }
      w.compute(kernel::SoftmaxFinish{}, O_i, m_i, l_i);
      w.store(O_i, x.O.rows(I));
      w.store(m_i, x.lse.rows(I));
    });
  }
};

}  // namespace redblue::schedule
