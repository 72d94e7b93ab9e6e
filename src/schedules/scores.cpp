#include "lists.hpp"
#include "redblue/describe.hpp"
#include "redblue/schedule/scores/sddmm.hpp"

namespace redblue::plan {

using namespace schedule;

void add_scores(Registry& registry) {
  registry.add(describe<ScoreMatrix>());
  registry.add(describe<WeightMatrix>());
}

}  // namespace redblue::plan
