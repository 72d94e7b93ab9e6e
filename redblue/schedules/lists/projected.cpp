#include "redblue/schedules/projected/projected.hpp"

#include "redblue/schedules/backward/fused_key_outer.hpp"
#include "redblue/schedules/backward/fused_query_outer.hpp"
#include "redblue/schedules/backward/fused_values.hpp"
#include "redblue/schedules/backward/materialised.hpp"
#include "redblue/schedules/backward/spilled.hpp"
#include "redblue/schedules/backward/two_pass.hpp"
#include "redblue/schedules/describe.hpp"
#include "redblue/schedules/forward/column_split.hpp"
#include "redblue/schedules/forward/flash.hpp"
#include "redblue/schedules/forward/flash_pinned.hpp"
#include "redblue/schedules/forward/key_outer.hpp"
#include "redblue/schedules/forward/naive.hpp"
#include "redblue/schedules/forward/score_tiles.hpp"
#include "redblue/schedules/forward/small_cache.hpp"
#include "redblue/schedules/lists/lists.hpp"
#include "redblue/schedules/projected/shared_source.hpp"

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
