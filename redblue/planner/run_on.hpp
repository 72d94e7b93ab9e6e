#pragma once
#include "redblue/machines/any.hpp"
#include "redblue/planner/planner.hpp"
#include "redblue/problem/sequences.hpp"

/// The chosen schedule of a plan on a machine.
namespace redblue {

/// The chosen row with its tiles on any machine, once for each of these instances.
inline void run_on(machine::Any& m, const plan::Plan& plan, const plan::Instances& instances) {
  plan.row().algorithm->run(m, instances, plan.row().tiling);
}
/// Once for each batch and key-value head.
inline void run_on(machine::Any& m, const plan::Plan& plan) { run_on(m, plan, plan.instances()); }

/// One of the plan's instances; where batches differ, one of each. Others differ only in where their arrays begin.
inline plan::Instances unlike_instances(const plan::Plan& plan) {
  plan::Instances x = plan.instances();
  x.count = batches_of(x.sizes);
  x.sizes.modifiers.kv_heads = 1;
  return x;
}

}  // namespace redblue
