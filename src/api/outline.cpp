#include "redblue/machine/outline.hpp"

#include "engine.hpp"

namespace redblue {

std::vector<machine::OutlineLine> outline(const plan::Plan& plan) {
  const plan::Instances x = plan.counted();
  // Under a mask no round is like another.
  for (const bool sampled : {true, false}) {
    if (sampled && x.sizes.mask.causal) continue;
    machine::Outliner outliner(x.sizes.fast, sampled);
    machine::Any any(outliner);
    run_on(any, plan, x);
    if (!sampled || outliner.io() == plan.row().io) return outliner.lines();
  }
  return {};
}

}  // namespace redblue
