#pragma once
#include <string>

#include "redblue/attention.hpp"

namespace redblue {

/// One output against the oracle. Errors are the largest absolute ones over the largest finite entry of the oracle.
struct Deviation {
  double error = 0;
  double naive_error = 0;      ///< of plain attention in the compute type
  double tolerance = 0;        ///< 2 x naive_error + a few roundings
  index_t nan_mismatches = 0;  ///< entries that are NaN here or there only
  /// No tolerance excuses an error of a tenth: where plain attention itself is that wrong, nothing can be verified.
  bool ok() const { return nan_mismatches == 0 && error <= tolerance && error <= 0.1; }
};

struct Verification {
  Deviation o, lse;
  index_t nan_inputs[3] = {0, 0, 0};  ///< NaN entries of q, k, v
  index_t nan_outputs = 0;
  bool ok() const { return o.ok() && lse.ok() && nan_inputs[0] + nan_inputs[1] + nan_inputs[2] + nan_outputs == 0; }
};

/// Compares outputs with attention computed row by row in fp64, a second time for a naive run in `compute`: O(n) extra
/// memory. lse may be null. Throws Unsupported unless `compute` is f32 or f64.
Verification verify(const Problem& problem, const Inputs& inputs, const Outputs& outputs, DType compute);

}  // namespace redblue
