#include "lists.hpp"
#include "redblue/describe.hpp"
#include "redblue/schedule/forward/column_split.hpp"
#include "redblue/schedule/forward/flash.hpp"
#include "redblue/schedule/forward/flash_pinned.hpp"
#include "redblue/schedule/forward/flash_tiled.hpp"
#include "redblue/schedule/forward/key_outer.hpp"
#include "redblue/schedule/forward/linear.hpp"
#include "redblue/schedule/forward/naive.hpp"
#include "redblue/schedule/forward/ring.hpp"
#include "redblue/schedule/forward/saha_ye.hpp"
#include "redblue/schedule/forward/score_tiles.hpp"
#include "redblue/schedule/forward/small_cache.hpp"
#include "redblue/schedule/forward/sparse.hpp"
#include "redblue/schedule/forward/split_keys.hpp"
#include "redblue/schedule/forward/strips.hpp"

namespace redblue::plan {

using namespace schedule;

void add_forward(Registry& registry) {
  registry.add(describe<FlashForward>());
  registry.add(describe<FlashPinnedForward>());
  registry.add(describe<ColumnSplitForward>());
  registry.add(describe<KeyOuterForward>());
  registry.add(describe<SmallCacheForward>());
  registry.add(describe<ScoreTilesForward>());
  registry.add(describe<FlashTiledForward>());
  registry.add(describe<NaiveForward>());
  registry.add(describe<SahaYeForward>());
  registry.add(describe<SplitKeysForward>());
  registry.add(describe<RingForward>());
  registry.add(describe<StripsForward>());
  registry.add(describe<SparseForward>());
  registry.add(describe<LinearForward>());
  registry.add(describe<LinearProductsForward>());
}

}  // namespace redblue::plan
