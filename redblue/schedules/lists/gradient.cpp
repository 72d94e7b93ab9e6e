#include "redblue/schedules/describe.hpp"
#include "redblue/schedules/gradient/algorithm_1.hpp"
#include "redblue/schedules/gradient/algorithm_6.hpp"
#include "redblue/schedules/gradient/algorithm_9.hpp"
#include "redblue/schedules/gradient/key_outer.hpp"
#include "redblue/schedules/gradient/on_the_fly.hpp"
#include "redblue/schedules/gradient/query_outer.hpp"
#include "redblue/schedules/gradient/shared_source.hpp"
#include "redblue/schedules/gradient/shared_source_key_outer.hpp"
#include "redblue/schedules/gradient/small_cache.hpp"
#include "redblue/schedules/lists/lists.hpp"

namespace redblue::plan {

using namespace schedule;

void add_gradient(Registry& registry) {
  registry.add(describe<QueryOuterGradient<RowsGo::out>>());
  registry.add(describe<QueryOuterGradient<RowsGo::into_slow_g>>());
  registry.add(describe<QueryOuterGradient<RowsGo::into_resident_g>>());
  registry.add(describe<OnTheFlyGradient>());
  registry.add(describe<KeyOuterGradient<Values::formed>>());
  registry.add(describe<KeyOuterGradient<Values::stored>>());
  registry.add(describe<SmallCacheGradient>());
  registry.add(describe<SharedSourceGradient>());
  registry.add(describe<SharedSourceKeyOuterGradient>());
  registry.add(describe<Algorithm1Gradient>());
  registry.add(describe<Algorithm6Gradient>());
  registry.add(describe<Algorithm9Gradient>());
}

}  // namespace redblue::plan
