#pragma once
#include "redblue/schedule/forward/flash.hpp"
#include "redblue/schedule/parts/index_words.hpp"
#include "redblue/schedule/parts/ring_steps.hpp"

namespace redblue::schedule {

/// Keys and values in a ring: each is loaded when the first query comes that sees it, and stays as long as queries see
/// it. For windows: there the words are those that every schedule moves (docs/proofs/trivial.md) and those of lse,
/// whatever M, once fast memory holds a window.
///   reads n_q d + n_k (d + d_v)   writes n_q (d_v + 1)   footprint s (d + d_v) + Br (d + d_v + 2 + Bc)
/// s: the most keys that one block of queries and the next both see, or Bc if that is more; under a pattern those that
/// stay from one block to the next (parts/ring_side.hpp). Theory notes 2g.
struct RingForward : Defaults {
  using Operands = ForwardOperands;
  static constexpr std::string_view name = "ring";
  static constexpr std::string_view label = "forward ring";
  static constexpr std::string_view idea = "keeping the keys of a window resident in a ring";
  static constexpr Traits traits{
      .windows = true, .masks = true, .patterns = true, .modifiers = true, .any_score = true};
  static constexpr std::array<SlowArray, 0> workspace{};

  using Tiling = FlashForward::Tiling;

  static Tiling smallest(const Sizes& x, const Multiples& m) { return FlashForward::smallest(x, m); }
  /// All move the same words: the smallest Br that fits, doubled while there is room, and Bc likewise.
  static std::optional<Tiling> choose_tiling(const Sizes& x, const Limits& limits) {
    Tiling t = smallest(x, limits.multiple);
    const auto fits = [&](Tiling u) { return limits.fit(footprint(x, u), prefetch(x, u)); };
    const auto rows_fit = [&](index_t rows) { return fits({rows, t.Bc}); };
    const std::optional<index_t> Br = smallest_block(x, limits, SlowArray::Q, rows_fit);
    if (!Br) return std::nullopt;
    t.Br = doubled(*Br, x.n_q, rows_fit);
    t.Bc = doubled(t.Bc, x.n_k, [&](index_t keys) { return fits({t.Br, keys}); });
    return t;
  }

  /// Keys that the ring holds.
  static index_t places(const Sizes& x, Tiling t) {
    return RingSide::of_keys(x.pairs(), std::min(t.Br, x.n_q)).places(t.Bc);
  }
  static Words footprint(const Sizes& x, Tiling t) {
    return x.tile(SlowArray::K, places(x, t), x.d) + x.tile(SlowArray::V, places(x, t), x.d_v) +
           FlashForward::footprint(x, t) - FlashForward::passing(x) + passing_modifiers(x);
  }
  /// The keys and values of the next step, or a word of what modifies scores.
  static Words prefetch(const Sizes& x, Tiling t) {
    const index_t keys = std::min(t.Bc, x.n_k);
    return x.tile(SlowArray::K, keys, x.d) + x.tile(SlowArray::V, keys, x.d_v) + passing_modifiers(x);
  }
  static Io io(const Sizes& x, Tiling t) {
    return query_outer_io(x, t.Br, RingSide::of_keys(x.pairs(), t.Br).items_met());
  }
  static IndexWords index(const Sizes& x, Tiling t) { return row_pass_index(x, t.Br).words(); }
  static Words macs(const Sizes& x, Tiling t) { return FlashForward::macs(x, t); }

  template <Machine M>
  static void run(M& m, const ForwardOperands& x, Tiling t) {
    const RingSide side = RingSide::of_keys(x.shape.pairs(), t.Br);
    RingSteps steps(side, places(x.shape, t), t.Bc, RingOrder::reading);
    const auto K_ring = m.alloc(SlowArray::K, {steps.places(), x.shape.d}),
               V_ring = m.alloc(SlowArray::V, {steps.places(), x.shape.d_v});
    for (index_t i = 0; i < side.blocks.count(); ++i) {
      const Range I = side.blocks(i);
      const std::vector<RingStep>& of_block = steps.next();
      const RingStep* j = of_block.data();
      const auto ring = [&](auto& w, const Block& b) {
        const Arg place = (b.array == x.K.array ? K_ring : V_ring).rows(j->rows.begin, j->rows.size());
        if (j->enters) w.load_into(place, b);
        if (b.array == x.V.array) ++j;  // V_j comes after K_j
        return place;
      };
      FlashForward::attend(m, x, {I, x.O.rows(I), x.lse.rows(I)}, items_of(of_block), t.Bc, ring);
    }
  }
};

}  // namespace redblue::schedule
