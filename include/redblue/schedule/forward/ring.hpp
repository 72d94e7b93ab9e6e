#pragma once
#include "redblue/schedule/forward/flash.hpp"
#include "redblue/schedule/parts/ring.hpp"

namespace redblue::schedule {

/// Keys and values in a ring: each is loaded when the first query comes that sees it, and stays as long as queries see
/// it. For windows: there the words are those that every schedule moves (docs/proofs/trivial.md) and those of lse,
/// whatever M, once fast memory holds a window.
///   reads n_q d + n_k (d + d_v)   writes n_q (d_v + 1)   footprint s (d + d_v) + Br (d + d_v + 2 + Bc)
/// s: the most keys that one block of queries and the next both see, or Bc if that is more. Theory notes 2g.
struct RingForward : Defaults {
  using Operands = ForwardOperands;
  static constexpr std::string_view name = "ring";
  static constexpr std::string_view label = "forward ring";
  static constexpr std::string_view idea = "keeping the keys of a window resident in a ring";
  static constexpr Traits traits{.windows = true, .masks = true, .modifiers = true, .any_score = true};
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
    return std::max(x.pairs().most_kept(std::min(t.Br, x.n_q)), std::min(t.Bc, x.n_k));
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
  static Io io(const Sizes& x, Tiling t) { return query_outer_io(x, t.Br, x.n_k); }
  static Words macs(const Sizes& x, Tiling t) { return FlashForward::macs(x, t); }

  template <Machine M>
  static void run(M& m, const ForwardOperands& x, Tiling t) {
    const Pairs pairs = x.shape.pairs();
    const Blocks blocks = pairs.row_blocks(t.Br);
    const index_t s = places(x.shape, t);
    const auto K_ring = m.alloc(SlowArray::K, {s, x.shape.d}), V_ring = m.alloc(SlowArray::V, {s, x.shape.d_v});
    index_t loaded = 0;  // keys before it are in the ring, or were
    const auto ring = [&](auto& w, const Block& b) {
      const index_t key = b.row - x.K.first_row;
      const Arg place = (b.array == x.K.array ? K_ring : V_ring).rows(key % s, b.shape.rows);
      if (key >= loaded) w.load_into(place, b);
      if (b.array == x.V.array) loaded = std::max(loaded, key + b.shape.rows);  // V_j comes after K_j
      return place;
    };
    // Keys of one step are all in the ring, or all new; and they lie side by side there.
    const auto step = [&](index_t j) {
      const index_t wrap = j + s - j % s;
      return std::min({j + t.Bc, wrap, j < loaded ? loaded : wrap});
    };
    for (index_t i = 0; i < blocks.count(); ++i) {
      const Range I = blocks(i);
      FlashForward::attend(m, x, {I, x.O.rows(I), x.lse.rows(I)}, pairs.keys_of(I), t.Bc, ring, step);
    }
  }
};

}  // namespace redblue::schedule
