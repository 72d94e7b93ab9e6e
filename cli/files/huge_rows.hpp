#pragma once
#include "redblue/runtime/run.hpp"

namespace redblue::cli {

/// Queries whose lse is so large that log n vanishes beside it, under a bias of floats, and whose do is not 0: a
/// gradient takes each weight of n equal keys for 1, not 1 / n (docs/numerics.md). 0 for what has no such gradient.
index_t huge_rows(const Problem& problem, const Tensors& tensors, DType compute);

}  // namespace redblue::cli
