#pragma once
#include "module.hpp"
#include "plan.hpp"
#include "redblue/certificate.hpp"

/// What is proved of polynomial attention on Python's arrays.
namespace redblue::python {

/// What is proved, as Python has it.
nb::dict describe(const Certificate& certificate);

/// The norms of the arrays and, where the plan is of a polynomial, what they prove. `arrays` as in run.hpp.
nb::dict certificate(const NamedPlan& plan, nb::handle arrays, bool tokens_first);

/// The plan that answers the tolerance, with the options `wanted`, or None where the given plan, of exact attention,
/// does; and the reason.
nb::tuple within(const NamedPlan& exact, nb::handle arrays, bool tokens_first, const Wanted& wanted, double tolerance);

}  // namespace redblue::python
