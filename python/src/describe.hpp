#pragma once
#include "module.hpp"
#include "plan.hpp"

/// Plans, bounds and measurements as Python's dicts.
namespace redblue::python {

nb::dict describe(const NamedPlan& plan);
nb::dict describe(const Measured& measured);
nb::dict describe(const bound::Bound& bound);
/// The lower bounds of a problem under M words of fast memory.
nb::list bounds(const Problem& problem, index_t M);

}  // namespace redblue::python
