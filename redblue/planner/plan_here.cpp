#include "redblue/planner/plan_here.hpp"

#include <pthread.h>

#include <algorithm>
#include <utility>

#include "redblue/planner/recipes.hpp"
#include "redblue/threads/pool.hpp"

namespace redblue {

namespace {

/// The recipes of this process, never destroyed, as threads may plan until it ends. A child of fork() begins with none:
/// a thread of the parent may have held their lock.
Recipes*& current() {
  static auto* recipes = new Recipes;
  return recipes;
}
Recipes& recipes_here() {
  static const int watched = pthread_atfork(nullptr, nullptr, [] { current() = new Recipes; });
  static_cast<void>(watched);
  return *current();
}

struct Asked {
  TimeOptions time;
  bool given, from_file;

  explicit Asked(const RunHere& run) : given(!run.hardware_file.empty()), from_file(given || has_hardware_file()) {
    time.hardware = given ? load_hardware(run.hardware_file) : this_machine();
    time.dtype = run.compute;
    time.tensors = run.tensors;
    time.threads = run.threads > 0 ? run.threads : default_pool().size();
    if (!given) time.isa = best_isa();
  }
  plan::Plan said(plan::Plan plan) const {
    if (!from_file) plan.reason += " (this machine was measured in this process; redblue doctor keeps a measurement)";
    return plan;
  }
};

}  // namespace

plan::Plan make_plan_here(const Problem& problem, const plan::Options& options, const RunHere& run) {
  const Asked asked(run);
  return asked.said(asked.given ? make_fastest_plan(problem, options, asked.time)
                                : recipes_here().plan(problem, options, asked.time));
}

plan::Plan with_time_here(plan::Plan plan, const RunHere& run) {
  plan::Row& row = plan.rows[plan.chosen];
  if (row.time) return plan;
  const std::shared_ptr<const plan::Plan> forward = std::exchange(plan.forward, nullptr);
  row.time = modelled_time(plan, Asked(run).time);
  plan.forward = forward;
  return plan;
}

plan::Plan make_table_here(const Problem& problem, const plan::Options& options, const RunHere& run) {
  plan::Plan plan = make_plan_here(problem, options, run);
  if (plan.row().time) return plan;
  plan::Plan all = make_fastest_plan(problem, options, Asked(run).time);
  plan = with_time_here(std::move(plan), run);
  plan::Row chosen = std::exchange(plan.rows, {}).front();
  std::erase_if(all.rows, [&](const plan::Row& r) { return r.schedule == chosen.schedule; });
  plan.rows = std::move(all.rows);
  plan.rows.insert(plan.rows.begin(), std::move(chosen));
  plan.refused = std::move(all.refused);
  plan::compare_rows(plan);
  return plan;
}

}  // namespace redblue
