#include "redblue/problem.hpp"

#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string_view.h>

#include "options.hpp"
#include "pattern.hpp"

namespace redblue::python {

namespace {

void set_patterns(Problem& p, const std::vector<std::shared_ptr<const NamedPattern>>& list) {
  std::vector<std::shared_ptr<const RunLists>> rows;
  rows.reserve(list.size());
  for (const auto& pattern : list) {
    if (pattern->n_k != p.n_k)
      throw InvalidProblem(fmt::format("the pattern is of {} keys, and there are {}", pattern->n_k, p.n_k));
    rows.push_back(pattern->rows);
  }
  p.patterns = Patterns(std::move(rows));
}

}  // namespace

void add_problem(nb::module_& m) {
  nb::class_<Problem> problem(m, "Problem", "The fields of the C++ library's redblue::Problem.");
  problem.def(nb::init<>())
      .def("set_patterns", &set_patterns)
      .def("approximate", [](Problem& p, const std::string& text) { p.approximate(text); })
      .def("take_order", [](Problem& p, const std::string& name) { p.take_order(from_name<PatternOrder>(name)); })
      .def("validate",
           [](const Problem& p) {
             p.validate();
             p.require_heeded();
           })
      .def("require_part", &Problem::require_part)
      .def("default_scale", &Problem::scale_or_default)
      .def("__copy__", [](const Problem& p) { return Problem(p); });
  add_properties(problem, problem_options(), [](auto& p) -> auto& { return p; });
  m.def(
      "attends", [](const std::string& operation) { return attends(named<Operation>("op", operation)); },
      "Has this operation keys? merge has not.");
  m.def("called_elsewhere", &called_elsewhere,
        "The options that other libraries call by this name, the likeliest first.");
  m.def(
      "problem_options", [] { return described<Problem>(problem_options()); },
      "The table of a problem's options: name, flag of the program, type, may it be None?, default, source, help.");
  m.def("plan_options", [] { return described<plan::Options>(plan::plan_options()); }, "The same of a plan's options.");
}

}  // namespace redblue::python
