#include "fewer_tiles.hpp"

#include <algorithm>
#include <numeric>

namespace redblue {

namespace {

/// Tiles of each kind that stay; and rows or keys that stay, for blocks that no knob sets.
constexpr index_t kTiles = 3, kRows = 256;

/// The least common multiple of all tiles along this dimension: all of them begin anew there.
index_t period(const plan::Schedule& schedule, const Sizes& x, const plan::Tiling& tiling, index_t Sizes::* along) {
  constexpr index_t kLong = 4096;
  index_t common = 1, largest = 1;
  for (const schedule::Knob& k : tiling) {
    if (schedule.knob(k.name).along != along) continue;
    const index_t tile = std::clamp<index_t>(k.value, 1, x.*along);
    largest = std::max(largest, tile);
    common = std::min(std::lcm(common, tile), x.*along);
  }
  return common <= kLong ? common : largest;
}

/// How much of `size` can go.
index_t surplus(index_t size, index_t period) {
  return std::max<index_t>(0, size - std::max(kTiles * period, kRows)) / period * period;
}

}  // namespace

Sizes fewer_tiles(const plan::Schedule& schedule, const Sizes& whole, const plan::Tiling& tiling) {
  Sizes x = whole;
  index_t keys = period(schedule, x, tiling, &Sizes::n_k);
  for (const schedule::Knob& k : tiling)
    if (schedule.knob(k.name).groups) keys *= k.value;
  const index_t group = x.mask.group, queries = std::lcm(period(schedule, x, tiling, &Sizes::n_q), group);
  index_t fewer_keys = surplus(x.mask.visible(x.n_q - 1, x.n_k), keys), fewer_queries = surplus(x.n_q, queries);
  if (x.mask.causal && x.mask.offset < 0) {  // those that see no key stay
    fewer_keys = std::min(fewer_keys, fewer_queries / group);
    fewer_queries = fewer_keys * group;
  }
  x.n_k -= fewer_keys;
  x.n_q -= fewer_queries;
  if (x.mask.causal) x.mask.offset += fewer_queries / group - fewer_keys;  // the last query sees as far as before
  return schedule.footprint(x, tiling) == schedule.footprint(whole, tiling) ? x : whole;
}

}  // namespace redblue
