#pragma once
#include <string>

#include "redblue/planner/planner.hpp"

namespace redblue {

/// What a run on this machine will be like.
struct RunHere {
  DType compute = DType::f32;
  DType tensors = DType::f32;
  int threads = 0;              ///< 0: as many of those of default_pool() as the work is worth
  std::string hardware_file{};  ///< empty: this_machine()
  bool at_most = false;         ///< as many of `threads` as the work is worth, as a run takes them from a pool of them
};

/// The plan of least time for the machine at hand, or for that of the file. Throws what make_fastest_plan throws, and
/// IoError where the file is bad. Where this process had to measure the machine, Plan::reason says so. On the machine
/// at hand schedule and tiles are those of the class of the problem's lengths (redblue/planner/recipes.hpp), chosen
/// once in a process: a plan for lengths that nobody saw before then takes some microseconds, and has one row.
plan::Plan make_plan_here(const Problem& problem, const plan::Options& options, const RunHere& run);
/// Such a plan with the modelled time of its chosen row.
plan::Plan with_time_here(plan::Plan plan, const RunHere& run);
/// The same plan with a row for each of the other schedules, and their modelled times: for people, in milliseconds.
plan::Plan make_table_here(const Problem& problem, const plan::Options& options, const RunHere& run);

}  // namespace redblue
