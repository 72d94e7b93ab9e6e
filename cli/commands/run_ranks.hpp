#pragma once
#include "files/tensors.hpp"
#include "options/options.hpp"
#include "options/ranks.hpp"

namespace redblue::cli {

/// A run over ranks: processes that mpirun started, or threads of this one.
struct RanksRun {
  const RanksOptions& ranks;
  const FileOptions& files;
  const MemoryOptions& memory;
  const PlannerOptions& planner;
  const ObjectiveOptions& objective;
  const LoadedInputs& loaded;
  Problem problem;
  Tensors inputs;
  RunOptions options;
  bool verify, json, quiet;
};

/// Each rank reads its own rows; rank 0 writes the output, once all of it is there. Returns the exit code.
int run_over_ranks(const RanksRun& run);

}  // namespace redblue::cli
