#pragma once
#include "module.hpp"
#include "plan.hpp"

namespace redblue {
struct Certificate;
}  // namespace redblue

/// What is proved of polynomial attention on Python's arrays.
namespace redblue::python {

/// What is proved, as Python has it.
nb::dict describe(const Certificate& certificate);

/// The norms of the arrays and, where the plan is of a polynomial, what they prove. `arrays` as in run.hpp.
nb::dict certificate(const NamedPlan& plan, nb::handle arrays, bool tokens_first);

/// The plan that answers the tolerance, with the options `wanted`, or None where the given plan, of exact attention,
/// does; and the reason.
nb::tuple within(const NamedPlan& exact, nb::handle arrays, bool tokens_first, const Wanted& wanted, double tolerance);

/// The plan that answers the tolerance without arrays, for scores up to `range`; the plan of exact attention is made
/// here, and returned.
nb::tuple plan_within(const Problem& problem, const Wanted& wanted, double tolerance, double range);

}  // namespace redblue::python
