#include "redblue/runtime/outline.hpp"

#include "redblue/planner/run_on.hpp"
#include "redblue/planner/widths.hpp"
#include "redblue/runtime/run.hpp"

namespace redblue {

std::vector<machine::OutlineLine> outline(const plan::Plan& plan) { return outline(plan, machine::Scratch::resident); }

std::vector<machine::OutlineLine> outline(const plan::Plan& plan, machine::Scratch scratch) {
  const plan::Instances x = plan.counted();
  using Sample = machine::Outliner::Sample;
  machine::WordBytes bytes;
  if (plan::minimises_bytes(plan.options))
    for (const SlowArray a : plan::arrays_of(plan.problem.op)) {
      bytes.read[index_of(a)] = plan::unfinished_width(plan.options, plan.problem.op, a);
      bytes.written[index_of(a)] = plan.options.width[index_of(a)];
    }
  const auto walk = [&](Sample sample) {
    machine::Outliner outliner(x.sizes.fast, bytes, sample, scratch);
    machine::Any any(outliner);
    run_on(any, plan, x);
    return outliner;
  };
  // The sum shows whether the rounds left out were like the others. Under a pattern hardly any are.
  if (x.sizes.sequences == nullptr)
    if (machine::Outliner outliner = walk(x.sizes.mask.full() ? Sample::few : Sample::unlike);
        outliner.io() == plan.row().io)
      return outliner.lines();
  return walk(Sample::all).lines();
}

}  // namespace redblue
