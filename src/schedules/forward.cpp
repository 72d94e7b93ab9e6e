#include "compiled.hpp"
#include "lists.hpp"
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
  registry.add(describe_fast<FlashForward>());
  registry.add(describe_fast<FlashPinnedForward>());
  registry.add(describe_fast<ColumnSplitForward>());
  registry.add(describe_fast<KeyOuterForward>());
  registry.add(describe_fast<SmallCacheForward>());
  registry.add(describe_fast<ScoreTilesForward>());
  registry.add(describe_fast<FlashTiledForward>());
  registry.add(describe_fast<NaiveForward>());
  registry.add(describe_fast<SahaYeForward>());
  registry.add(describe_fast<SplitKeysForward>());
  registry.add(describe_fast<RingForward>());
  registry.add(describe<StripsForward>());
  registry.add(describe<SparseForward>());
  registry.add(describe_fast<LinearForward>());
  registry.add(describe_fast<LinearProductsForward>());
}

}  // namespace redblue::plan
