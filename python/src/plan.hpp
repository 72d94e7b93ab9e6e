#pragma once
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "redblue/attention.hpp"
#include "redblue/plan.hpp"
#include "statistics.hpp"

namespace redblue::python {

using NamedNumbers = std::map<std::string, index_t>;

/// What a plan is made for, beside the problem.
struct Wanted {
  std::optional<index_t> M{};              ///< words of fast memory; without both, the plan of least time
  std::optional<index_t> memory{};         ///< bytes of fast memory
  std::optional<index_t> max_workspace{};  ///< the most bytes that a run may take
  DType compute = DType::f32, tensors = DType::f32;
  int threads = 0;
  NamedNumbers multiple{};  ///< q, k, f: tile sizes must be multiples
  Widths width{};
  NamedNumbers pad{};       ///< rows, after: with fast memory in bytes, how rows of tiles are padded
  plan::Options options{};  ///< those of the table; and the tiling, which only a plan that travelled has
};

/// redblue.Plan: a plan, what it was made for, and what runs of it remember.
struct NamedPlan : std::enable_shared_from_this<NamedPlan> {
  plan::Plan plan;
  Wanted wanted{};
  mutable RunMemo memo{};
  mutable RunCount runs{};

  NamedPlan() = default;
  NamedPlan(plan::Plan p, Wanted w) : plan(std::move(p)), wanted(std::move(w)) {}
};

std::shared_ptr<NamedPlan> plan_for(const Problem& problem, const Wanted& wanted);
/// The same plan with modelled times and the rows of other schedules, which a plan of least time for a run lacks.
std::shared_ptr<NamedPlan> with_table(const std::shared_ptr<NamedPlan>& plan, std::optional<index_t> seed);
/// The plan; one of least time with its modelled time.
plan::Plan with_time(const NamedPlan& plan);

/// The most threads of a call.
inline constexpr int kMostThreads = 1024;
/// The pool that a run of at most this number of threads takes: default_pool(), or another that stays.
ThreadPool& pool_of(int threads);
/// From now on, in this process, these are threads of OpenMP, if it has them.
void use_openmp();

}  // namespace redblue::python
