#include "compiled.hpp"
#include "lists.hpp"
#include "redblue/schedule/scores/sddmm.hpp"

namespace redblue::plan {

using namespace schedule;

void add_scores(Registry& registry) {
  registry.add(describe_fast<ScoreMatrix>());
  registry.add(describe_fast<WeightMatrix>());
}

}  // namespace redblue::plan
