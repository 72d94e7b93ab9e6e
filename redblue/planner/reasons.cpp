#include "redblue/planner/reasons.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "redblue/planner/widths.hpp"
#include "redblue/problem/sequences.hpp"

namespace redblue::plan {

std::string text_of(const Row& row) {
  return row.tiling.empty() ? std::string(row.schedule) : fmt::format("{} {}", row.schedule, text_of(row.tiling));
}

Measure measure_of(const Options& o) {
  if (o.write_cost != 1) return {"costs least at the given widths and write cost", "cost", "much", ""};
  if (minimises_bytes(o)) return {"moves the fewest bytes", "move", "many", " bytes"};
  return {"moves the fewest words", "move", "many", " words"};
}

namespace {

std::string reason_without_caveat(const Plan& plan) {
  const Row& best = plan.row();
  const double d = static_cast<double>(plan.problem.d);
  const std::string where = fmt::format("M = {:.3g} d^2", plan.options.M.to_double() / (d * d));
  if (!plan.options.schedule.empty())
    return fmt::format("{}: {} was asked for{}", where, best.schedule,
                       best.fits ? ""
                                 : fmt::format("; it needs {} words, {:.2f} M", best.footprint.str(),
                                               best.footprint.to_double() / plan.options.M.to_double()));
  const Measure measure = measure_of(plan.options);
  std::string text = fmt::format("{}: {} ({}) {}", where, best.algorithm->idea, best.schedule, measure.least);
  if (best.ratio && *best.ratio <= 1)
    text += ", the proven bound itself";
  else if (best.ratio && *best.ratio < 1.1)
    text += fmt::format(", within {:.1f} % of the proven bound", 100 * (*best.ratio - 1));
  // The cheapest plan of the other family says most; failing that, the runner-up.
  const Row* rival = nullptr;
  for (const Row& r : plan.rows) {
    const bool same = r.io == best.io && r.footprint == best.footprint && r.flops == best.flops;  // by another name
    if (!plan.may_choose(r) || same) continue;
    const auto other_family = [&](const Row& row) {
      return row.algorithm->traits.keeps_scores != best.algorithm->traits.keeps_scores;
    };
    const bool other = other_family(r), had_other = rival != nullptr && other_family(*rival);
    if (rival == nullptr || (other && !had_other)) rival = &r;
  }
  if (best.work > 1.05) text += fmt::format(", for {:.2f} times the least arithmetic", best.work);
  if (rival == nullptr) {
    const auto may_choose = [&](const Row& r) { return plan.may_choose(r); };
    if (std::ranges::count_if(plan.rows, may_choose) > 1) return text + "; all others do the same";
    return text + (plan.options.registry->of(plan.problem.op).size() > 1 ? "; nothing else fits" : "");
  }
  if (rival->cost == best.cost)
    return text + fmt::format("; {} ({}) does as well", rival->algorithm->idea, rival->schedule);
  return text + fmt::format("; {} ({}) would {} {:.2f}x as {}", rival->algorithm->idea, rival->schedule, measure.verb,
                            rival->cost.to_double() / best.cost.to_double(), measure.much);
}

}  // namespace

std::string reason(const Plan& plan) {
  const std::string_view caveat = plan.row().algorithm->caveat(plan.problem.sizes(), plan.row().tiling);
  return reason_without_caveat(plan) + (caveat.empty() ? "" : fmt::format("; {}", caveat)) +
         note_of_order(plan.problem);
}

std::string note_of_order(const Problem& problem) {
  if (problem.dilation > 1)
    return fmt::format("; queries and keys of each residue modulo {} are taken together", problem.dilation);
  const Sizes x = problem.sizes();
  const bool closed = problem.patterns.empty() && x.sequences != nullptr && x.sequences->reordered();
  return closed ? "; queries and keys that no pair has are taken last" : "";
}

std::string against_dense(const Plan& plan) {
  const Row &row = plan.row(), &dense = *plan.dense;
  const bool priced = is_priced(plan.options);
  const bool listed = row.index.reads > 0 && !priced && !is_projected(plan.problem.op);
  const double times =
      priced ? dense.cost.to_double() / row.cost.to_double()
             : dense.io.total().to_double() / (row.io.total() + (listed ? row.index.reads : 0)).to_double();
  const std::string counted =
      listed ? fmt::format(", with the {} index words here and those of a boolean bias there", row.index.reads.str())
             : "";
  const Measure measure = measure_of(plan.options);
  const std::string does =
      times < 1 ? fmt::format("is better: it {}s", measure.verb) : fmt::format("would {}", measure.verb);
  return fmt::format("; forming all pairs and masking them ({}) {} {:.2f}x as {}{}{}", dense.schedule, does, times,
                     measure.much, measure.of, counted);
}

}  // namespace redblue::plan
