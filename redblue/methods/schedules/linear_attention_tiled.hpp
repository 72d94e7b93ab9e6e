#pragma once
#include "redblue/methods/kernels/feature_maps.hpp"
#include "redblue/methods/schedules/parts/state_passes.hpp"
#include "redblue/schedules/parts/one_pass.hpp"

namespace redblue::schedule {

/// Linear attention where the state does not fit: tiles of gs of its d rows and cb of its d_v + 1 columns, a pass over
/// keys and queries for each. A row of the state needs one coordinate, so a pass reads gs of them: the law of a matrix
/// product. Partial outputs go through slow memory. With mg = c(d, gs) and h = c(d_v + 1, cb):
///   reads h d (n_k + n_q) + mg n_k d_v + (mg - 1) n_q (d_v + 1) + (h - 1) n_q
///   writes (mg - 1) n_q (d_v + 1) + n_q d_v + [h > 1] n_q   footprint gs cb + cb + 1 for br = bc = 1
struct LinearAttentionTiledForward : Defaults {
  using Operands = ForwardOperands;
  static constexpr std::string_view name = "linear_attention_tiled";
  static constexpr std::string_view idea =
      "forming the state of feature maps in tiles, one pass over the rows for each";
  static constexpr Traits traits{.masks = true, .rewrites_outputs = true, .method = methods::kLinearAttention};
  static constexpr std::array workspace{SlowArray::den};

  struct Tiling {
    index_t gs = 1;      ///< rows of the state: coordinates of keys and queries
    index_t values = 0;  ///< columns of V in the first block of columns, beside the row sums: cb - 1
    index_t br = 1;      ///< queries per step (one under a mask)
    index_t bc = 1;      ///< keys per step
    void tile_sizes(const auto& tile_size) {
      tile_size({"gs", &Sizes::d}, gs);
      tile_size({"values", &Sizes::d_v, 0}, values);
      tile_size({"br", &Sizes::n_q}, br);
      tile_size({"bc", &Sizes::n_k}, bc);
    }
  };

  static std::optional<std::string_view> unsupported(const Sizes& x) { return state_unsupported(x); }
  static Tiling smallest(const Sizes& x, const Multiples& m) {
    return {smallest_tile(x.d, m.feature), 0, smallest_tile(x.n_q, m.query), smallest_tile(x.n_k, m.key)};
  }
  /// The largest groups that fit beside every number of column blocks; then more rows per step where there is room.
  static std::optional<Tiling> choose_tiling(const Sizes& x, const Limits& limits) {
    const auto best = cheapest_columns<LinearAttentionTiledForward>(
        x, limits, [&](const Tiling& t) { return largest_group(x, limits, t); });
    return best ? std::optional(doubled_in_turn<LinearAttentionTiledForward>(*best, x, limits)) : best;
  }
  /// The most rows that fit, or fewer that make as many groups; 0 if none do. All that have room for the state are
  /// tried: a smaller last group leaves more of it to what streams past, which the first one does not need.
  static index_t largest_group(const Sizes& x, const Limits& limits, Tiling t) {
    const index_t step = limits.multiple.feature;
    const auto fits = [&](index_t gs) {
      t.gs = gs;
      return schedule::fits<LinearAttentionTiledForward>(x, t, limits);
    };
    const ColumnBlocks blocks(x.d_v, t.values);
    index_t gs = largest_tile(x.d, step, [&](index_t rows) {
      return limits.fit(blocks.largest([&](StateColumns c) { return state(x, rows, c); }), 0);
    });
    while (gs > 0 && !fits(gs)) gs = (gs - 1) / step * step;
    if (gs == 0) return 0;
    const index_t even = balanced(x.d, gs, step);
    return fits(even) ? even : gs;
  }

