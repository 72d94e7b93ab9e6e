#include "lists.hpp"
#include "redblue/describe.hpp"
#include "redblue/schedule/backward/fused_key_outer.hpp"
#include "redblue/schedule/backward/fused_query_outer.hpp"
#include "redblue/schedule/backward/fused_values.hpp"
#include "redblue/schedule/backward/grouped_key_outer.hpp"
#include "redblue/schedule/backward/linear.hpp"
#include "redblue/schedule/backward/linear_products.hpp"
#include "redblue/schedule/backward/materialised.hpp"
#include "redblue/schedule/backward/ring.hpp"
#include "redblue/schedule/backward/ring_queries.hpp"
#include "redblue/schedule/backward/ring_two_pass.hpp"
#include "redblue/schedule/backward/sparse.hpp"
#include "redblue/schedule/backward/sparse_spilled.hpp"
#include "redblue/schedule/backward/sparse_values.hpp"
#include "redblue/schedule/backward/spilled.hpp"
#include "redblue/schedule/backward/strips.hpp"
#include "redblue/schedule/backward/two_pass.hpp"

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
