#pragma once
#include "module.hpp"
#include "plan.hpp"

/// What pickle and copy keep of a plan: its problem and what was chosen. The plan is made of them again, without a
/// search and without a measurement: where it arrives it moves the words that it moved where it was made.
namespace redblue::python {

nb::tuple plan_state(const NamedPlan& plan);
/// Makes the plan in `place`. Throws InvalidProblem where this version of redblue knows no such plan, or counts other
/// words for it.
void set_plan_state(NamedPlan& place, const nb::tuple& state);

}  // namespace redblue::python
