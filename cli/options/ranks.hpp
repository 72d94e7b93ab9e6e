#pragma once
#include <optional>
#include <string>

#include "options/options.hpp"
#include "redblue/ranks/plan.hpp"

namespace redblue::cli {

/// Attention over ranks: how many there are, what is between them, and what is not left to the planner.
struct RanksOptions {
  std::optional<index_t> number, block, reproducible;
  std::optional<std::string> network, flops, layout, transfer, ownership;
  bool overlap = false;      ///< of runs
  bool keeps_heads = false;  ///< of plans

  enum class For { plans, runs };

  void add_to(const Command& command, For what);
  bool given() const { return number.has_value(); }
  /// What is wanted, for arrays of `dtype` and arithmetic in `compute`; `by_time`: --objective, where it was given.
  /// Throws InvalidProblem or Unsupported, with the option, for what cannot be read or says nothing.
  ranks::Wanted wanted(DType dtype, DType compute, std::optional<bool> by_time) const;
  /// Throws InvalidProblem if an option is given that is for --ranks.
  void require_none() const;
};

/// Throws InvalidProblem for an option that says nothing where ranks are planned: tiles, threads, bytes of fast memory.
void require_for_ranks(const ProblemOptions& problem);

}  // namespace redblue::cli
