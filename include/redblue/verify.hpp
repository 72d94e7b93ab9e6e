#pragma once
#include <string>
#include <vector>

#include "redblue/attention.hpp"

namespace redblue {

/// One output against the oracle. An error is the largest absolute error over the largest finite entry of the oracle.
struct Deviation {
  std::string name;  ///< "o", "lse", "dq", "g", ...
  double error = 0;
  double naive_error = 0;      ///< of plain attention in the compute type
  double tolerance = 0;        ///< 2 x naive_error + a few roundings
  index_t nan_mismatches = 0;  ///< entries that are NaN in only one of output and oracle
  /// No tolerance excuses an error of a tenth: where plain attention itself errs by that much, nothing can be verified.
  bool ok() const { return nan_mismatches == 0 && error <= tolerance && error <= 0.1; }
};

/// A given o or lse against that of the oracle, row by row.
struct GivenInput {
  std::string name;
  double error = 0;  ///< largest error, over the error that rounding allows for numbers of that row's size
  bool ok() const { return error <= 1; }
};

/// A gradient along a random direction u of one input, against central differences of the loss L = SUM dO o O, which
/// need no backward pass: <gradient, u> and (L(x + e u) - L(x - e u)) / 2e.
struct Difference {
  std::string name;  ///< of the gradient
  double gradient = 0;
  double difference = 0;
  double tolerance = 0;  ///< absolute: uncertainty of the difference and rounding of the gradient
  bool ok() const;
};

struct Verification {
  std::vector<Deviation> outputs;
  std::vector<GivenInput> given;  ///< gradients are judged as functions of the given o and lse; these are judged here
  std::vector<Difference> differences;
  std::vector<std::pair<std::string, index_t>> nan_inputs;  ///< inputs with NaN entries
  index_t nan_outputs = 0;
  bool ok() const;
};

/// Computes attention or its gradients row by row in fp64, and a second time naively in `compute`; compares the outputs
/// with them, and gradients also with central differences. Takes O(n) extra memory. Throws Unsupported unless `compute`
/// is f32 or f64.
Verification verify(const Problem& problem, const Tensors& tensors, DType compute);
Verification verify(const Problem& problem, const Inputs& inputs, const Outputs& outputs, DType compute);
Verification verify(const Problem& problem, const BackwardInputs& inputs, const BackwardOutputs& outputs,
                    DType compute);
Verification verify(const Problem& problem, const GradientXInputs& inputs, const GradientXOutputs& outputs,
                    DType compute);

}  // namespace redblue
