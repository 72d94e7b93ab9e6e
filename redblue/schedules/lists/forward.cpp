#include "redblue/schedules/linear/forward.hpp"

#include "redblue/schedules/describe.hpp"
#include "redblue/schedules/forward/column_split.hpp"
#include "redblue/schedules/forward/flash.hpp"
#include "redblue/schedules/forward/flash_pinned.hpp"
#include "redblue/schedules/forward/flash_tiled.hpp"
#include "redblue/schedules/forward/key_outer.hpp"
#include "redblue/schedules/forward/naive.hpp"
#include "redblue/schedules/forward/saha_ye.hpp"
#include "redblue/schedules/forward/score_tiles.hpp"
#include "redblue/schedules/forward/small_cache.hpp"
#include "redblue/schedules/forward/split_keys.hpp"
#include "redblue/schedules/lists/lists.hpp"
#include "redblue/schedules/ring/forward.hpp"
#include "redblue/schedules/sparse/forward.hpp"
#include "redblue/schedules/strips/forward.hpp"

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
