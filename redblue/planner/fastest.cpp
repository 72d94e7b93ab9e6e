#include "redblue/planner/fastest.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <utility>

#include "redblue/language/error.hpp"
#include "redblue/language/word_type.hpp"
#include "redblue/planner/candidates.hpp"
#include "redblue/planner/considered.hpp"
#include "redblue/planner/modeller.hpp"
#include "redblue/problem/cores.hpp"

namespace redblue {

namespace {

std::string text_of(const model::Time& t) {
  return fmt::format("{:.3g} ms: compute {:.3g}, exp {:.3g}, passes {:.3g}, transfer {:.3g}", 1e3 * t.total_s,
                     1e3 * t.compute_s, 1e3 * t.exp_s, 1e3 * t.pass_s, 1e3 * t.transfer_s);
}

/// Modelled times so close are no reason to move more words.
constexpr double kTie = 1.002;

/// What the chosen plan is best at, for its reason.
std::string_view merit(const plan::Plan& plan, bool fastest) {
  if (!plan.options.schedule.empty()) return "was asked for";
  if (fastest) return "takes the least modelled time";
  return "moves the fewest words of those within 0.2 % of the least modelled time";
}

/// The choice in a sentence: its time, and what fewer words would have cost.
std::string reason(const plan::Plan& plan, bool fastest, const plan::Row& fewest, const model::Rates& rates,
                   const TimeOptions& time) {
  const plan::Row& best = plan.row();
  std::string text =
      fmt::format("{}, {} {}, {} thread{}, M = {}: {} ({}) {} ({})", time.hardware.cpu, name_of(rates.isa),
                  name_of(rates.dtype), time.threads, time.threads == 1 ? "" : "s", plan.options.M.str(),
                  best.algorithm->idea, best.schedule, merit(plan, fastest), text_of(*best.time));
  if (const std::string_view caveat = best.algorithm->caveat(plan.problem.sizes(), best.tiling); !caveat.empty())
    text += fmt::format("; {}", caveat);
  const double words = best.io.total().to_double(), least = fewest.io.total().to_double();
  if (words <= least) return text + "; no plan moves fewer words";
  const std::string more = words < 1.001 * least ? "less than 0.1 % more than" : fmt::format("{:.4g}x", words / least);
  return text + fmt::format("; it moves {} the fewest words, with which {} would take {:.2f}x the time ({})", more,
                            plan::text_of(fewest), fewest.time->total_s / best.time->total_s, text_of(*fewest.time));
}

/// Takes out the rows that break the cap of the plan. A schedule of which none is left is refused, with the least bytes
/// that one of its tilings takes.
void keep_the_cap(plan::Plan& plan, std::vector<plan::Row>& rows) {
  std::map<std::string_view, plan::Refusal> refused;
  std::set<std::string_view> kept;
  std::erase_if(rows, [&](const plan::Row& row) {
    auto refusal = plan::beyond_cap(plan, row);
    if (!refusal) {
      kept.insert(row.schedule);
      return false;
    }
    const auto [entry, fresh] = refused.try_emplace(row.schedule, *refusal);
    if (!fresh && refusal->smallest_cap &&
        (!entry->second.smallest_cap || *refusal->smallest_cap < *entry->second.smallest_cap))
      entry->second = *refusal;
    return true;
  });
  for (auto& [name, refusal] : refused)
    if (!kept.contains(name)) plan.refused.push_back(std::move(refusal));
}

}  // namespace

Words fast_memory_of(const Hardware& hardware, DType compute) {
  return Words(2) * hardware.private_cache().bytes / Words(size_of(word_of(compute)));
}

namespace {

/// Operations of a short walk.
constexpr std::size_t kBriefWalk = 500;

/// Walks rows further whose time after a short walk may be that of the fastest.
void walk_further(Modeller& modeller, std::vector<plan::Row>& rows) {
  constexpr double kMayWin = 1.5;
  if (rows.empty()) return;
  const auto seconds = [](const plan::Row& r) { return r.time->total_s; };
  const double most = kMayWin * seconds(*std::ranges::min_element(rows, {}, seconds));
  for (plan::Row& row : rows)
    if (seconds(row) <= most) row.time = modeller.time_of(row);
}

plan::Plan fastest_in_order(const Problem& problem, const plan::Options& given, const TimeOptions& time) {
  plan::Options options = given;
  if (options.M == 0) options.M = fast_memory_of(time.hardware, time.dtype);
  // Without the cap: tiles that move the fewest words may break it where others keep it.
  plan::Options uncapped = options;
  uncapped.cap.reset();
  uncapped.reorder = false;
  Problem alone = problem;
  alone.forward_given = true;                          // what runs before does not matter to the tilings
  plan::Plan plan = plan::make_plan(alone, uncapped);  // refuses what cannot be done
  Modeller modeller(problem, options, time);
  // Under patterns walks take long: short ones tell which tilings may win, and the others are not walked any further.
  const bool brief = !problem.patterns.empty();
  const plan::Row fewest_words = plan.row();
  plan.problem = problem;
  plan.options = options;

  std::vector<plan::Row> considered;
  const auto consider = [&](plan::Row& row) {
    if (std::ranges::any_of(considered, [&](const plan::Row& r) { return is_same(r, row); })) return;
    row.time = modeller.time_of(row, brief ? kBriefWalk : 0);
    considered.push_back(std::move(row));
  };
  const Sizes x = plan::sizes_of(alone, uncapped);
  const bool open = options.schedule.empty() && plan.rows.size() > 1;
  for (plan::Row& row : std::exchange(plan.rows, {}))
    if (!open || !plan::wants_small_cache(*row.algorithm, x, options.M)) consider(row);
  const auto try_all = [&](const std::vector<Candidate>& list) {
    for (const Candidate& a : list)
      for (plan::Row& row : plan::rows_that_fit(alone, a.of(uncapped), x)) consider(row);
  };
  for (const int share : kShares) try_all(candidates(problem, uncapped, modeller.rates(), share));
  try_all(blocks(problem, uncapped, modeller.rates(), time.threads));
  keep_the_cap(plan, considered);
  if (options.cap && std::ranges::none_of(considered, [&](const plan::Row& r) { return plan.may_choose(r); })) {
    plan::Row row = plan::make_plan(alone, options).row();  // lists of pairs may keep it
    consider(row);
  }
  if (brief) walk_further(modeller, considered);
  std::stable_sort(considered.begin(), considered.end(), is_faster);
  const auto may_choose = [&](const plan::Row& r) { return plan.may_choose(r); };
  const auto least = std::find_if(considered.begin(), considered.end(), may_choose);
  if (least == considered.end()) plan::throw_nothing_fits(plan);
  auto best = least, fewest = least;
  for (auto r = least; r != considered.end(); ++r) {
    if (!may_choose(*r)) continue;
    if (r->time->total_s <= kTie * least->time->total_s && r->io.total() < best->io.total()) best = r;
    if (fewest->io.total() > r->io.total()) fewest = r;
  }
  // Where tilings move the same words, this takes the one that the planner of words takes.
  for (auto r = considered.begin(); r != considered.end(); ++r)
    if (is_same(*r, fewest_words)) fewest = r;

  std::map<std::string_view, plan::Row> shown{{best->schedule, *best}};  // of the others the fastest tilings
  for (const plan::Row& row : considered) shown.try_emplace(row.schedule, row);
  for (auto& [name, row] : shown) plan.rows.push_back(std::move(row));
  std::stable_sort(plan.rows.begin(), plan.rows.end(), is_faster);
  const auto chosen = std::find_if(plan.rows.begin(), plan.rows.end(),
                                   [&](const plan::Row& r) { return r.schedule == best->schedule; });
  plan::order_rows(plan, chosen);
  if (problem.forward_first())
    plan.forward = plan::forward_before(problem, options, [&](const Problem& forward, const plan::Options& before) {
      return make_fastest_plan(forward, before, time);
    });
  plan::compare_rows(plan);
  plan.reason = reason(plan, best == least, *fewest, modeller.rates(), time) + plan::note_of_order(problem);
  return plan;
}

/// The keys that blocks of some queries see, block by block: what a plan multiplies, whatever its tiles.
Words visited_keys(const Sizes& x) {
  constexpr index_t kQueries = 64;
  return sum_of_pairs(x, [](const Pairs& pairs) { return pairs.visited_keys(kQueries); });
}

double seconds(const plan::Plan& plan) {
  return plan.row().time->total_s + (plan.forward ? plan.forward->row().time->total_s : 0);
}

/// The plan in this order; nothing where the order is too much work to find, or its copies take more memory than may
/// be.
std::optional<plan::Plan> plan_in(PatternOrder order, double most_visits, Problem problem, const plan::Options& given,
                                  const plan::Maker& in_order) {
  problem.order = order;
  try {
    if (visited_keys(problem.sizes()).to_double() > most_visits) return std::nullopt;
    return in_order(problem, given);
  } catch (const InvalidProblem&) {
    throw;
  } catch (const Error&) {
    return std::nullopt;
  }
}

/// The plan with queries and keys in place where that takes less time: natural order copies all that it leaves out one
/// query or key of.
plan::Plan in_place_if_faster(plan::Plan natural, const Problem& problem, const plan::Options& given,
                              const plan::Maker& in_order) {
  auto in_place = plan_in(PatternOrder::in_place, HUGE_VAL, problem, given, in_order);
  if (!in_place || seconds(*in_place) >= seconds(natural)) return natural;
  in_place->reason += fmt::format(
      "; queries and keys stay in place: the copies of natural order, which leaves out those that no pair has, would "
      "take {:.2f}x the time",
      seconds(natural) / seconds(*in_place));
  return std::move(*in_place);
}

}  // namespace

plan::Plan in_fastest_order(const Problem& problem, const plan::Options& given, const plan::Maker& in_order) {
  const CoreMemo memo;
  const bool may_choose = given.reorder && problem.order == PatternOrder::natural && problem.may_reorder();
  plan::Plan natural;
  try {
    natural = in_order(problem, given);
  } catch (const MemoryError& natural_needs) {  // in place there are no copies
    if (!may_choose) throw;
    try {
      Problem ordered = problem;
      ordered.order = PatternOrder::in_place;
      plan::Plan in_place = in_order(ordered, given);
      in_place.reason += plan::kOnlyInPlace;
      return in_place;
    } catch (const MemoryError& needs) {
      throw needs.needed < natural_needs.needed ? needs : natural_needs;
    } catch (const Error&) {
      throw natural_needs;
    }
  }
  if (!may_choose) return natural;
  const Sizes x = problem.sizes();
  if (!has_pattern(x)) return natural;
  if (x.sequences->reordered()) natural = in_place_if_faster(std::move(natural), problem, given, in_order);
  if (problem.patterns.large()) {
    natural.reason += plan::kNoOtherOrder;
    return natural;
  }
  // Another order saves about as much time as it saves visits, and its copies take some.
  constexpr double kWorthPlanning = 0.8;
  const double most_visits = kWorthPlanning * visited_keys(x).to_double();
  std::optional<plan::Plan> best;
  for (const PatternOrder order : {PatternOrder::rcm, PatternOrder::jaccard})
    if (auto plan = plan_in(order, most_visits, problem, given, in_order);
        plan && seconds(*plan) < seconds(best ? *best : natural))
      best = std::move(plan);
  if (!best) return natural;
  best->reason += fmt::format("; queries and keys are taken in {} order; the natural order would take {:.2f}x the time",
                              name_of(best->problem.order), seconds(natural) / seconds(*best));
  return std::move(*best);
}

plan::Plan make_fastest_plan(const Problem& problem, const plan::Options& given, const TimeOptions& time) {
  return in_fastest_order(problem, given, [&](const Problem& ordered, const plan::Options& options) {
    return fastest_in_order(ordered, options, time);
  });
}

}  // namespace redblue
