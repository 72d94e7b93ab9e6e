#pragma once
#include <string>

#include "redblue/runtime/run.hpp"
#include "report/json.hpp"

namespace redblue::cli {

/// The bytes of memory that a run takes.
struct Ram {
  Words inputs, outputs;  ///< arrays: a file of safetensors or .npy is mapped, and counts as if it were read
  Words beside;           ///< fast memory, workspace, buffers, outputs in the type of the arithmetic

  Words total() const { return inputs + outputs + beside; }
  /// Is it so much that a report says it?
  bool worth_saying() const { return total() >= (1 << 28); }
  /// "2.1 GiB of memory (0.8 GiB for inputs, 0.8 GiB for outputs, 0.5 GiB beside them)"
  std::string text() const;
  Json json() const;
};

/// For tensors with or without data. It looks at a part of a long problem (memory_cap).
Ram ram_of(const plan::Plan& plan, const Tensors& tensors, const RunOptions& options);

}  // namespace redblue::cli
