#pragma once
#include <string>
#include <vector>

#include "redblue/language/error.hpp"
#include "redblue/planner/planner.hpp"
#include "redblue/runtime/run.hpp"
#include "support/cases.hpp"

namespace redblue::test {

inline plan::Plan some_plan(const Problem& p) {
  plan::Options o;
  o.M = 300;
  return plan::make_plan(p, o);
}

/// The least M with which this schedule solves the problem; 0 if it does not know a mask or a score function of it, or
/// cannot cut its columns.
inline Words least_memory(const Problem& p, plan::Options o) {
  for (Words least = 1;;) {  // more than once: a plan of a gradient may have a forward plan, which needs some as well
    o.M = least;
    try {
      plan::make_plan(p, o);  // the printed algorithms take their tiles from M, and as many words as they need
      return least;
    } catch (const CapacityError& e) {
      least = e.needed;
    } catch (const Unsupported&) {
      return 0;
    }
  }
}

/// A plan of this schedule for the least M, and one with room for more; none if it cannot solve the problem.
inline std::vector<plan::Plan> plans_of(const Problem& p, std::string_view schedule,
                                        const schedule::Multiples& multiple = {}) {
  plan::Options o;
  o.schedule = schedule;
  o.multiple = multiple;
  const Words least = least_memory(p, o);
  if (least == 0) return {};
  std::vector<plan::Plan> plans;
  for (const Words M : {least, 2 * least + 60}) {
    o.M = M;
    plans.push_back(plan::make_plan(p, o));
  }
  return plans;
}
/// These of every schedule of the operation.
inline std::vector<plan::Plan> plans_of_every_schedule(const Problem& p, const schedule::Multiples& multiple = {}) {
  std::vector<plan::Plan> plans;
  for (const std::string_view name : plan::Registry::built_in().names(p.op))
    for (plan::Plan& plan : plans_of(p, name, multiple)) plans.push_back(std::move(plan));
  return plans;
}

/// These; of few cases, those of every third schedule, and of others each time (in_turn in support/cases.hpp).
inline std::vector<plan::Plan> plans_in_turn(const Problem& p, const schedule::Multiples& multiple = {}) {
  std::vector<plan::Plan> plans;
  for (const std::string_view name : in_turn(plan::Registry::built_in().names(p.op)))
    for (plan::Plan& plan : plans_of(p, name, multiple)) plans.push_back(std::move(plan));
  return plans;
}

/// What a plan is, for a message.
inline std::string text_of(const plan::Plan& plan) {
  const Problem& p = plan.problem;
  std::string text =
      std::string(name_of(p.op)) + " by " + std::string(plan.row().schedule) + ", M = " + plan.options.M.str();
  for (const auto& [name, value] :
       {std::pair("batch", p.batch), std::pair("heads", p.heads), std::pair("kv_heads", p.kv_heads.value_or(p.heads)),
        std::pair("n_q", p.n_q), std::pair("n_k", p.n_k), std::pair("d", p.d), std::pair("d_v", p.d_v)})
    text += std::string(", ") + name + " = " + std::to_string(value);
  if (p.masked()) text += ", offset " + std::to_string(p.causal_offset.value_or(p.n_k - p.n_q));
  if (p.causal) text += ", causal";
  if (p.window_left) text += ", left " + std::to_string(*p.window_left);
  if (p.window_right) text += ", right " + std::to_string(*p.window_right);
  if (p.prefix > 0) text += ", prefix " + std::to_string(p.prefix);
  return text + ", " + std::string(name_of(p.score)) + ", sources " + std::string(name_of(p.sources));
}

}  // namespace redblue::test
