#pragma once
#include <vector>

#include "redblue/language/slow_matrix.hpp"
#include "redblue/problem/operation.hpp"
#include "redblue/problem/sizes.hpp"

namespace redblue::plan {

/// The matrices of one instance that the schedules of an operation may touch: workspace, too.
std::vector<SlowMatrix> matrices_of(Operation op, const Sizes& sizes);

}  // namespace redblue::plan
