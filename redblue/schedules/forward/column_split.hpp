#pragma once
#include "redblue/schedules/forward/flash.hpp"

namespace redblue::schedule {

/// Flash run h = ceil(d_v/w) times, each time for a group of w columns of V, with the scores formed anew. It is better
/// than flash for d_v > d, where 4 d d_v N / M replaces (d + d_v)^2 N / M, and where narrower groups round better. h =
/// 1 would be flash.
///   reads h n_q d + (h d + d_v) A(Br)   writes n_q (d_v + 1)   footprint Br (d + w + 2 + Bc) + 1
struct ColumnSplitForward : Defaults {
  using Operands = ForwardOperands;
  static constexpr std::string_view name = "column_split";
  static constexpr std::string_view idea = "keeping queries resident for one group of value columns at a time";
  static constexpr Traits traits{
      .masks = true, .patterns = true, .modifiers = true, .any_score = true, .accumulates = true};
  static constexpr std::array<SlowArray, 0> workspace{};

  struct Tiling {
    index_t Br = 1;  ///< queries resident at a time
    index_t Bc = 1;  ///< keys per step
    index_t w = 1;   ///< value columns of one group
    void tile_sizes(const auto& tile_size) {
      tile_size({"Br", &Sizes::n_q}, Br);
      tile_size({"Bc", &Sizes::n_k}, Bc);
      tile_size({"w", &Sizes::d_v}, w);
    }
  };

  static bool allows(const Sizes& x, Tiling t) { return t.w < x.d_v; }  // else it is flash
  static Tiling smallest(const Sizes& x, const Multiples& m) {
    return {smallest_tile(x.n_q, m.query), smallest_tile(x.n_k, m.key), smallest_tile(x.d_v, m.feature)};
  }
  /// Every distinct width, from two groups down, until Q alone costs more than the best.
  static std::optional<Tiling> choose_tiling(const Sizes& x, const Limits& limits) {
    const index_t Bc = smallest_tile(x.n_k, limits.multiple.key), step = limits.multiple.query,
                  step_w = limits.multiple.feature;
    std::optional<Tiling> best;
    Words best_cost;
    for (index_t w = x.d_v; w > step_w;) {
      w = balanced(x.d_v, (ceil_div(w, step_w) - 1) * step_w, step_w);
      const index_t Br = choose_query_block(
          x, step, [&](index_t size) { return limits.fit(footprint(x, {size, Bc, w}), prefetch(x, {size, Bc, w})); },
          query_block_prices(x, limits, c(x.d_v, w)));
      if (Br == 0) continue;
      const Tiling t{Br, Bc, w};
      const Words cost = limits.price.of(io(x, t));
      if (!best || cost < best_cost) {
        best = t;
        best_cost = cost;
      }
      if (limits.price.reading(SlowArray::Q) * c(x.d_v, w) * x.n_q * x.d > best_cost) break;
    }
    return best;
  }

  static Words footprint(const Sizes& x, Tiling t) {
    Sizes group = x;
    group.d_v = std::min(t.w, x.d_v);
    return FlashForward::footprint(group, {t.Br, t.Bc});
  }
  static Words prefetch(const Sizes& x, Tiling) { return FlashForward::passing(x); }
  static Io io(const Sizes& x, Tiling t) {
    return query_outer_io(x, t.Br, x.pairs().visited_keys(t.Br), c(x.d_v, t.w));
  }
  static Words macs(const Sizes& x, Tiling t) { return x.pairs().pairs_of_rows(t.Br) * (c(x.d_v, t.w) * x.d + x.d_v); }
  static IndexWords index(const Sizes& x, Tiling t) {
    const IndexWords pass = FlashForward::index(x, {t.Br, t.Bc});
    return {c(x.d_v, t.w) * pass.reads, pass.resident};
  }

  template <Machine M>
  static void run(M& m, const ForwardOperands& x, Tiling t) {
    const auto groups = tiled(x.V, x.shape.n_k, t.w);
    for (index_t g = 0; g < groups.cols(); ++g) {
      const Block V_g = groups(0, g);
      ForwardOperands part = x;
      part.V = x.V.columns(V_g.col, V_g.shape.cols);
      part.O = x.O.columns(V_g.col, V_g.shape.cols);
      part.store_lse = g == (x.shape.accumulate ? groups.cols() - 1 : 0);  // each pass begins with a given one
      FlashForward::run(m, part, {t.Br, t.Bc});
    }
  }
};

}  // namespace redblue::schedule
