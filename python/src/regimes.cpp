#include "regimes.hpp"

#include <nanobind/stl/string.h>

#include "describe.hpp"
#include "redblue/approximations.hpp"

namespace redblue::python {

namespace {

nb::object describe(const std::optional<plan::Moved>& moved) {
  if (!moved) return nb::none();
  nb::dict d;
  d["schedule"] = moved->schedule;
  d["io"] = integer_of(moved->words);
  return d;
}

/// One point of the map, with the names of `redblue regimes --json`.
nb::dict regime(const Problem& problem, index_t M, index_t degree) {
  const plan::Regime r = [&] {
    const nb::gil_scoped_release unlocked;
    problem.validate();
    return plan::regime(problem, M, degree);
  }();
  nb::dict d;
  d["degree"] = degree;
  d["monomials"] = integer_of(r.monomials);
  d["approximate"] = describe(r.approximate);
  d["exact"] = describe(r.exact);
  d["bound"] = r.approximate ? nb::object(python::describe(r.bound)) : nb::none();
  d["break_even_n"] = r.break_even ? nb::object(nb::int_(*r.break_even)) : nb::none();
  d["regime"] = !r.exact && !r.approximate ? "none" : r.approximation_wins() ? "polynomial" : "exact";
  return d;
}

}  // namespace

void add_regimes(nb::module_& m) {
  using namespace nb::literals;
  m.def("regime", &regime, "problem"_a, "M"_a, "degree"_a,
        "Words of polynomial and of exact attention, the best plan of each, as a dict.");
  m.def("largest_range", &plan::largest_range, "degree"_a, "tolerance"_a, nb::call_guard<nb::gil_scoped_release>(),
        "Scores up to this keep weights within the tolerance.");
  m.def("least_degree", &plan::least_degree, "range"_a, "tolerance"_a, nb::call_guard<nb::gil_scoped_release>(),
        "The least degree that keeps weights within the tolerance for scores up to `range`.");
}

}  // namespace redblue::python
