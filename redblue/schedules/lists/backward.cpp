#include "redblue/schedules/linear/backward.hpp"

#include "redblue/schedules/backward/fused_key_outer.hpp"
#include "redblue/schedules/backward/fused_query_outer.hpp"
#include "redblue/schedules/backward/fused_values.hpp"
#include "redblue/schedules/backward/grouped_key_outer.hpp"
#include "redblue/schedules/backward/materialised.hpp"
#include "redblue/schedules/backward/spilled.hpp"
#include "redblue/schedules/backward/two_pass.hpp"
#include "redblue/schedules/describe.hpp"
#include "redblue/schedules/linear/products.hpp"
#include "redblue/schedules/lists/lists.hpp"
#include "redblue/schedules/ring/backward.hpp"
#include "redblue/schedules/ring/queries.hpp"
#include "redblue/schedules/ring/two_pass.hpp"
#include "redblue/schedules/sparse/backward.hpp"
#include "redblue/schedules/sparse/spilled.hpp"
#include "redblue/schedules/sparse/values.hpp"
#include "redblue/schedules/strips/backward.hpp"

namespace redblue::plan {

using namespace schedule;

void add_backward(Registry& registry) {
  registry.add(describe<FusedQueryOuterBackward>());
  registry.add(describe<FusedKeyOuterBackward>());
  registry.add(describe<TwoPassBackward>());
  registry.add(describe<SpilledBackward>());
  registry.add(describe<FusedValuesBackward>());
  registry.add(describe<MaterialisedBackward>());
  registry.add(describe<RingBackward>());
  registry.add(describe<RingQueriesBackward>());
  registry.add(describe<RingTwoPassBackward>());
  registry.add(describe<StripsBackward>());
  registry.add(describe<SparseBackward>());
  registry.add(describe<SparseValuesBackward>());
  registry.add(describe<SparseSpilledBackward>());
  registry.add(describe<GroupedKeyOuterBackward>());
  registry.add(describe<LinearBackward>());
  registry.add(describe<LinearTwoStateBackward>());
  registry.add(describe<LinearProductsBackward>());
}

}  // namespace redblue::plan
