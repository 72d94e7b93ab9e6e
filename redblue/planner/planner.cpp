#include "redblue/planner/planner.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <span>
#include <tuple>

#include "redblue/language/error.hpp"
#include "redblue/language/nearest.hpp"
#include "redblue/planner/considered.hpp"
#include "redblue/planner/options.hpp"
#include "redblue/planner/reasons.hpp"
#include "redblue/planner/widths.hpp"
#include "redblue/problem/cores.hpp"
#include "redblue/schedules/parts/modifiers.hpp"

namespace redblue::plan {

namespace {

/// The least and the largest width of a word that may be resident.
std::pair<index_t, index_t> widths(const ByteMemory& m, Operation op) {
  index_t least = 255, most = 1;
  for (const SlowArray a : arrays_of(op)) {
    least = std::min<index_t>(least, m.fast.width[index_of(a)]);
    most = std::max<index_t>(most, m.fast.width[index_of(a)]);
  }
  return {least, most};
}

void validate(const Options& o, Operation op) {
  const auto require_positive = [](std::string_view name, index_t value) {
    if (value < 1) throw InvalidProblem(fmt::format("{} = {}: give 1 or more", name, value));
  };
  if (o.memory) {
    if (o.memory->bytes < 1)
      throw InvalidProblem(fmt::format("fast memory of {} bytes: give 1 or more", o.memory->bytes.str()));
    for (const SlowArray a : arrays_of(op))
      require_positive(fmt::format("bytes of a resident word of {}", name_of(a)), o.memory->fast.width[index_of(a)]);
    require_positive("the multiple that rows are padded to", o.memory->fast.row_multiple);
    if (const index_t least = widths(*o.memory, op).first; o.memory->bytes < least)
      throw InvalidProblem(fmt::format("fast memory of {} bytes holds no word of {}", o.memory->bytes.str(), least));
  }
  if (!o.memory && o.M < 1) throw InvalidProblem(fmt::format("M = {}: fast memory needs at least one word", o.M.str()));
  option::require_allowed(plan_options(), o);
  require_positive("multiple of queries", o.multiple.query);
  require_positive("multiple of keys", o.multiple.key);
  require_positive("multiple of features", o.multiple.feature);
  if (o.cap && o.cap->most < 1)
    throw InvalidProblem(fmt::format("max_workspace = {}: give 1 byte or more", o.cap->most.str()));
  if (o.tiling && o.schedule.empty()) throw InvalidProblem("a tiling is of one schedule: give its name, too");
  if (std::ranges::all_of(o.width, [](index_t w) { return w == 0; })) return;
  for (const SlowArray a : arrays_of(op))
    if (o.width[index_of(a)] < 1)
      throw InvalidProblem(
          fmt::format("width of {} = {} bytes: give 1 or more", redblue::name_of(a), o.width[index_of(a)]));
}

schedule::Limits limits_of(const Options& o, Operation op) {
  schedule::Limits limits;
  limits.M = o.memory ? o.memory->bytes : o.M;
  limits.reserve = o.memory ? o.reserve * widths(*o.memory, op).second : o.reserve;
  limits.double_buffer = o.double_buffer;
  limits.multiple = o.multiple;
  limits.price = prices_of(o, op);
  return limits;
}

void require_tiling(const Schedule& s, const Sizes& x, const Tiling& tiling) {
  for (const schedule::TileSize& k : tiling)
    if (const index_t least = s.tile_size(k.name).least; k.value < least)
      throw InvalidProblem(fmt::format("{} = {} of {}: give {} or more", k.name, k.value, s.name, least));
  if (!s.allows(x, tiling)) throw InvalidProblem(fmt::format("{} cannot run with {}", s.name, text_of(tiling)));
}

/// The least M for which a schedule has a tiling: at most what its smallest tiles occupy. The result is empty if no M
/// will do (one column of values cannot be split).
std::optional<Words> least_memory(const Schedule& s, const Sizes& x, schedule::Limits limits) {
  const Tiling tiles = s.smallest(x, limits.multiple);
  Words too_small = 0, enough = limits.occupied(s.footprint(x, tiles), s.prefetch(x, tiles));
  const auto works = [&](Words M) {
    limits.M = M;
    return s.choose(x, limits).has_value();
  };
  if (!works(enough)) return std::nullopt;
  // Seldom does less do than the smallest tiles occupy: just below is looked first, then further and further down.
  // Where pairs are listed, only some tiles are tried, and less may do where a little less does not.
  for (Words step = 1; too_small == 0 && enough > 1 && !s.traits.lists_pairs; step = 2 * step) {
    const Words below = std::max(Words(1), enough - step);
    (works(below) ? enough : too_small) = below;
  }
  while (enough - too_small > 1) {
    const Words middle = too_small + (enough - too_small) / 2;
    (works(middle) ? enough : too_small) = middle;
  }
  return enough;
}

std::optional<std::string> obstacle(const Schedule& s, const Plan& plan, const Sizes& x) {
  if (auto why = s.obstacle(plan.problem, x)) return why;
  if (!plan.options.quadratic_workspace && s.has_quadratic_workspace())
    return fmt::format("needs {} words of workspace for scores",
                       s.workspace_words(x, s.smallest(x, plan.options.multiple)).str());
  return std::nullopt;
}

Row row_of(const Plan& plan, std::shared_ptr<const Schedule> schedule, const Tiling& tiling, const Sizes& x,
           const schedule::Limits& limits) {
  const Schedule& s = *schedule;
  Row row;
  row.schedule = s.name;
  row.algorithm = std::move(schedule);
  row.tiling = tiling;
  row.io = schedule::of_instances(x, s.io(x, tiling), plan.problem.instances());
  const auto held = [&](const Sizes& sizes) {
    return std::pair(s.footprint(sizes, tiling), limits.double_buffer ? s.prefetch(sizes, tiling) : Words(0));
  };
  const auto [footprint, prefetch] = held(x);
  row.fits = limits.fit(footprint, prefetch);
  row.footprint = footprint, row.prefetch = prefetch;
  if (plan.options.memory) {
    row.footprint_bytes = footprint, row.prefetch_bytes = prefetch;
    Sizes in_words = x;
    in_words.fast = {};
    std::tie(row.footprint, row.prefetch) = held(in_words);
  }
  row.index = s.index(x, tiling);
  row.index.reads = Words(plan.problem.instances() / batches_of(x)) * row.index.reads;
  row.workspace = s.workspace_words(x, tiling) + unfinished_words(row, plan.options, x);
  row.flops = Words(plan.problem.instances() / batches_of(x)) * 2 * s.macs(x, tiling);
  row.cost = limits.price.of(row.io);
  if (x.approximation != nullptr) row.weight_error = x.approximation->weight_error().value_or(0);
  if (has_widths(plan.options)) row.bytes = bytes_of(row.io, plan.options, s.operation).total();
  return row;
}

/// Leaves out schedules that are listed only where they are chosen.
void leave_out_special(Plan& plan, const Sizes& x, std::vector<Row>::iterator& chosen) {
  if (!plan.options.schedule.empty()) return;
  const std::string_view name = chosen->schedule;
  std::erase_if(plan.rows, [&](const Row& r) { return is_special(r.algorithm->traits, x) && r.schedule != name; });
  std::erase_if(plan.refused, [&](const Refusal& r) {
    return is_special(plan.options.registry->find(plan.problem.op, r.schedule)->traits, x);
  });
  chosen = std::ranges::find(plan.rows, name, &Row::schedule);
}

/// The row with these tiles, taken from those that are known if one of them has them.
Row known_or_new(const Plan& plan, const std::shared_ptr<const Schedule>& schedule, const Tiling& tiling,
                 const Sizes& x, const schedule::Limits& limits, std::span<const Row> known) {
  for (const Row& r : known)
    if (r.algorithm == schedule && r.tiling == tiling) {
      Row row = r;
      row.fits = limits.fit(row.footprint_bytes.value_or(row.footprint), row.prefetch_bytes.value_or(row.prefetch));
      return row;
    }
  return row_of(plan, schedule, tiling, x, limits);
}

/// Adds the schedule to the rows of the plan, or to what is refused.
void consider(Plan& plan, const std::shared_ptr<const Schedule>& schedule, const Sizes& x,
              const schedule::Limits& limits, PairLists lists, std::span<const Row> known) {
  const Options& o = plan.options;
  const Schedule& s = *schedule;
  if (o.schedule.empty() && !is_for(s, x, limits.M - limits.reserve, lists)) return;
  if (const auto why = obstacle(s, plan, x)) {
    plan.refused.push_back({s.name, *why, std::nullopt});
    return;
  }
  if (o.tiling) require_tiling(s, x, *o.tiling);
  const auto tiling = o.tiling ? o.tiling : s.choose(x, limits);
  if (!tiling) return plan.refused.push_back({s.name, {}, std::nullopt});  // say_what_is_needed
  Row row = known_or_new(plan, schedule, *tiling, x, limits, known);
  if (auto refusal = beyond_cap(plan, row))
    plan.refused.push_back(std::move(*refusal));
  else
    plan.rows.push_back(std::move(row));
}

/// Tells each schedule that has no tiling under this M the least that would do. To find it takes many choices of tiles,
/// so it is found only for a plan that somebody sees.
void say_what_is_needed(Plan& plan) {
  const Sizes x = plan.sizes();
  const schedule::Limits limits = limits_of(plan.options, plan.problem.op);
  for (Refusal& r : plan.refused) {
    if (!r.why.empty()) continue;
    r.smallest_M = least_memory(*plan.options.registry->find(plan.problem.op, r.schedule), x, limits);
    r.why = !r.smallest_M         ? "has no tiling for these sizes, whatever M"
            : plan.options.memory ? fmt::format("needs {} bytes of fast memory", r.smallest_M->str())
                                  : fmt::format("needs M >= {}", r.smallest_M->str());
  }
}

}  // namespace

bool is_priced(const Options& o) { return minimises_bytes(o) || o.write_cost != 1; }
Words cost_of(const Io& io, const Options& o, Operation op) { return limits_of(o, op).price.of(io); }

Residence residence_of(Operation op, DType operand, DType accumulator) {
  Residence fast;
  fast.width.fill(static_cast<std::uint8_t>(size_of(accumulator)));
  for (const SlowArray a : inputs_of(op))
    if (a != SlowArray::O && !is_statistic(a)) fast.width[index_of(a)] = static_cast<std::uint8_t>(size_of(operand));
  return fast;
}

Sizes sizes_of(const Problem& problem, const Options& options) {
  Sizes x = problem.sizes();
  if (options.memory) x.fast = options.memory->fast;
  return x;
}

Sizes Plan::sizes() const { return sizes_of(problem, options); }

bound::AttentionProblem bound_problem(const Problem& problem, const Options& options) {
  validate(options, problem.op);
  if (!options.memory) return bound_problem(problem, options.M);
  const ByteMemory& memory = *options.memory;
  bound::AttentionProblem x = bound_problem(problem, memory.bytes / widths(memory, problem.op).first);
  x.bytes = memory.bytes;
  x.fast = memory.fast;
  return x;
}

namespace {

/// Without a pattern lists of pairs are chosen only where they save 2 %: their kernels are portable code.
bool saves_enough(const Words& with_lists, const Words& others) {
  constexpr double kWorth = 0.98;
  return with_lists.to_double() <= kWorth * others.to_double();
}

/// Can no tiling of this schedule, which lists pairs without a pattern, save enough? Then nobody would see its row.
bool saves_nothing(const Plan& plan, const Schedule& s, const Sizes& x, const schedule::Limits& limits) {
  if (s.least_io == nullptr) return false;
  std::optional<Words> others;
  for (const Row& r : plan.rows)
    if (plan.may_choose(r) && !r.algorithm->traits.lists_pairs && (!others || r.cost < *others)) others = r.cost;
  const Io least = schedule::of_instances(x, s.least_io(x), plan.problem.instances());
  return others && !saves_enough(limits.price.of(least), *others);
}

/// A plan with nothing but its rows, cheapest first, and what is refused, under options that were validated.
Plan plan_of_rows(const Problem& problem, const Options& options, const Sizes& x, PairLists lists,
                  std::span<const Row> known = {}) {
  Plan plan;
  plan.problem = problem;
  plan.options = options;
  const schedule::Limits limits = limits_of(options, problem.op);
  if (!options.schedule.empty()) {
    const auto named = options.registry->find(problem.op, options.schedule);
    if (named == nullptr)
      throw InvalidProblem(fmt::format("no schedule of operation {} is called '{}': {}", name_of(problem.op),
                                       options.schedule,
                                       choice(options.schedule, options.registry->names(problem.op))));
    consider(plan, named, x, limits, lists, known);
    return plan;
  }
  const auto schedules = options.registry->of(problem.op);
  // Lists of pairs without a pattern come last: they take long to try, and seldom pay.
  const auto is_last = [&](const Schedule& s) { return s.traits.lists_pairs && !has_pattern(x); };
  for (const bool last : {false, true})
    for (const auto& schedule : schedules)
      if (is_last(*schedule) == last && !(last && saves_nothing(plan, *schedule, x, limits)))
        consider(plan, schedule, x, limits, lists, known);
  const auto place = [&](std::string_view name) {
    return std::ranges::find_if(schedules, [&](const auto& s) { return s->name == name; }) - schedules.begin();
  };
  std::ranges::sort(plan.refused, {}, [&](const Refusal& r) { return place(r.schedule); });
  std::ranges::sort(plan.rows, {}, [&](const Row& r) {
    return std::make_tuple(r.cost, r.io.total_writes(), r.workspace, r.flops, place(r.schedule));
  });
  return plan;
}

/// The cheapest row that may be chosen.
std::vector<Row>::iterator first_choice(Plan& plan, const Sizes& x) {
  const auto first = [&](bool lists) {
    return std::ranges::find_if(
        plan.rows, [&](const Row& r) { return plan.may_choose(r) && (lists || !r.algorithm->traits.lists_pairs); });
  };
  const auto any = first(true);
  if (!plan.options.schedule.empty() || has_pattern(x)) return any;
  const auto other = first(false);
  const bool saves = other == plan.rows.end() || saves_enough(any->cost, other->cost);
  return saves ? any : other;
}

/// With queries and keys in the order of the problem.
Plan plan_in_order(const Problem& problem, const Options& options) {
  problem.validate();
  const bound::AttentionProblem in_bounds = bound_problem(problem, options);
  std::vector<bound::Bound> bounds = bound::bounds_of(problem.op, in_bounds);  // first: it soon finds sizes too large
  const Sizes x = sizes_of(problem, options);
  Plan plan = plan_of_rows(problem, options, x, PairLists::short_ones);
  if (first_choice(plan, x) == plan.rows.end()) plan = plan_of_rows(problem, options, x, PairLists::long_ones);
  auto chosen = first_choice(plan, x);
  plan.options.M = in_bounds.M;
  plan.bounds = std::move(bounds);
  plan.bound = bound::best(plan.bounds);
  if (chosen == plan.rows.end()) {
    say_what_is_needed(plan);
    throw_nothing_fits(plan);
  }
  leave_out_special(plan, x, chosen);
  if (problem.forward_first()) plan.forward = forward_before(problem, options, make_plan);
  order_rows(plan, chosen);
  compare_rows(plan);
  plan.reason = reason(plan);
  return plan;
}

/// The cheapest row of the problem without its patterns. A pattern that has to be read, `listed`, is a boolean bias
/// then, whose words count; not where words have prices, which a list has none of.
std::optional<Row> dense_row(Problem problem, const Options& options, bool listed) {
  if (listed && !is_priced(options) && !is_projected(problem.op)) {
    const auto given = static_cast<index_t>(problem.patterns.size());
    std::array<index_t, 4> shape{given > problem.heads ? problem.batch : 1, given > 1 ? problem.heads : 1, problem.n_q,
                                 problem.n_k};
    if (problem.bias)  // both are one
      for (std::size_t k = 0; k < shape.size(); ++k) shape[k] = std::max(shape[k], (*problem.bias)[k]);
    problem.bias = shape;
  }
  problem.patterns = {};
  try {
    return plan_in_order(problem, options).row();
  } catch (const CapacityError&) {
    return std::nullopt;
  } catch (const MemoryError&) {
    return std::nullopt;
  } catch (const Unsupported&) {
    return std::nullopt;
  }
}

/// The plan in natural order, or in one that costs less or fits where natural does not.
Plan plan_in_best_order(const Problem& problem, const Options& options) {
  const bool may_choose = options.reorder && problem.order == PatternOrder::natural && problem.may_reorder();
  if (!may_choose) return plan_in_order(problem, options);
  const auto cost = [](const Plan& plan) {
    return plan.row().cost + (plan.forward ? plan.forward->row().cost : Words(0));
  };
  std::optional<Plan> best;
  std::optional<Words> natural;
  std::exception_ptr why_not;
  std::optional<Words> least, least_bytes;  // that some order needs
  for (const PatternOrder order :
       {PatternOrder::natural, PatternOrder::rcm, PatternOrder::jaccard, PatternOrder::in_place})
    try {
      if (best && (order == PatternOrder::in_place || !has_pattern(best->problem.sizes()) || best->row().ratio <= 1))
        break;  // nothing to gain
      Problem ordered = problem;
      ordered.order = order;
      Plan plan = plan_in_order(ordered, options);
      if (order == PatternOrder::natural) natural = cost(plan);
      if (!best || cost(plan) < cost(*best)) best = std::move(plan);
    } catch (const InvalidProblem&) {
      throw;
    } catch (const CapacityError& e) {  // in another order there may be enough memory
      if (!least || e.needed < *least) {
        least = e.needed;
        why_not = std::current_exception();
      }
    } catch (const MemoryError& e) {  // or copies may be smaller
      if (!least && (!least_bytes || e.needed < *least_bytes)) {
        least_bytes = e.needed;
        why_not = std::current_exception();
      }
    } catch (const Error&) {  // or a schedule
      if (!why_not) why_not = std::current_exception();
    }
  if (!best) std::rethrow_exception(why_not);
  if (best->problem.order == PatternOrder::natural) {
    if (problem.patterns.large() && has_pattern(best->problem.sizes())) best->reason += kNoOtherOrder;
    return std::move(*best);
  }
  if (best->problem.order == PatternOrder::in_place) {
    best->reason += kOnlyInPlace;
    return std::move(*best);
  }
  const std::string_view unit = measure_of(options).much;
  best->reason += fmt::format(
      "; queries and keys are taken in {} order, {}", name_of(best->problem.order),
      natural ? fmt::format("as they come {:.2f}x as {}", natural->to_double() / cost(*best).to_double(), unit)
              : "as they come nothing fits");
  return std::move(*best);
}

}  // namespace

Plan make_plan(const Problem& problem, const Options& options) {
  const CoreMemo memo;
  Plan plan = plan_in_best_order(problem, options);
  say_what_is_needed(plan);
  if (!options.schedule.empty() || !has_pattern(plan.problem.sizes())) return plan;
  plan.dense = dense_row(problem, options, plan.row().index.reads > 0);
  if (!plan.dense) return plan;
  plan.reason += against_dense(plan);
  return plan;
}

std::vector<Row> rows_that_fit(const Problem& problem, const Options& options, const Sizes& x,
                               std::span<const Row> known) {
  Plan plan = plan_of_rows(problem, options, x, PairLists::none, known);
  auto chosen = first_choice(plan, x);
  if (chosen == plan.rows.end()) return {};
  leave_out_special(plan, x, chosen);
  std::erase_if(plan.rows, [](const Row& r) { return !r.fits; });
  return std::move(plan.rows);
}

void throw_nothing_fits(const Plan& plan) {
  std::string list;
  std::optional<Words> least, least_cap;
  const auto lower = [](std::optional<Words>& least_of, const std::optional<Words>& x) {
    if (x && (!least_of || *x < *least_of)) least_of = x;
  };
  for (const Refusal& r : plan.refused) {
    list += fmt::format("{} {}: {}", list.empty() ? "" : ";", r.schedule, r.why);
    const schedule::Traits& traits = plan.options.registry->find(plan.problem.op, r.schedule)->traits;
    if (plan.may_choose(traits)) lower(least, r.smallest_M);
    lower(least_cap, r.smallest_cap);
  }
  const std::string_view before =
      plan.problem.forward_first() ? " (the forward pass that must run first may need more)" : "";
  if (least_cap)
    throw MemoryError(fmt::format("a cap of {} bytes is too small; the smallest that works for M = {} words is {}{}, "
                                  "and a smaller M needs less:{}",
                                  plan.options.cap->most.str(), plan.options.M.str(), least_cap->str(), before, list),
                      *least_cap, plan.options.cap->most);
  if (!least) throw Unsupported(fmt::format("no schedule can do this:{}", list));
  const auto& memory = plan.options.memory;
  const Words given = memory ? memory->bytes : plan.options.M;
  throw CapacityError(fmt::format("{} is too small; the smallest that works is {}{}:{}",
                                  memory ? fmt::format("fast memory of {} bytes", given.str())
                                         : fmt::format("M = {} words", given.str()),
                                  least->str(), before, list),
                      *least, given);
}

std::optional<Refusal> beyond_cap(const Plan& plan, const Row& row) {
  const std::optional<Cap>& cap = plan.options.cap;
  if (!cap) return std::nullopt;
  Plan alone;
  alone.problem = plan.problem;
  alone.rows.push_back(row);
  const Words bytes = cap->bytes_of(alone);
  if (bytes <= cap->most) return std::nullopt;
  return Refusal{
      row.schedule,
      fmt::format("takes {} bytes beside inputs and outputs, more than the cap of {}", bytes.str(), cap->most.str()),
      std::nullopt, plan.may_choose(row) ? std::optional(bytes) : std::nullopt};
}

std::shared_ptr<const Plan> forward_before(const Problem& problem, Options options, const Maker& make) {
  options.schedule.clear();
  options.tiling.reset();
  if (options.cap)  // what it takes, with its outputs, which are kept until the gradients are there
    options.cap->bytes_of = [&problem, bytes_of = options.cap->bytes_of](const Plan& forward) {
      Plan whole;
      whole.problem = problem;
      whole.forward = std::make_shared<const Plan>(forward);
      return bytes_of(whole);
    };
  constexpr auto kWhere = "the forward pass that must run first: {}";
  try {
    auto plan = std::make_shared<Plan>(make(problem.forward(), options));
    plan->options.cap.reset();  // the plan around it has one
    return plan;
  } catch (const CapacityError& e) {
    throw CapacityError(fmt::format(kWhere, e.what()), e.needed, e.available);
  } catch (const MemoryError& e) {
    throw MemoryError(fmt::format(kWhere, e.what()), e.needed, e.available);
  }
}

void order_rows(Plan& plan, std::vector<Row>::iterator first) {
  std::rotate(plan.rows.begin(), first, first + 1);
  std::stable_partition(plan.rows.begin() + 1, plan.rows.end(), [&](const Row& r) { return plan.may_choose(r); });
  plan.chosen = 0;
}

void compare_rows(Plan& plan) {
  const bool bytes = minimises_bytes(plan.options);
  const auto moved = [&](const Row& r) { return bytes ? *r.bytes : r.io.total(); };
  const Words bound = bytes ? least_bytes(plan) : plan.bound.words;
  Words before;
  for (const Plan* p = plan.forward.get(); p != nullptr; p = p->forward.get()) before += moved(p->row());
  Words least = plan.rows.front().flops;
  for (const Row& r : plan.rows) least = std::min(least, r.flops);
  for (Row& r : plan.rows) {
    if (bound > 0) r.ratio = (before + moved(r)).to_double() / bound.to_double();
    r.work = least > 0 ? r.flops.to_double() / least.to_double() : 1;
  }
}

}  // namespace redblue::plan
