#include "redblue/schedules/describe.hpp"
#include "redblue/schedules/lists/lists.hpp"
#include "redblue/schedules/second/fused_key_outer.hpp"
#include "redblue/schedules/second/grouped_key_outer.hpp"
#include "redblue/schedules/second/materialised.hpp"
#include "redblue/schedules/second/tangent.hpp"
#include "redblue/schedules/second/tangent_small_cache.hpp"
#include "redblue/schedules/second/three_sweeps.hpp"

namespace redblue::plan {

using namespace schedule;

void add_second(Registry& registry) {
  registry.add(describe<TangentQueryOuter>());
  registry.add(describe<TangentSmallCache>());
  registry.add(describe<SecondThreeSweeps>());
  registry.add(describe<SecondFusedKeyOuter>());
  registry.add(describe<SecondGroupedKeyOuter>());
  registry.add(describe<SecondMaterialised>());
}

}  // namespace redblue::plan
