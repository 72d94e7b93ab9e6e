#pragma once
#include <string>

#include "redblue/runtime/run.hpp"
#include "report/json.hpp"

namespace redblue::cli {

/// The bytes of memory that a run takes: inputs in files of safetensors or .npy are mapped, and count as if they were
/// read.
struct Ram : RunMemory {
  /// Is it so much that a report says it?
  bool worth_saying() const { return total() >= (1 << 28); }
  /// "2.1 GiB of memory (0.8 GiB for inputs, 0.8 GiB for outputs, 0.5 GiB beside them)"
  std::string text() const;
  Json json() const;
};

}  // namespace redblue::cli
