#pragma once
#include <string>

#include "redblue/planner/planner.hpp"

namespace redblue {

/// What a run on this machine will be like.
struct RunHere {
  DType compute = DType::f32;
  DType tensors = DType::f32;
  int threads = 0;              ///< 0: those of default_pool()
  std::string hardware_file{};  ///< empty: this_machine()
};

/// The plan of least time for the machine at hand, or for that of the file. Throws what make_fastest_plan throws, and
/// IoError where the file is bad. Where this process had to measure the machine, Plan::reason says so.
plan::Plan make_plan_here(const Problem& problem, const plan::Options& options, const RunHere& run);

}  // namespace redblue
