#pragma once
#include <optional>

#include "redblue/plan/planner.hpp"

namespace redblue {

/// The machine that a plan's time is modelled for.
struct TimeOptions {
  Hardware hardware;
  DType dtype = DType::f32;  ///< of arithmetic
  /// Of inputs and outputs, where plan::Options::width says nothing else; default: dtype.
  std::optional<DType> tensors{};
  std::optional<Isa> isa{};  ///< default: the largest in the hardware file
  int threads = 1;           ///< cores at work, each with its own fast memory of M words; at most kMostCores
};

/// Words of fast memory, of arithmetic in `compute`, that pay: twice what a core's private cache holds
/// (docs/time-model.md).
Words fast_memory_of(const Hardware& hardware, DType compute);

/// The plan of least modelled time (docs/time-model.md) in place of fewest words: every schedule with several tilings
/// for M and parts of it, each walked by model::Timed. `options.multiple` narrows the tilings, and prices do not count.
/// Row::time is set; rows are ranked by it, the fastest tiling of each schedule. Of plans within 0.2 % of the least
/// time the one that moves the fewest words is chosen; Plan::reason says what fewer words still would have cost. Throws
/// what plan::make_plan does, and InvalidProblem where the hardware file lacks what is needed.
plan::Plan make_fastest_plan(const Problem& problem, const plan::Options& options, const TimeOptions& time);

/// What the chosen row, after the forward plan if there is one, is expected to take.
model::Time modelled_time(const plan::Plan& plan, const TimeOptions& time);

}  // namespace redblue
