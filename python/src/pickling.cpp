#include "pickling.hpp"

#include <nanobind/stl/map.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/tuple.h>

#include <algorithm>
#include <map>
#include <memory>
#include <new>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "options.hpp"
#include "pattern.hpp"

namespace redblue::python {

namespace {

/// Heads with the same pattern share it, in what is pickled, too.
nb::list patterns_of(const Problem& p) {
  std::map<const RunLists*, nb::object> made;
  nb::list list;
  for (std::size_t k = 0; k < p.patterns.size(); ++k) {
    nb::object& pattern = made[&p.patterns[k]];
    if (!pattern.is_valid())
      pattern = nb::cast(
          std::make_shared<const NamedPattern>(NamedPattern{std::make_shared<const RunLists>(p.patterns[k]), p.n_k}));
    list.append(pattern);
  }
  return list;
}

nb::tuple problem_state(const Problem& p) {
  return nb::make_tuple(values_of(problem_options(), p), patterns_of(p), p.approximate_text());
}

template <class T>
T at(const nb::tuple& state, std::size_t i) {
  return nb::cast<T>(state[i]);
}

Problem problem_from(const nb::tuple& state) {
  Problem p;
  set_values(problem_options(), at<nb::dict>(state, 0), p);
  std::vector<std::shared_ptr<const RunLists>> rows;
  for (const nb::handle pattern : at<nb::list>(state, 1)) rows.push_back(nb::cast<const NamedPattern&>(pattern).rows);
  p.patterns = Patterns(std::move(rows));
  if (const auto text = at<std::string>(state, 2); !text.empty()) p.approximate(text);
  return p;
}

using Own = std::tuple<index_t, index_t, index_t, index_t, index_t, index_t>;  // a core's shape, and its value
using TileSizeState = std::tuple<std::string, index_t, std::vector<Own>>;

std::vector<TileSizeState> tiling_state(const plan::Tiling& tiling) {
  std::vector<TileSizeState> tile_sizes;
  for (const schedule::TileSize& k : tiling) {
    std::vector<Own> own;
    own.reserve(k.own.size());
    for (const auto& [core, value] : k.own) own.emplace_back(core.n_q, core.n_k, core.lo, core.hi, core.prefix, value);
    tile_sizes.emplace_back(k.name, k.value, std::move(own));
  }
  return tile_sizes;
}

plan::Tiling tiling_from(const plan::Schedule& schedule, const std::vector<TileSizeState>& tile_sizes) {
  plan::Tiling tiling;
  for (const auto& [name, value, own] : tile_sizes) {
    schedule::TileSize k{schedule.tile_size(name).name, value};
    for (const auto& [n_q, n_k, lo, hi, prefix, size] : own) {
      Sizes core;
      core.n_q = n_q, core.n_k = n_k;
      core.mask.lo = lo, core.mask.hi = hi, core.mask.prefix = prefix;
      k.own.push_back({schedule::CoreShape(core), size});
    }
    tiling.push_back(std::move(k));
  }
  return tiling;
}

/// Order of queries and keys, schedule and tiling, the words that they move, and the same of the forward plan.
nb::tuple choice_of(const plan::Plan& plan) {
  return nb::make_tuple(std::string(name_of(plan.problem.order)), std::string(plan.row().schedule),
                        tiling_state(plan.row().tiling), plan.row().io.total().str(),
                        plan.forward ? nb::object(choice_of(*plan.forward)) : nb::none());
}

plan::Plan plan_from(Problem problem, Wanted wanted, const nb::tuple& choice) {
  problem.order = from_name<PatternOrder>(at<std::string>(choice, 0)).value();
  wanted.options.reorder = false;
  wanted.options.schedule = at<std::string>(choice, 1);
  const auto schedule = plan::Registry::built_in().find(problem.op, wanted.options.schedule);
  if (schedule == nullptr)
    throw InvalidProblem(
        fmt::format("the plan's schedule is '{}', which this version of redblue does not have: plan "
                    "again",
                    wanted.options.schedule));
  wanted.options.tiling = tiling_from(*schedule, at<std::vector<TileSizeState>>(choice, 2));
  plan::Plan plan = plan_for(problem, wanted)->plan;
  if (const auto words = at<std::string>(choice, 3); plan.row().io.total().str() != words)
    throw InvalidProblem(
        fmt::format("the plan moved {} words where it was made, and moves {} with this version of "
                    "redblue: plan again",
                    words, plan.row().io.total().str()));
  if (problem.forward_first()) {
    const Problem before = problem.forward();
    const auto names = width_names(before.op, true);
    std::erase_if(wanted.width, [&](const auto& w) { return std::ranges::find(names, w.first) == names.end(); });
    plan.forward = std::make_shared<const plan::Plan>(plan_from(before, wanted, at<nb::tuple>(choice, 4)));
  }
  return plan;
}

}  // namespace

nb::tuple plan_state(const NamedPlan& p) {
  const plan::Options& o = p.plan.options;
  const Words fast = o.memory ? o.memory->bytes : o.M;
  const Wanted& w = p.wanted;
  return nb::make_tuple(problem_state(p.plan.problem), integer_of(fast), o.memory.has_value(),
                        std::string(name_of(w.compute)), std::string(name_of(w.tensors)), w.threads,
                        nb::make_tuple(w.multiple, w.width, w.pad), values_of(plan::plan_options(), w.options),
                        choice_of(p.plan));
}

void set_plan_state(NamedPlan& place, const nb::tuple& state) {
  Wanted wanted;
  (at<bool>(state, 2) ? wanted.memory : wanted.M) = at<index_t>(state, 1);
  wanted.compute = dtype_from_name(at<std::string>(state, 3)).value();
  wanted.tensors = dtype_from_name(at<std::string>(state, 4)).value();
  wanted.threads = at<int>(state, 5);
  std::tie(wanted.multiple, wanted.width, wanted.pad) = at<std::tuple<NamedNumbers, Widths, NamedNumbers>>(state, 6);
  set_values(plan::plan_options(), at<nb::dict>(state, 7), wanted.options);
  new (&place) NamedPlan(plan_from(problem_from(at<nb::tuple>(state, 0)), wanted, at<nb::tuple>(state, 8)), wanted);
}

}  // namespace redblue::python
