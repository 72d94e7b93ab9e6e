#include "redblue/plan/planner.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <tuple>

#include "redblue/bound/forward.hpp"
#include "redblue/core/error.hpp"

namespace redblue::plan {

namespace {

void validate(const Options& o) {
  const auto require_positive = [](std::string_view name, index_t value) {
    if (value < 1) throw InvalidProblem(fmt::format("{} = {}: give 1 or more", name, value));
  };
  if (o.M < 1) throw InvalidProblem(fmt::format("M = {}: fast memory needs at least one word", o.M.str()));
  if (o.reserve < 0) throw InvalidProblem(fmt::format("reserve = {}: give 0 or more words", o.reserve.str()));
  require_positive("multiple of queries", o.multiple.query);
  require_positive("multiple of keys", o.multiple.key);
  require_positive("multiple of features", o.multiple.feature);
  if (!(o.write_cost >= 0 && o.write_cost <= 1e6))
    throw InvalidProblem(fmt::format("write cost = {}: give a number from 0 to 1000000", o.write_cost));
  const bool words = std::all_of(o.width.begin(), o.width.end(), [](index_t w) { return w == 0; });
  for (std::size_t a = 0; a < kSlowArrays; ++a)
    if (o.width[a] < 1 && !words)
      throw InvalidProblem(fmt::format("width of {} = {} bytes: give 1 or more", kSlowArrayNames[a], o.width[a]));
}

bool in_bytes(const Options& o) {
  return std::any_of(o.width.begin(), o.width.end(), [](index_t w) { return w > 0; });
}

Words width(const Options& o, std::size_t array) { return in_bytes(o) ? o.width[array] : 1; }

schedule::Limits limits_of(const Options& o) {
  schedule::Limits limits;
  limits.M = o.M;
  limits.reserve = o.reserve;
  limits.double_buffer = o.double_buffer;
  limits.multiple = o.multiple;
  const auto write = static_cast<index_t>(std::llround(o.write_cost * kCostUnit));
  for (std::size_t a = 0; a < kSlowArrays; ++a) {
    limits.price.read[a] = width(o, a) * kCostUnit;
    limits.price.write[a] = width(o, a) * write;
  }
  return limits;
}

/// The least M for which S has a tiling: at most what its smallest tiles occupy. None if no M will do (one column of
/// values cannot be split).
template <class S>
std::optional<Words> least_memory(const schedule::ForwardShape& x, schedule::Limits limits) {
  const auto tiles = S::smallest(x, limits.multiple);
  Words too_small = 0, enough = limits.occupied(S::footprint(x, tiles), S::prefetch(x, tiles));
  const auto works = [&](Words M) {
    limits.M = M;
    return S::choose_tiling(x, limits).has_value();
  };
  if (!works(enough)) return std::nullopt;
  while (enough - too_small > 1) {
    const Words middle = too_small + (enough - too_small) / 2;
    (works(middle) ? enough : too_small) = middle;
  }
  return enough;
}

template <class S>
void consider(Plan& plan, const schedule::ForwardShape& x, const schedule::Limits& limits) {
  const Options& o = plan.options;
  if (!o.schedule.empty() && o.schedule != S::name) return;
  if (x.mask.causal && !S::masks) {
    plan.refused.push_back({S::name, "knows no causal mask (flash, flash_tiled and column_split do)", std::nullopt});
    return;
  }
  if (!o.quadratic_workspace && S::workspace(x) >= x.N()) {
    plan.refused.push_back(
        {S::name, fmt::format("needs {} words of workspace for scores", S::workspace(x).str()), std::nullopt});
    return;
  }
  const auto tiling = S::choose_tiling(x, limits);
  if (!tiling) {
    const auto least = least_memory<S>(x, limits);
    plan.refused.push_back(
        {S::name, least ? fmt::format("needs M >= {}", least->str()) : "has no tiling for these sizes, whatever M",
         least});
    return;
  }
  const Words instances = plan.problem.instances();
  Row row;
  row.schedule = S::name;
  row.stable = S::stable;
  row.choice = Choice<S>{*tiling};
  row.tiling = tiling->knobs();
  row.io = instances * S::io(x, *tiling);
  row.footprint = S::footprint(x, *tiling);
  row.prefetch = o.double_buffer ? S::prefetch(x, *tiling) : Words(0);
  row.workspace = S::workspace(x);
  row.flops = instances * 2 * S::macs(x, *tiling);
  row.cost = limits.price.of(row.io);
  if (in_bytes(o)) {
    Words bytes;
    for (std::size_t a = 0; a < kSlowArrays; ++a) bytes += width(o, a) * (row.io.reads[a] + row.io.writes[a]);
    row.bytes = bytes;
  }
  if (plan.bound.words > 0) row.ratio = row.io.total().to_double() / plan.bound.words.to_double();
  plan.rows.push_back(std::move(row));
}

[[noreturn]] void throw_nothing_fits(const Plan& plan) {
  std::string list;
  std::optional<Words> least;
  for (const Refusal& r : plan.refused) {
    list += fmt::format("\n  {}: {}", r.schedule, r.why);
    if (r.smallest_M && (!least || *r.smallest_M < *least)) least = r.smallest_M;
  }
  if (!least) throw Unsupported(fmt::format("no schedule can do this:{}", list));
  throw CapacityError(fmt::format("M = {} words is too small; the smallest that works is {}:{}", plan.options.M.str(),
                                  least->str(), list),
                      *least, plan.options.M);
}

/// What a schedule does, in a few words.
std::string_view idea_of(std::string_view schedule) {
  if (schedule == "flash") return "keeping a block of queries resident";
  if (schedule == "flash_pinned") return "keeping queries resident and some keys pinned";
  if (schedule == "column_split") return "keeping queries resident for one group of value columns at a time";
  if (schedule == "key_outer") return "keeping keys and values resident";
  if (schedule == "small_cache") return "materialising scores once";
  if (schedule == "score_tiles") return "keeping a tile of scores resident";
  if (schedule == "flash_tiled") return "keeping blocks of queries, keys and values resident";
  if (schedule == "naive") return "three passes through slow memory";
  return "the printed three-tile algorithm";
}

/// Which of the two great families? Their turn is at M = d^2.
bool keeps_scores_only(std::string_view schedule) {
  return schedule == "small_cache" || schedule == "score_tiles" || schedule == "naive";
}

std::string reason(const Plan& plan) {
  const Row& best = plan.row();
  const double d = static_cast<double>(plan.problem.d);
  const std::string where = fmt::format("M = {:.3g} d^2", plan.options.M.to_double() / (d * d));
  if (!plan.options.schedule.empty()) return fmt::format("{}: {} was asked for", where, best.schedule);
  const bool priced = in_bytes(plan.options) || plan.options.write_cost != 1;
  std::string text = fmt::format("{}: {} ({}) {}", where, idea_of(best.schedule), best.schedule,
                                 priced ? "costs least at the given widths and write cost" : "moves the fewest words");
  if (best.ratio && *best.ratio <= 1)
    text += ", the proven bound itself";
  else if (best.ratio && *best.ratio < 1.1)
    text += fmt::format(", within {:.1f} % of the proven bound", 100 * (*best.ratio - 1));
  // The cheapest plan of the other family says most; failing that, the runner-up.
  const Row* rival = nullptr;
  for (const Row& r : plan.rows) {
    if (!r.stable || &r == &best) continue;
    const bool other = keeps_scores_only(r.schedule) != keeps_scores_only(best.schedule);
    const bool had_other = rival != nullptr && keeps_scores_only(rival->schedule) != keeps_scores_only(best.schedule);
    if (rival == nullptr || (other && !had_other)) rival = &r;
  }
  if (rival == nullptr) return text + "; nothing else fits";
  if (rival->cost == best.cost)
    return text + fmt::format("; {} ({}) does as well", idea_of(rival->schedule), rival->schedule);
  return text + fmt::format("; {} ({}) would {} {:.2f}x as {}", idea_of(rival->schedule), rival->schedule,
                            priced ? "cost" : "move", rival->cost.to_double() / best.cost.to_double(),
                            priced ? "much" : "many");
}

}  // namespace

Plan make_plan(const Problem& problem, const Options& options) {
  problem.validate();
  validate(options);
  const auto names = schedule_names();
  if (!options.schedule.empty() && std::find(names.begin(), names.end(), options.schedule) == names.end())
    throw InvalidProblem(
        fmt::format("no schedule is called '{}': choose from {}", options.schedule, fmt::join(names, ", ")));
  Plan plan;
  plan.problem = problem;
  plan.options = options;
  plan.bounds = bound::forward_bounds(problem.bound_problem(options.M));
  plan.bound = bound::best(plan.bounds);
  const schedule::ForwardShape x = problem.shape();
  const schedule::Limits limits = limits_of(options);
  ForwardSchedules::for_each([&]<class S>(Choice<S>) { consider<S>(plan, x, limits); });
  std::stable_sort(plan.rows.begin(), plan.rows.end(), [](const Row& a, const Row& b) {
    return std::make_tuple(a.cost, a.io.total_writes(), a.flops) <
           std::make_tuple(b.cost, b.io.total_writes(), b.flops);
  });
  const auto chosen = std::find_if(plan.rows.begin(), plan.rows.end(),
                                   [&](const Row& r) { return r.stable || r.schedule == options.schedule; });
  if (chosen == plan.rows.end()) throw_nothing_fits(plan);
  plan.chosen = static_cast<std::size_t>(chosen - plan.rows.begin());
  plan.reason = reason(plan);
  return plan;
}

std::vector<std::string_view> schedule_names() {
  std::vector<std::string_view> names;
  ForwardSchedules::for_each([&]<class S>(Choice<S>) { names.push_back(S::name); });
  return names;
}

}  // namespace redblue::plan
