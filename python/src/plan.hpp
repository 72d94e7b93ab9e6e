#pragma once
#include <memory>
#include <optional>
#include <string>
#include <tuple>

#include "redblue/attention.hpp"
#include "redblue/plan.hpp"

namespace redblue::python {

/// What a plan keeps to, as the options of the same names of redblue.plan say it.
struct Wishes {
  std::map<std::string, index_t> multiple{};  ///< q, k, f: tile sizes must be multiples
  Widths width{};
  std::map<std::string, index_t> pad{};  ///< rows, after: with fast memory in bytes, how rows of tiles are padded
  bool double_buffer = false;
  bool no_workspace = false;
  index_t reserve = 0;
  double write_cost = 1;

  auto fields() { return std::tie(multiple, width, pad, double_buffer, no_workspace, reserve, write_cost); }
  using Values =
      std::tuple<std::map<std::string, index_t>, Widths, std::map<std::string, index_t>, bool, bool, index_t, double>;
};

/// redblue.Plan: a plan, the types and threads it was made for, and what runs of it remember.
struct NamedPlan {
  plan::Plan plan;
  DType compute = DType::f32, tensors = DType::f32;
  int threads = 0;
  Wishes wishes{};
  mutable RunMemo memo{};
};

/// What a plan is made for, beside the problem.
struct Wanted {
  std::optional<index_t> M{};              ///< words of fast memory; without both, the plan of least time
  std::optional<index_t> memory{};         ///< bytes of fast memory
  std::optional<index_t> max_workspace{};  ///< the most bytes that a run may take
  std::string schedule{};
  DType compute = DType::f32, tensors = DType::f32;
  int threads = 0;
  bool reorder = true;
  Wishes wishes{};
  std::optional<plan::Tiling> tiling{};  ///< of `schedule`; only a plan that travelled has one
};

std::shared_ptr<NamedPlan> plan_for(const Problem& problem, const Wanted& wanted);

/// The pool that a run of at most this number of threads takes: default_pool(), or another that stays.
ThreadPool& pool_of(int threads);
/// From now on, in this process, these are threads of OpenMP, if it has them.
void use_openmp();

}  // namespace redblue::python
