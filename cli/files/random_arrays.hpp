#pragma once
#include <cstddef>
#include <vector>

#include "redblue/runtime/run.hpp"

namespace redblue::cli {

/// Memory for tensors, on cache lines of its own.
class RandomArrays {
 public:
  /// Contiguous, zeros.
  Tensor zeros(const std::array<index_t, 4>& shape, DType dtype);
  /// Standard normal numbers, rounded to `dtype`: different for every tensor, the same in every program.
  Tensor normal(const std::array<index_t, 4>& shape, DType dtype);

 private:
  struct alignas(64) Line {
    std::byte bytes[64];
  };
  std::vector<std::vector<Line>> list_;
};

}  // namespace redblue::cli
