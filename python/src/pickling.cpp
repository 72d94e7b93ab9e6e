#include "pickling.hpp"

#include <fmt/format.h>
#include <nanobind/stl/array.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <map>
#include <memory>
#include <new>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "pattern.hpp"
#include "redblue/problem.hpp"

namespace redblue::python {

namespace {

/// The fields of a problem that are plain numbers.
auto numbers_of(auto& p) {
  return std::tie(p.batch, p.heads, p.kv_heads, p.n_q, p.n_k, p.d, p.d_v, p.causal, p.causal_offset, p.window_left,
                  p.window_right, p.prefix, p.dilation, p.scale, p.lse_required, p.cu_seqlens_q, p.cu_seqlens_k,
                  p.seqused_q, p.seqused_k, p.softcap, p.bias, p.bias_gradient, p.alibi, p.sinks, p.sinks_gradient,
                  p.dropout, p.seed, p.forward_given, p.accumulate);
}
template <class... T>
std::tuple<T...> copies(const std::tuple<T&...>& references);
using Numbers = decltype(copies(numbers_of(std::declval<Problem&>())));

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
  return nb::make_tuple(std::string(name_of(p.op)), Numbers(numbers_of(p)), patterns_of(p), p.approximate_text());
}

template <class T>
T at(const nb::tuple& state, std::size_t i) {
  return nb::cast<T>(state[i]);
}

Problem problem_from(const nb::tuple& state) {
  Problem p;
  p.op = operation_from_name(at<std::string>(state, 0)).value();
  numbers_of(p) = at<Numbers>(state, 1);
  std::vector<std::shared_ptr<const RunLists>> rows;
  for (const nb::handle pattern : at<nb::list>(state, 2)) rows.push_back(nb::cast<const NamedPattern&>(pattern).rows);
  p.patterns = Patterns(std::move(rows));
  if (const auto text = at<std::string>(state, 3); !text.empty()) p.approximate(text);
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
  problem.order = pattern_order_from_name(at<std::string>(choice, 0)).value();
  wanted.schedule = at<std::string>(choice, 1);
  const auto schedule = plan::Registry::built_in().find(problem.op, wanted.schedule);
  if (schedule == nullptr)
    throw InvalidProblem(
        fmt::format("the plan's schedule is '{}', which this version of redblue does not have: plan "
                    "again",
                    wanted.schedule));
  wanted.tiling = tiling_from(*schedule, at<std::vector<TileSizeState>>(choice, 2));
  plan::Plan plan = plan_for(problem, wanted)->plan;
  if (const auto words = at<std::string>(choice, 3); plan.row().io.total().str() != words)
    throw InvalidProblem(
        fmt::format("the plan moved {} words where it was made, and moves {} with this version of "
                    "redblue: plan again",
                    words, plan.row().io.total().str()));
  if (problem.forward_first()) {
    const Problem before = problem.forward();
    const auto names = width_names(before.op, true);
    std::erase_if(wanted.wishes.width, [&](const auto& w) { return std::ranges::find(names, w.first) == names.end(); });
    plan.forward = std::make_shared<const plan::Plan>(plan_from(before, wanted, at<nb::tuple>(choice, 4)));
  }
  return plan;
}

}  // namespace

nb::tuple plan_state(const NamedPlan& p) {
  const plan::Options& o = p.plan.options;
  const Words fast = o.memory ? o.memory->bytes : o.M;
  Wishes wishes = p.wishes;
  return nb::make_tuple(problem_state(p.plan.problem), integer_of(fast), o.memory.has_value(),
                        std::string(name_of(p.compute)), std::string(name_of(p.tensors)), p.threads,
                        Wishes::Values(wishes.fields()), choice_of(p.plan));
}

void set_plan_state(NamedPlan& place, const nb::tuple& state) {
  Wanted wanted;
  (at<bool>(state, 2) ? wanted.memory : wanted.M) = at<index_t>(state, 1);
  wanted.compute = dtype_from_name(at<std::string>(state, 3)).value();
  wanted.tensors = dtype_from_name(at<std::string>(state, 4)).value();
  wanted.threads = at<int>(state, 5);
  wanted.reorder = false;
  wanted.wishes.fields() = at<Wishes::Values>(state, 6);
  new (&place) NamedPlan{plan_from(problem_from(at<nb::tuple>(state, 0)), wanted, at<nb::tuple>(state, 7)),
                         wanted.compute, wanted.tensors, wanted.threads, wanted.wishes};
}

}  // namespace redblue::python
