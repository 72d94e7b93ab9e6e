#pragma once
#include <optional>
#include <vector>

#include "redblue/schedules/parts/ring.hpp"
#include "redblue/schedules/ring/pins.hpp"

/// The tiling of a ring past which blocks go, of queries or of keys; under a pattern some of these are pinned instead.
namespace redblue::schedule {

/// What goes past a ring: blocks of Q or of K, their size in a tiling, and do they load sinks?
template <class Tiling>
struct RingPasses {
  SlowArray of;
  index_t Tiling::* size;
  Sinks sinks;
};

/// The tiling of schedule S that fits and moves the fewest words, over these numbers of pins and all sizes of blocks.
template <class S>
std::optional<typename S::Tiling> cheapest_ring(const Sizes& x, const Limits& limits,
                                                const RingPasses<typename S::Tiling>& blocks,
                                                const std::vector<index_t>& pin_counts, typename S::Tiling t) {
  std::optional<typename S::Tiling> best;
  Words least;
  for (const index_t pinned : pin_counts) {
    t.pinned = pinned;
    for_block_sizes(x, limits, blocks.of, [&](index_t size) {
      t.*blocks.size = size;
      if (!fits<S>(x, t, limits)) return false;
      if (const Words cost = limits.price.of(S::io(x, t)); !best || cost < least) {
        best = t;
        least = cost;
      }
      return false;
    });
  }
  return best;
}

/// All tilings of a ring S move the same words, but for a bias under a pattern, which is read for each pair that the
/// ring forms: then this takes the cheapest. Otherwise it takes the pins with which the smallest blocks take the least
/// room, and the smallest blocks that fit. larger(t): what takes the room that is left and moves no word.
template <class S, class Larger>
std::optional<typename S::Tiling> ring_tiling(const Sizes& x, const Limits& limits,
                                              const RingPasses<typename S::Tiling>& blocks, const Larger& larger) {
  const bool keys = blocks.of == SlowArray::K;
  const index_t n = keys ? x.n_k : x.n_q, step = keys ? limits.multiple.key : limits.multiple.query;
  typename S::Tiling t = S::smallest(x, limits.multiple);
  const std::vector<index_t> counts = pin_counts_by_room(x, pin_counts(x.pairs(), keys, step), t, S::footprint);
  if (x.mask.pattern != nullptr && x.modifiers.bias == Modifiers::Bias::of_pairs) {
    const auto best = cheapest_ring<S>(x, limits, blocks, counts, t);
    return best ? std::optional(larger(*best)) : best;
  }
  for (const index_t pinned : counts) {
    t.pinned = pinned;
    const auto size_fits = [&](index_t size) {
      auto u = t;
      u.*blocks.size = size;
      return fits<S>(x, u, limits);
    };
    const std::optional<index_t> size = smallest_block(x, limits, blocks.of, size_fits);
    if (!size) continue;
    t.*blocks.size = enlarged_for_modifiers(x, limits, *size, n, step, blocks.sinks, size_fits);
    return larger(t);
  }
  return std::nullopt;
}

}  // namespace redblue::schedule
