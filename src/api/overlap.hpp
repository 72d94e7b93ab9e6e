#pragma once
#include <string>
#include <vector>

#include "redblue/attention.hpp"

namespace redblue {

struct NamedTensor {
  std::string name;
  Tensor tensor;
};

/// Throws InvalidProblem when an output shares memory with itself, another output or an input.
void require_no_overlap(const std::vector<NamedTensor>& inputs, const std::vector<NamedTensor>& outputs);

}  // namespace redblue
