#include "compiled.hpp"
#include "lists.hpp"
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
  registry.add(describe_fast<FusedQueryOuterBackward>());
  registry.add(describe_fast<FusedKeyOuterBackward>());
  registry.add(describe_fast<TwoPassBackward>());
  registry.add(describe_fast<SpilledBackward>());
  registry.add(describe_fast<FusedValuesBackward>());
  registry.add(describe_fast<MaterialisedBackward>());
  registry.add(describe_fast<RingBackward>());
  registry.add(describe_fast<RingQueriesBackward>());
  registry.add(describe<RingTwoPassBackward>());
  registry.add(describe<StripsBackward>());
  registry.add(describe<SparseBackward>());
  registry.add(describe<SparseValuesBackward>());
  registry.add(describe<SparseSpilledBackward>());
  registry.add(describe_fast_large<GroupedKeyOuterBackward>());
  registry.add(describe_fast<LinearBackward>());
  registry.add(describe_fast<LinearTwoStateBackward>());
  registry.add(describe_fast<LinearProductsBackward>());
}

}  // namespace redblue::plan
