#pragma once
#include <string>
#include <vector>

#include "redblue/attention.hpp"
#include "redblue/core/error.hpp"
#include "redblue/plan/planner.hpp"

namespace redblue::test {

inline plan::Plan some_plan(const Problem& p) {
  plan::Options o;
  o.M = 300;
  return plan::make_plan(p, o);
}

/// For every schedule that can solve the problem, a plan for the least M it can do with, and one with room for more.
/// Tiles are such multiples.
inline std::vector<plan::Plan> plans_of_every_schedule(const Problem& p, const schedule::Multiples& multiple = {}) {
  std::vector<plan::Plan> plans;
  for (const std::string_view name : plan::Registry::built_in().names(p.op)) {
    plan::Options o;
    o.schedule = name;
    o.multiple = multiple;
    o.M = 1;
    try {
      plan::make_plan(p, o);
    } catch (const CapacityError& e) {
      for (const Words M : {e.needed, 2 * e.needed + 40}) {
        o.M = M;
        plans.push_back(plan::make_plan(p, o));
      }
    } catch (const Unsupported&) {  // a mask or a score function it does not know, a column that cannot be split
    }
  }
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
  if (p.causal) text += ", causal offset " + std::to_string(p.causal_offset.value_or(p.n_k - p.n_q));
  return text;
}

}  // namespace redblue::test
