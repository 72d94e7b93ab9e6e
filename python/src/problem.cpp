#include "redblue/problem.hpp"

#include <fmt/format.h>
#include <nanobind/stl/array.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "module.hpp"
#include "pattern.hpp"

namespace redblue::python {

namespace {

template <class E>
E named(std::optional<E> found, const char* what, const std::string& name) {
  if (!found) throw InvalidProblem(fmt::format("{} '{}' is not known", what, name));
  return *found;
}

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
  nb::class_<Problem>(m, "Problem", "The fields of the C++ library's redblue::Problem.")
      .def(nb::init<>())
      .def_prop_rw(
          "op", [](const Problem& p) { return std::string(name_of(p.op)); },
          [](Problem& p, const std::string& name) { p.op = named(operation_from_name(name), "operation", name); })
      .def_rw("batch", &Problem::batch)
      .def_rw("heads", &Problem::heads)
      .def_rw("kv_heads", &Problem::kv_heads, nb::arg().none())
      .def_rw("n_q", &Problem::n_q)
      .def_rw("n_k", &Problem::n_k)
      .def_rw("d", &Problem::d)
      .def_rw("d_v", &Problem::d_v)
      .def_rw("causal", &Problem::causal)
      .def_rw("causal_offset", &Problem::causal_offset, nb::arg().none())
      .def_rw("window_left", &Problem::window_left, nb::arg().none())
      .def_rw("window_right", &Problem::window_right, nb::arg().none())
      .def_rw("prefix", &Problem::prefix)
      .def_rw("dilation", &Problem::dilation)
      .def_rw("scale", &Problem::scale, nb::arg().none())
      .def_rw("lse_required", &Problem::lse_required)
      .def_rw("cu_seqlens_q", &Problem::cu_seqlens_q)
      .def_rw("cu_seqlens_k", &Problem::cu_seqlens_k)
      .def_rw("seqused_q", &Problem::seqused_q)
      .def_rw("seqused_k", &Problem::seqused_k)
      .def_rw("softcap", &Problem::softcap)
      .def_rw("bias", &Problem::bias, nb::arg().none())
      .def_rw("bias_gradient", &Problem::bias_gradient)
      .def_rw("alibi", &Problem::alibi)
      .def_rw("sinks", &Problem::sinks)
      .def_rw("sinks_gradient", &Problem::sinks_gradient)
      .def_rw("dropout", &Problem::dropout)
      .def_rw("seed", &Problem::seed)
      .def_rw("forward_given", &Problem::forward_given)
      .def_rw("accumulate", &Problem::accumulate)
      .def("set_order",
           [](Problem& p, const std::string& name) { p.order = named(pattern_order_from_name(name), "order", name); })
      .def("set_patterns", &set_patterns)
      .def("approximate", [](Problem& p, const std::string& text) { p.approximate(text); })
      .def("validate", &Problem::validate)
      .def("default_scale", &Problem::scale_or_default)
      .def("__copy__", [](const Problem& p) { return Problem(p); });
}

}  // namespace redblue::python
