#include "redblue/planner/plan_here.hpp"

#include <pthread.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "redblue/planner/recipes.hpp"
#include "redblue/threads/pool.hpp"
#include "redblue/threads/worth.hpp"

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

/// What any schedule computes for such a problem, or less; nothing where that is not known in a moment.
std::optional<Words> least_flops(const Problem& p) {
  const bool backward = p.op == Operation::backward;
  if (!(backward || p.op == Operation::forward) || !p.patterns.empty() || p.approximation != nullptr) return {};
  const Sizes x = p.sizes();
  const index_t columns = backward ? 3 * p.d + 2 * p.d_v : p.d + p.d_v;
  return Words(2) * visible_pairs(x) * (p.instances() / batches_of(x)) * columns;
}

struct Asked {
  TimeOptions time;
  bool given, from_file, exactly;

  explicit Asked(const RunHere& run)
      : given(!run.hardware_file.empty()),
        from_file(given || has_hardware_file()),
        exactly(run.threads > 0 && !run.at_most) {
    time.hardware = given ? load_hardware(run.hardware_file) : this_machine();
    time.dtype = run.compute;
    time.tensors = run.tensors;
    time.threads = run.threads > 0 ? run.threads : default_pool().size();
    if (!given) time.isa = best_isa();
  }
  /// What is asked for where a run computes so much.
  Asked worth(Words flops) const {
    Asked asked = *this;
    if (!exactly) asked.time.threads = threads::worth(flops, time.threads);
    return asked;
  }
  plan::Plan plan(const Problem& problem, const plan::Options& options) const {
    plan::Plan plan = given ? make_fastest_plan(problem, options, time) : recipes_here().plan(problem, options, time);
    if (!from_file) plan.reason += " (this machine was measured in this process; redblue doctor keeps a measurement)";
    return plan;
  }
};

}  // namespace

plan::Plan make_plan_here(const Problem& problem, const plan::Options& options, const RunHere& run) {
  problem.validate();  // first: flops are those of sizes that make sense
  const Asked all(run);
  const std::optional<Words> flops = all.time.threads > 1 ? least_flops(problem) : std::nullopt;
  const Asked some = flops ? all.worth(*flops) : all;
  plan::Plan plan = some.plan(problem, options);
  const Asked run_with = all.worth(plan.row().flops);  // its tiles may compute more than what the mask shows
  if (run_with.time.threads <= some.time.threads) return plan;
  plan::Plan again = run_with.plan(problem, options);
  return all.worth(again.row().flops).time.threads < run_with.time.threads ? plan : again;
}

plan::Plan with_time_here(plan::Plan plan, const RunHere& run) {
  plan::Row& row = plan.rows[plan.chosen];
  if (row.time) return plan;
  const std::shared_ptr<const plan::Plan> forward = std::exchange(plan.forward, nullptr);
  row.time = modelled_time(plan, Asked(run).worth(row.flops).time);
  plan.forward = forward;
  return plan;
}

plan::Plan make_table_here(const Problem& problem, const plan::Options& options, const RunHere& run) {
  plan::Plan plan = make_plan_here(problem, options, run);
  if (plan.row().time) return plan;
  plan::Plan all = make_fastest_plan(problem, options, Asked(run).worth(plan.row().flops).time);
  plan = with_time_here(std::move(plan), run);
  plan::Row chosen = std::exchange(plan.rows, {}).front();
  std::erase_if(all.rows, [&](const plan::Row& r) { return r.schedule == chosen.schedule; });
  plan.rows = std::move(all.rows);
  plan.rows.insert(plan.rows.begin(), std::move(chosen));
  plan.refused = std::move(all.refused);
  plan.dense = std::move(all.dense);
  plan::compare_rows(plan);
  return plan;
}

}  // namespace redblue
