#include "plan.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <chrono>

#include "certify.hpp"
#include "compare.hpp"
#include "describe.hpp"
#include "options.hpp"
#include "pickling.hpp"
#include "redblue/fastest.hpp"
#include "redblue/plan.hpp"
#include "redblue/problem.hpp"
#include "run.hpp"

namespace redblue::python {

namespace {

index_t value_of(const std::map<std::string, index_t>& values, const char* name, index_t otherwise) {
  const auto found = values.find(name);
  return found == values.end() ? otherwise : found->second;
}

void require_within(const char* option, const std::map<std::string, index_t>& values, index_t most,
                    const std::vector<std::string>& names) {
  for (const auto& [name, value] : values) {
    if (std::ranges::find(names, name) == names.end())
      throw InvalidProblem(fmt::format("{} of '{}': give {}", option, name, fmt::join(names, ", ")));
    if (value < 1 || value > most)
      throw InvalidProblem(fmt::format("{} of {} = {}: give a number from 1 to {}", option, name, value, most));
  }
}

/// The options of the plan, without the cap.
plan::Options options_of(const Wanted& w, const Problem& p) {
  constexpr index_t kMostPadding = 4096;  // as the program
  require_within("multiple", w.multiple, kLargestSize, {"q", "k", "f"});
  require_within("width", w.width, kMostWidth, width_names(p.op, w.memory.has_value()));
  require_within("pad", w.pad, kMostPadding, {"rows", "after"});
  plan::Options o = w.options;
  o.M = w.M.value_or(0);
  o.multiple = {value_of(w.multiple, "q", 1), value_of(w.multiple, "k", 1), value_of(w.multiple, "f", 1)};
  const DType word = word_of(w.compute);
  if (w.memory) {
    o.memory = plan::ByteMemory{*w.memory, residence_of(p.op, w.tensors, word, w.width)};
    o.memory->fast.row_multiple = static_cast<std::uint32_t>(value_of(w.pad, "rows", 1));
    o.memory->fast.row_extra = static_cast<std::uint32_t>(value_of(w.pad, "after", 0));
  } else if (!w.pad.empty()) {
    throw InvalidProblem("pad says how rows of tiles lie in fast memory that is given in bytes: give memory, too");
  }
  if (w.M || w.memory || !w.width.empty() || o.keys_per_scale > 0) set_widths(o, p, w.tensors, word, w.width);
  if (o.write_cost != 1 && !w.M && !w.memory)
    throw InvalidProblem(
        fmt::format("write_cost = {} is for plans of the fewest words: give M or memory, too", o.write_cost));
  return o;
}

RunHere here(const Wanted& w) { return {w.compute, w.tensors, w.threads, {}, true}; }

}  // namespace

std::shared_ptr<NamedPlan> plan_for(const Problem& p, const Wanted& wanted) {
  using Clock = std::chrono::steady_clock;
  const auto start = Clock::now();
  auto made = std::make_shared<NamedPlan>();
  made->wanted = wanted;
  p.validate();
  p.require_heeded();
  const Tensors tensors = contiguous_tensors(p, wanted.tensors);
  require_arithmetic(wanted.compute, p, tensors);
  if (wanted.M && wanted.memory)
    throw InvalidProblem(
        fmt::format("M = {} words and memory = {} bytes: give one of them", *wanted.M, *wanted.memory));
  plan::Options o = options_of(wanted, p);
  if (wanted.max_workspace) {
    RunOptions run;
    run.compute = wanted.compute;
    run.pool = &pool_of(wanted.threads);
    o.cap = memory_cap(*wanted.max_workspace, tensors, run);
  }
  made->plan = wanted.M || wanted.memory ? plan::make_plan(p, o) : make_plan_here(p, o, here(wanted));
  if (!p.patterns.empty()) made->plan.sizes();  // made now, in the order chosen, and kept: no run makes it
  made->runs.by_schedule = &runs_by(made->plan.row().schedule);
  count_plan(std::chrono::duration<double>(Clock::now() - start).count());
  return made;
}

std::shared_ptr<NamedPlan> with_table(const std::shared_ptr<NamedPlan>& p, std::optional<index_t> seed) {
  const Wanted& w = p->wanted;
  const bool has_table = w.M || w.memory || p->plan.row().time;
  if (has_table && seed.value_or(p->plan.problem.seed) == p->plan.problem.seed) return p;
  auto all = std::make_shared<NamedPlan>();
  all->wanted = w;
  Problem problem = p->plan.problem;
  problem.seed = seed.value_or(problem.seed);
  if (has_table) {
    all->plan = p->plan;
    all->plan.problem = problem;
  } else {
    all->plan = make_table_here(problem, options_of(w, problem), here(w));
  }
  return all;
}

plan::Plan with_time(const NamedPlan& p) {
  return p.wanted.M || p.wanted.memory ? p.plan : with_time_here(p.plan, here(p.wanted));
}

namespace {

nb::dict memory_of_run(const NamedPlan& p) {
  RunOptions run;
  run.compute = p.wanted.compute;
  run.pool = &pool_of(p.wanted.threads);
  const RunMemory memory = [&] {
    const nb::gil_scoped_release released;
    return redblue::memory_of_run(p.plan, contiguous_tensors(p.plan.problem, p.wanted.tensors), run);
  }();
  nb::dict d;
  d["inputs"] = integer_of(memory.inputs);
  d["outputs"] = integer_of(memory.outputs);
  d["beside"] = integer_of(memory.beside);
  d["total"] = integer_of(memory.total());
  return d;
}

DType dtype_named(const std::string& name) {
  if (const auto found = dtype_from_name(name)) return *found;
  throw InvalidProblem(fmt::format("type '{}': {}", name, value_choice(name, {"f64", "f32", "f16", "bf16"})));
}

}  // namespace

void add_plan(nb::module_& m) {
  using namespace nb::literals;
  nb::class_<Wanted> made_for(m, "Wanted", "What a plan is made for, beside the problem: docs of redblue.plan.");
  made_for.def(nb::init<>())
      .def_rw("M", &Wanted::M, nb::arg().none())
      .def_rw("memory", &Wanted::memory, nb::arg().none())
      .def_rw("max_workspace", &Wanted::max_workspace, nb::arg().none())
      .def_rw("threads", &Wanted::threads)
      .def_rw("multiple", &Wanted::multiple)
      .def_rw("width", &Wanted::width)
      .def_rw("pad", &Wanted::pad)
      .def_prop_rw(
          "compute", [](const Wanted& w) { return std::string(name_of(w.compute)); },
          [](Wanted& w, const std::string& name) { w.compute = dtype_named(name); })
      .def_prop_rw(
          "tensors", [](const Wanted& w) { return std::string(name_of(w.tensors)); },
          [](Wanted& w, const std::string& name) { w.tensors = dtype_named(name); });
  add_properties(made_for, plan::plan_options(), [](auto& w) -> auto& { return w.options; });
  nb::class_<NamedPlan>(m, "Plan", "A plan of the C++ library, with what its runs remember.")
      .def(
          "run", nb::overload_cast<const NamedPlan&, nb::handle, bool, index_t, bool>(&run), "arrays"_a,
          "tokens_first"_a, "seed"_a, "measure"_a,
          "Runs the plan on a tuple of arrays: q, k, v, o, lse, bias, slopes, sinks, do, dq, dk, dv, dbias, dsinks, s, "
          "p, dlse, tq, tk, tv, to, tlse, gq, gk, gv, lq, lk, lv, ldo, ldlse, tbias, gbias, lbias, tsinks, gsinks, "
          "lsinks, None where the operation has none. Returns what the run counted, if `measure`.")
      .def("__getstate__", &plan_state)
      .def("__setstate__", &set_plan_state)
      .def("count", &counted, "Runs the plan without data; returns what was counted.")
      .def(
          "loop_nest", [](const NamedPlan& p) { return outline_text(p.plan); },
          nb::call_guard<nb::gil_scoped_release>(),
          "The loop nest of the chosen schedule, as `redblue explain` prints it.")
      .def("memory_of_run", &memory_of_run, "Bytes that a run on dense arrays takes, as a dict.")
      .def("describe", nb::overload_cast<const NamedPlan&>(&describe), "The plan as numbers and texts in a dict.")
      .def("certificate", &certificate, "arrays"_a, "tokens_first"_a,
           "What the norms of these arrays prove of the answer, as a dict.")
      .def("within", &within, "arrays"_a, "tokens_first"_a, "wanted"_a, "tolerance"_a,
           "The plan that answers the tolerance, or None where this one, of exact attention, does; and why.")
      .def_prop_ro("title", &title_of, "The name of a run in a profile.")
      .def_prop_ro("writes_lse", [](const NamedPlan& p) { return p.plan.io().writes[index_of(SlowArray::lse)] > 0; });
  m.def("make_plan", &plan_for, "problem"_a, "wanted"_a, nb::call_guard<nb::gil_scoped_release>(), "A plan.");
  m.def("with_table", &with_table, "plan"_a, "seed"_a.none(), nb::call_guard<nb::gil_scoped_release>(),
        "The plan with modelled times and with rows of other schedules, for dropout of this seed, or of its own.");
  m.def(
      "plan_within", &plan_within, "problem"_a, "wanted"_a, "tolerance"_a, "range"_a,
      "The plan that answers the tolerance for scores up to `range`, of a polynomial or of exact attention; and why.");
  m.def("compare", &compare, "problem"_a, "arrays"_a, "tokens_first"_a, "wanted"_a, "methods"_a.none(), "repetitions"_a,
        "seeds"_a, "Exact attention and its approximations on these arrays: errors, words, times, as a dict.");
  m.def("bounds", &bounds, "problem"_a, "M"_a,
        "The lower bounds on the words that any schedule moves, as a list of dicts.");
}

}  // namespace redblue::python
