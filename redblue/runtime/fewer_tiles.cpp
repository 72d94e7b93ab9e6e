#include "redblue/runtime/fewer_tiles.hpp"

#include <algorithm>
#include <numeric>

namespace redblue {

namespace {

/// The smaller problem has this many tiles along a dimension, or this many rows or keys where no tile size sets their
/// tiles.
constexpr index_t kTiles = 3, kLeastRows = 256;

/// After these many rows, keys or features all tiles along this dimension begin anew: their least common multiple; the
/// largest tile where that is long.
index_t period(const plan::Schedule& schedule, const Sizes& x, const plan::Tiling& tiling, index_t Sizes::* along) {
  constexpr index_t kLong = 4096;
  index_t common = 1, largest = 1;
  for (const schedule::TileSize& k : tiling) {
    if (schedule.tile_size(k.name).along != along) continue;
    const index_t tile = std::clamp<index_t>(k.value, 1, x.*along);
    largest = std::max(largest, tile);
    if (common <= kLong) common = tile <= kLong ? std::min(std::lcm(common, tile), x.*along) : tile;
  }
  return common <= kLong ? common : largest;
}

/// How much of `size` can go.
index_t surplus(index_t size, index_t period) {
  return std::max<index_t>(0, size - std::max(kTiles * period, kLeastRows)) / period * period;
}

bool is_alike(const plan::Schedule& schedule, const Sizes& smaller, const Sizes& whole, const plan::Tiling& tiling) {
  return !schedule.unsupported(smaller) && schedule.allows(smaller, tiling) &&
         schedule.footprint(smaller, tiling) == schedule.footprint(whole, tiling);
}

}  // namespace

Sizes fewer_tiles(const plan::Schedule& schedule, const Sizes& whole, const plan::Tiling& tiling) {
  const bool lists_part = schedule.traits.lists_pairs && !whole.mask.full();
  if (whole.mask.pattern != nullptr || whole.sequences != nullptr || lists_part)
    return whole;  // no part need be like another
  index_t keys = period(schedule, whole, tiling, &Sizes::n_k);
  for (const schedule::TileSize& k : tiling)
    if (schedule.tile_size(k.name).groups) keys *= k.value;
  const Mask& mask = whole.mask;
  const index_t queries = std::lcm(period(schedule, whole, tiling, &Sizes::n_q), mask.group);
  const auto positions = [&](index_t rows) { return rows / mask.group; };
  index_t fewer_keys = surplus(whole.pairs().keys_of({0, whole.n_q}).end, keys);
  index_t fewer_queries = surplus(whole.n_q, queries);
  Sizes x = whole;
  if (!mask.from_first_key()) {  // a window keeps its width
    const index_t step = std::lcm(keys, positions(queries)), both = std::min(fewer_keys, positions(fewer_queries));
    fewer_keys = both / step * step;
    fewer_queries = fewer_keys * mask.group;
  } else if (!mask.full()) {
    if (schedule.has_quadratic_workspace()) return whole;  // rows of scores have their own lengths
    if (mask.hi < 1) {                                     // keep the queries that see no key
      fewer_keys = std::min(fewer_keys, positions(fewer_queries));
      fewer_queries = fewer_keys * mask.group;
    }
    if (mask.hi >= 1)  // let no query see nothing that did not before
      fewer_keys = std::min(fewer_keys, mask.hi - 1 + positions(fewer_queries)) / keys * keys;
    x.mask.hi += positions(fewer_queries) - fewer_keys;  // the last query sees as far as before
  }
  x.n_k -= fewer_keys;
  x.n_q -= fewer_queries;
  x.mask.prefix = std::min(x.mask.prefix, x.n_k);
  return is_alike(schedule, x, whole, tiling) ? x : whole;
}

Sizes fewer_features(const plan::Schedule& schedule, const Sizes& whole, const plan::Tiling& tiling) {
  Sizes x = whole;
  for (index_t Sizes::* along : {&Sizes::d, &Sizes::d_v, &Sizes::d_in}) {
    Sizes smaller = x;
    smaller.*along -= surplus(x.*along, period(schedule, x, tiling, along));
    if (is_alike(schedule, smaller, whole, tiling)) x = smaller;
  }
  return x;
}

}  // namespace redblue
