#pragma once
#include <nanobind/nanobind.h>

#include "redblue/problem.hpp"

/// The parts of the extension module redblue._core.
namespace redblue::python {

namespace nb = nanobind;

void add_errors(nb::module_& m);
void add_places(nb::module_& m);
void add_problem(nb::module_& m);
void add_patterns(nb::module_& m);
void add_recognition(nb::module_& m);
void add_plan(nb::module_& m);
void add_xla(nb::module_& m);
void add_merge(nb::module_& m);
void add_known(nb::module_& m);
void add_ranks(nb::module_& m);

/// As one of Python's integers, which have no largest.
nb::object integer_of(Words words);
/// The number, or None for NaN and the infinities, which JSON does not know.
nb::object finite_or_none(double x);

}  // namespace redblue::python
