#include "redblue/schedule/projected/projected.hpp"

#include "lists.hpp"
#include "redblue/describe.hpp"
#include "redblue/schedule/backward/fused_key_outer.hpp"
#include "redblue/schedule/backward/fused_query_outer.hpp"
#include "redblue/schedule/backward/fused_values.hpp"
#include "redblue/schedule/backward/materialised.hpp"
#include "redblue/schedule/backward/spilled.hpp"
#include "redblue/schedule/backward/two_pass.hpp"
#include "redblue/schedule/forward/column_split.hpp"
#include "redblue/schedule/forward/flash.hpp"
#include "redblue/schedule/forward/flash_pinned.hpp"
#include "redblue/schedule/forward/key_outer.hpp"
#include "redblue/schedule/forward/naive.hpp"
#include "redblue/schedule/forward/score_tiles.hpp"
#include "redblue/schedule/forward/small_cache.hpp"
#include "redblue/schedule/projected/shared_source.hpp"

namespace redblue::plan {

using namespace schedule;

void add_projected(Registry& registry) {
  registry.add(describe<Projected<FlashForward>>());
  registry.add(describe<Projected<FlashPinnedForward>>());
  registry.add(describe<Projected<ColumnSplitForward>>());
  registry.add(describe<Projected<KeyOuterForward>>());
  registry.add(describe<Projected<SmallCacheForward>>());
  registry.add(describe<Projected<ScoreTilesForward>>());
  registry.add(describe<Projected<NaiveForward>>());
  registry.add(describe<SharedSourceForward>());
  registry.add(describe<ProjectedBackward<FusedQueryOuterBackward>>());
  registry.add(describe<ProjectedBackward<FusedKeyOuterBackward>>());
  registry.add(describe<ProjectedBackward<TwoPassBackward>>());
  registry.add(describe<ProjectedBackward<SpilledBackward>>());
  registry.add(describe<ProjectedBackward<FusedValuesBackward>>());
  registry.add(describe<ProjectedBackward<MaterialisedBackward>>());
  registry.add(describe<WeightedBackward<FusedQueryOuterBackward>>());
  registry.add(describe<WeightedBackward<FusedKeyOuterBackward>>());
  registry.add(describe<WeightedBackward<TwoPassBackward>>());
  registry.add(describe<WeightedBackward<SpilledBackward>>());
  registry.add(describe<WeightedBackward<FusedValuesBackward>>());
  registry.add(describe<WeightedBackward<MaterialisedBackward>>());
}

}  // namespace redblue::plan
