#pragma once
#include <optional>

#include "redblue/planner/planner.hpp"

namespace redblue {

/// The machine for which the time of a plan is modelled.
struct TimeOptions {
  Hardware hardware;
  DType dtype = DType::f32;  ///< type of the arithmetic
  /// Type of inputs and outputs, unless plan::Options::width says otherwise; default: dtype.
  std::optional<DType> tensors{};
  std::optional<Isa> isa{};  ///< default: the largest in the hardware file
  int threads = 1;           ///< cores at work, each with its own fast memory of M words; at most kMostCores
};

/// The default M, in words of arithmetic in `compute`: twice as many as a core's private cache holds
/// (docs/time-model.md).
Words fast_memory_of(const Hardware& hardware, DType compute);

/// The plan of least modelled time (docs/time-model.md), not of fewest words: model::Timed walks through every schedule
/// with several tilings, for M and parts of M; without M (0) for fast_memory_of the hardware. `options.multiple`
/// narrows the tilings; prices of words are ignored. Row::time is set, and rows are ranked by it, each schedule with
/// its fastest tiling. Among plans within 0.2 % of the least time the one that moves the fewest words is chosen;
/// Plan::reason says how long even fewer words would take. Throws what plan::make_plan does, and InvalidProblem if the
/// hardware file lacks a figure that is needed.
///
/// ```cpp
/// redblue::Problem problem{.heads = 12, .n_q = 512, .n_k = 512, .d = 64, .d_v = 64};
/// redblue::plan::Plan plan = redblue::make_fastest_plan(problem, {}, {.hardware = redblue::this_machine()});
/// ```
plan::Plan make_fastest_plan(const Problem& problem, const plan::Options& options, const TimeOptions& time);

/// The plan of least modelled time among those in different orders of queries and keys, where the problem leaves the
/// order open: natural, in place, rcm or jaccard. `in_order` makes the plan of a problem in its own order, and sets
/// Row::time.
plan::Plan in_fastest_order(const Problem& problem, const plan::Options& options, const plan::Maker& in_order);

/// The modelled time of the chosen row, with the forward plan that runs before it if there is one.
model::Time modelled_time(const plan::Plan& plan, const TimeOptions& time);

}  // namespace redblue
