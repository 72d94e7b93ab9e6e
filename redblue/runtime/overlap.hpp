#pragma once
#include <cstddef>
#include <span>
#include <vector>

#include "redblue/runtime/run.hpp"

namespace redblue {

/// Throws InvalidProblem when an output shares memory with itself, another output or an input, or any of them with the
/// workspace. Arrays without data are left out.
void require_no_overlap(const Tensors& tensors, const std::vector<SlowArray>& inputs,
                        const std::vector<SlowArray>& outputs, std::span<const std::byte> workspace);

}  // namespace redblue
