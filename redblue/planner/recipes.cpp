#include "redblue/planner/recipes.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <type_traits>

#include "redblue/language/error.hpp"
#include "redblue/planner/classes.hpp"
#include "redblue/planner/modeller.hpp"
#include "redblue/planner/options.hpp"
#include "redblue/problem/cores.hpp"
#include "redblue/problem/options.hpp"

namespace redblue {

namespace {

template <class T>
void append(std::string& key, const T& x) {
  if constexpr (requires { x.has_value(); }) {
    append(key, x.has_value());
    if (x) append(key, *x);
  } else if constexpr (requires { x.size(); }) {
    append(key, static_cast<index_t>(x.size()));
    for (const auto& one : x) append(key, one);
  } else {
    static_assert(std::is_arithmetic_v<T> || std::is_enum_v<T>);
    key.append(reinterpret_cast<const char*>(&x), sizeof x);  // NOLINT(cppcoreguidelines-pro-type-reinterpret-cast)
  }
}

/// All that the choice depends on.
std::string key_of(const Problem& one, const plan::Options& options, const TimeOptions& time) {
  std::string key;
  option::for_each(problem_options(), [&](const auto& o) { append(key, o.of(one)); });
  append(key, options.M.str());
  append(key, options.quadratic_workspace);
  append(key, time.dtype);
  append(key, time.tensors);
  append(key, time.isa);
  append(key, time.threads);
  return key;
}

/// Do these options ask for nothing but M and workspace?
bool are_plain(const plan::Options& o) {
  const plan::Options plain;
  const bool words = std::ranges::all_of(o.width, [](index_t w) { return w == 0; });
  return !o.memory && o.reserve == 0 && !o.double_buffer && o.multiple.query == 1 && o.multiple.key == 1 &&
         o.multiple.feature == 1 && words && o.write_cost == 1 && o.schedule.empty() && !o.tiling && !o.cap &&
         o.registry == plain.registry;
}

/// The options for a plan with this schedule and these tiles.
plan::Options with_tiles(const plan::Options& given, std::string_view schedule, plan::Tiling tiling) {
  plan::Options o = given;
  o.schedule = schedule;
  o.tiling = std::move(tiling);
  return o;
}

/// For reasons: the machine, and what it is asked for.
std::string text_of(const TimeOptions& time, const plan::Options& options) {
  return fmt::format("{}, {} {}, {} thread{}, M = {}", time.hardware.cpu,
                     name_of(time.isa.value_or(model::largest_isa(time.hardware))), name_of(time.dtype), time.threads,
                     time.threads == 1 ? "" : "s", options.M.str());
}

plan::Plan usual_plan(const Problem& problem, const plan::Options& options, const TimeOptions& time);

/// The plan of a problem with a pattern in its own order of queries and keys, with the fastest of the usual schedules;
/// that of make_fastest_plan where none fits.
plan::Plan usual_in_order(const Problem& problem, const plan::Options& options, const TimeOptions& time) {
  plan::Options in_order = options;
  in_order.reorder = false;
  Problem alone = problem;
  alone.forward_given = true;
  const std::optional<Found> found = fastest_of(usual_contenders(alone, options, time), alone, in_order, time);
  plan::Plan plan = found ? plan::make_plan(alone, with_tiles(in_order, found->row.schedule, found->row.tiling))
                          : make_fastest_plan(problem, in_order, time);
  plan.options = options;
  if (!found) return plan;
  plan.problem = problem;
  plan.rows.front().time = found->row.time;
  if (problem.forward_first()) {
    const plan::Maker make = [&](const Problem& p, const plan::Options& o) { return usual_plan(p, o, time); };
    plan.forward = plan::forward_before(problem, options, make);
    plan::compare_rows(plan);
  }
  plan.reason = fmt::format("{}: {} ({}) with the tiles that take the least modelled time of {} that were tried",
                            text_of(time, options), found->row.algorithm->idea, found->row.schedule, found->tilings) +
                plan::note_of_order(problem);
  return plan;
}

/// The fastest of such plans in all orders that pay.
plan::Plan usual_plan(const Problem& problem, const plan::Options& options, const TimeOptions& time) {
  return in_fastest_order(problem, options, [&](const Problem& ordered, const plan::Options& o) {
    return usual_in_order(ordered, o, time);
  });
}

}  // namespace

/// Tiles for these sizes: of as many blocks as the class has, or as long, as far as the dimension goes.
plan::Tiling Recipes::Recipe::tiles_for(const Sizes& x) const {
  constexpr index_t kRows = 16;  // what kernels like
  plan::Tiling list = tiling;
  for (std::size_t i = 0; i < list.size(); ++i) {
    const auto along = schedule->tile_size(list[i].name).along;
    if (along != &Sizes::n_q && along != &Sizes::n_k) continue;
    const index_t n = x.*along;
    const index_t size = blocks[i] > 1 ? ceil_div(ceil_div(n, blocks[i]), kRows) * kRows : list[i].value;
    list[i].value = blocks[i] == 1 ? n : std::min(size, n);
  }
  return list;
}

/// A tile that spans the shortest lengths may span all of the class, or not, and where there are fewer heads than keep
/// all threads busy, queries may go in as many blocks as the shortest ones: whatever is fastest for the others.
void Recipes::Recipe::take(const plan::Row& row, const Problem& one, const plan::Options& options,
                           const TimeOptions& time) {
  schedule = row.algorithm;
  tiling = row.tiling;
  blocks.assign(tiling.size(), 0);
  const Sizes of_class = one.sizes();
  const bool few_heads = has_few_heads(one, time.threads);
  const std::vector<Problem> others = others_like(one);
  const CoreMemo memo;
  const std::optional<Sizes> longest = others.empty() ? std::nullopt : std::optional(others.back().sizes());
  std::vector<index_t> in_class = blocks;
  for (std::size_t i = 0; i < tiling.size(); ++i) {
    const auto along = schedule->tile_size(tiling[i].name).along;
    if (along != &Sizes::n_q && along != &Sizes::n_k) continue;
    if (longest && of_class.*along == (*longest).*along) continue;  // all of the class have one length here
    const index_t count = ceil_div(of_class.*along, std::max<index_t>(1, tiling[i].value));
    const bool shared = few_heads && along == &Sizes::n_q && count <= index_t{kHeadsOfThread} * time.threads;
    if (count == 1 || shared) in_class[i] = count;
  }
  if (others.empty()) blocks = in_class;
  if (others.empty() || std::ranges::all_of(in_class, [](index_t n) { return n == 0; })) return;
  std::vector<std::unique_ptr<Modeller>> modellers;
  modellers.reserve(others.size());
  for (const Problem& other : others) modellers.push_back(std::make_unique<Modeller>(other, options, time));
  std::optional<double> least;
  std::vector<index_t> best = in_class;
  const auto consider = [&](std::vector<index_t> some) {
    blocks = std::move(some);
    double seconds = 0;
    for (std::size_t k = 0; k < others.size(); ++k) {
      const Sizes x = others[k].sizes();
      const plan::Tiling tiles = tiles_for(x);
      if (!schedule->allows(x, tiles)) return;
      const std::vector<plan::Row> rows = plan::rows_that_fit(others[k], with_tiles(options, schedule->name, tiles), x);
      if (rows.empty()) return;
      const std::size_t operations = operations_that_tell(others[k], time.threads);
      seconds += modellers[k]->quick_time_of(rows.front(), operations, HUGE_VAL).total_s;
    }
    if (least && *least <= seconds) return;
    least = seconds;
    best = blocks;
  };
  consider(in_class);
  for (std::size_t i = 0; i < tiling.size(); ++i)
    if (in_class[i] != 0) {
      std::vector<index_t> without = best;
      without[i] = 0;
      consider(std::move(without));
    }
  blocks = least ? best : std::vector<index_t>(tiling.size(), 0);  // the longest do not fit into tiles that span them
}

std::size_t Recipes::size() const { return recipes_.size(); }

plan::Plan Recipes::plan(const Problem& problem, const plan::Options& options, const TimeOptions& time) {
  problem.validate();  // first: a class is that of sizes that make sense
  std::optional<Problem> one;
  if (are_plain(options)) one = class_of(problem, time.threads);
  plan::Options chosen = options;
  if (chosen.M == 0) chosen.M = fast_memory_of(time.hardware, time.dtype);
  if (!one && !problem.patterns.empty() && are_plain(options) && !usual_contenders(problem, chosen, time).empty()) {
    plan::Plan plan = usual_plan(problem, chosen, time);
    if (plan.rows.size() == 1) plan.rows.front().time.reset();  // short walks say which plan is faster, not its time
    return plan;
  }
  if (!one) return make_fastest_plan(problem, options, time);
  const std::shared_ptr<Recipe> recipe = recipes_.of(key_of(*one, chosen, time), most_);
  std::call_once(recipe->chosen, [&] {
    std::optional<Found> found = fastest_of(usual_contenders(*one, chosen, time), *one, chosen, time);
    if (!found) {
      const Problem of_kind = kind_of(*one, time.threads);
      const std::shared_ptr<Kind> kind = kinds_.of(key_of(of_kind, chosen, time), most_);
      std::call_once(kind->chosen, [&] { kind->contenders = contenders_for(of_kind, chosen, time); });
      found = fastest_of(kind->contenders, *one, chosen, time);
    }
    recipe->take(found ? found->row : make_fastest_plan(*one, chosen, time).row(), *one, chosen, time);
  });
  Problem alone = problem;
  alone.forward_given = true;
  const plan::Schedule& schedule = *recipe->schedule;
  const Sizes x = alone.sizes();
  const plan::Tiling tiles = recipe->tiles_for(x);
  if (schedule.obstacle(alone, x) || !schedule.allows(x, tiles)) return make_fastest_plan(problem, options, time);
  plan::Plan plan = plan::make_plan(alone, with_tiles(chosen, schedule.name, tiles));
  plan.problem = problem;
  plan.options = chosen;
  if (!plan.row().fits || !plan.may_choose(plan.row())) return make_fastest_plan(problem, options, time);
  if (problem.forward_first()) {
    const plan::Maker make = [&](const Problem& p, const plan::Options& o) { return this->plan(p, o, time); };
    plan.forward = plan::forward_before(problem, chosen, make);
    plan::compare_rows(plan);
  }
  plan.reason = fmt::format(
      "{}: {} ({}) with the tiles that take the least modelled time for n_q = {}, n_k = {}, which stand for these "
      "lengths",
      text_of(time, plan.options), schedule.idea, schedule.name, one->n_q, one->n_k);
  if (const std::string_view caveat = schedule.caveat(x, tiles); !caveat.empty())
    plan.reason += fmt::format("; {}", caveat);
  return plan;
}

}  // namespace redblue
