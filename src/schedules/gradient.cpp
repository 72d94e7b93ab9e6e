#include "compiled.hpp"
#include "lists.hpp"
#include "redblue/schedule/gradient/algorithm_1.hpp"
#include "redblue/schedule/gradient/algorithm_6.hpp"
#include "redblue/schedule/gradient/algorithm_9.hpp"
#include "redblue/schedule/gradient/key_outer.hpp"
#include "redblue/schedule/gradient/on_the_fly.hpp"
#include "redblue/schedule/gradient/query_outer.hpp"
#include "redblue/schedule/gradient/shared_source.hpp"
#include "redblue/schedule/gradient/shared_source_key_outer.hpp"
#include "redblue/schedule/gradient/small_cache.hpp"

namespace redblue::plan {

using namespace schedule;

void add_gradient(Registry& registry) {
  registry.add(describe_counted<QueryOuterGradient<RowsGo::out>>());
  registry.add(describe_counted<QueryOuterGradient<RowsGo::into_slow_g>>());
  registry.add(describe_counted<QueryOuterGradient<RowsGo::into_resident_g>>());
  registry.add(describe_counted<OnTheFlyGradient>());
  registry.add(describe_counted<KeyOuterGradient<Values::formed>>());
  registry.add(describe_counted<KeyOuterGradient<Values::stored>>());
  registry.add(describe_counted<SmallCacheGradient>());
  registry.add(describe_counted<SharedSourceGradient>());
  registry.add(describe_counted<SharedSourceKeyOuterGradient>());
  registry.add(describe_counted<Algorithm1Gradient>());
  registry.add(describe_counted<Algorithm6Gradient>());
  registry.add(describe_counted<Algorithm9Gradient>());
}

}  // namespace redblue::plan
