#include "redblue/machines/outline.hpp"

#include "redblue/planner/run_on.hpp"
#include "redblue/runtime/run.hpp"

namespace redblue {

std::vector<machine::OutlineLine> outline(const plan::Plan& plan) {
  const plan::Instances x = plan.counted();
  const auto walk = [&](bool sampled) {
    machine::Outliner outliner(x.sizes.fast, sampled);
    machine::Any any(outliner);
    run_on(any, plan, x);
    return outliner;
  };
  // Under a mask no round is like another; without one the sum shows whether the rounds left out were like the others.
  if (x.sizes.mask.full() && x.sizes.sequences == nullptr)
    if (machine::Outliner outliner = walk(true); outliner.io() == plan.row().io) return outliner.lines();
  return walk(false).lines();
}

}  // namespace redblue
