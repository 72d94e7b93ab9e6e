#include "redblue/schedules/merge/merge.hpp"

#include "redblue/schedules/describe.hpp"
#include "redblue/schedules/lists/lists.hpp"

namespace redblue::plan {

void add_merge(Registry& registry) { registry.add(describe<schedule::MergeStates>()); }

}  // namespace redblue::plan
