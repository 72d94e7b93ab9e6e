#include "redblue/planner/plan_here.hpp"

#include "redblue/planner/fastest.hpp"
#include "redblue/threads/pool.hpp"

namespace redblue {

plan::Plan make_plan_here(const Problem& problem, const plan::Options& options, const RunHere& run) {
  const bool given = !run.hardware_file.empty();
  const bool from_file = given || has_hardware_file();
  TimeOptions time;
  time.hardware = given ? load_hardware(run.hardware_file) : this_machine();
  time.dtype = run.compute;
  time.tensors = run.tensors;
  time.threads = run.threads > 0 ? run.threads : default_pool().size();
  if (!given) time.isa = best_isa();
  plan::Plan plan = make_fastest_plan(problem, options, time);
  if (!from_file) plan.reason += " (this machine was measured in this process; redblue doctor keeps a measurement)";
  return plan;
}

}  // namespace redblue
