#pragma once
#include "redblue/schedules/schedule.hpp"

namespace redblue {

/// A smaller problem on which a schedule works in the same tiles: whole tiles of queries and keys are left out in the
/// middle, and the smaller tiles at the ends stay. So its loops are short, and its tiles and buffers take what those of
/// the whole problem take. They may differ where a causal mask cuts tiles in other places, or where the tiles of
/// several phases have no common multiple that is much below the size. It is the whole problem where the footprint
/// depends on the sizes that would change.
Sizes fewer_tiles(const plan::Schedule& schedule, const Sizes& whole, const plan::Tiling& tiling);

/// A problem with fewer features, where a schedule's footprint does not depend on them. The tiles stay; a buffer for
/// whole rows that pass becomes smaller.
Sizes fewer_features(const plan::Schedule& schedule, const Sizes& whole, const plan::Tiling& tiling);

}  // namespace redblue
