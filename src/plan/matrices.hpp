#pragma once
#include <vector>

#include "redblue/core/operation.hpp"
#include "redblue/core/sizes.hpp"
#include "redblue/core/slow_matrix.hpp"

namespace redblue::plan {

/// The matrices of one instance that the schedules of an operation may touch: workspace, too.
std::vector<SlowMatrix> matrices_of(Operation op, const Sizes& sizes);

}  // namespace redblue::plan