  static Words state(const Sizes& x, index_t rows, StateColumns c) {
    return x.tile(SlowArray::Z, rows, c.values) + x.tile(SlowArray::Z, rows, c.sums);
  }
  /// With these columns: keys with their values as they arrive, or the sums of queries, beside the state of the first
  /// group, of those between, and of the last, which may be smaller.
  static std::array<Phase, 4> phases(const Sizes& x, Tiling t, StateColumns columns) {
    const index_t gs = std::min(t.gs, x.d), groups = ceil_div(x.d, gs), keys = keys_entering(x, t.bc);
    const index_t rows = x.mask.full() ? std::min(t.br, x.n_q) : 1;
    const Words V = x.tile(SlowArray::V, keys, columns.values), k = x.word(SlowArray::K);
    const Words sums = x.tile(SlowArray::O, rows, columns.values) + x.tile(SlowArray::den, rows, columns.sums);
    const auto reading = [&](index_t size, bool first, bool last) {
      const bool of_sums = columns.sums > 0;
      const Words passing =
          std::max({x.word(SlowArray::Q), !first && columns.values > 0 ? x.word(SlowArray::O) : Words(0),
                    (of_sums ? !first : last) ? x.word(SlowArray::den) : Words(0)});
      return Phase{state(x, size, columns) + sums + passing, passing};
    };
    const Phase first = reading(gs, true, groups == 1);
    return {Phase{state(x, gs, columns) + V + k, V + k}, first, groups > 2 ? reading(gs, false, false) : first,
            groups > 1 ? reading(x.d - (groups - 1) * gs, false, true) : first};
  }
  static Phase largest(const Sizes& x, Tiling t) {
    return ColumnBlocks(x.d_v, t.values).phase([&](StateColumns c) { return phases(x, t, c); });
  }
  static Words footprint(const Sizes& x, Tiling t) { return largest(x, t).footprint; }
  /// The next values and word of K, or a word of a query or of its sums.
  static Words prefetch(const Sizes& x, Tiling t) { return largest(x, t).prefetch; }
  static Io io(const Sizes& x, Tiling t) {
    return io_of_passes(x, ColumnBlocks(x.d_v, t.values).count(), c(x.d, t.gs), x.d);
  }
  static Words macs(const Sizes& x, Tiling) { return (Words(x.n_k) + x.n_q) * x.d * (Words(x.d_v) + 1); }

  template <Machine M>
  static void run(M& m, const ForwardOperands& x, Tiling t) {
    const ColumnBlocks blocks(x.shape.d_v, t.values);
    const Blocks groups{x.shape.d, t.gs};
    for (index_t C = 0; C < blocks.count(); ++C)
      for (index_t G = 0; G < groups.count(); ++G) pass(m, x, t, blocks(C), groups(G));
  }

 private:
  template <class M>
  static void pass(M& m, const ForwardOperands& x, Tiling t, StateColumns c, Range G) {
    const Range values{c.first, c.first + c.values};
    const auto Z = m.alloc(SlowArray::Z, {G.size(), c.values}), z = m.alloc(SlowArray::Z, {G.size(), c.sums});
    m.compute(kernel::Zero{}, Z);
    m.compute(kernel::Zero{}, z);
    for_queries_after_keys(
        x.shape, t.br, t.bc,
        [&](Range J) {
          const auto V_j = m.load(x.V.block(J, values));
          m.compute(kernel::AddElu{}, Z, z, m.stream(x.K.block(J, G)), V_j);
        },
        [&](Range I) {
          const auto num = m.alloc(x.O.block(I, values)), den = m.alloc(SlowArray::den, {I.size(), c.sums});
          m.compute(kernel::Zero{}, num);
          m.compute(kernel::Zero{}, den);
          m.compute(kernel::ApplyElu{}, num, den, m.stream(x.Q.block(I, G)), Z, z);
          add_to_sums(m, x, c, G.begin == 0, G.end == x.shape.d, I, num, den);
        });
  }
};

}  // namespace redblue::schedule
