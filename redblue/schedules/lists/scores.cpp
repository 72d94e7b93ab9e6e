#include "redblue/schedules/describe.hpp"
#include "redblue/schedules/lists/lists.hpp"
#include "redblue/schedules/scores/sddmm.hpp"

namespace redblue::plan {

using namespace schedule;

void add_scores(Registry& registry) {
  registry.add(describe<ScoreMatrix>());
  registry.add(describe<WeightMatrix>());
}

}  // namespace redblue::plan
