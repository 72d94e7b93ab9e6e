#pragma once
#include <optional>
#include <string>
#include <vector>

#include "redblue/runtime/run.hpp"

namespace redblue {

/// One output against the oracle. An error is the largest absolute error over the largest finite entry of the oracle,
/// or over the largest term of the sums that entries are, where these cancel (docs/numerics.md).
struct Deviation {
  std::string name;  ///< "o", "lse", "dq", "g", ...
  double error = 0;
  double naive_error = 0;      ///< of plain attention in the compute type, its sums formed in blocks
  double tolerance = 0;        ///< 2 or 4 x naive_error + a few roundings: docs/numerics.md
  index_t nan_mismatches = 0;  ///< entries that are NaN here or there only
  /// No tolerance excuses an error of a tenth: where plain attention itself is that wrong, nothing can be verified.
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

/// How far o is from exact attention in a problem with an approximation. A polynomial also tells whether scores keep to
/// its range, and whether o is as near as is then proved.
struct Nearness {
  double largest_score = 0;  ///< |scale q.k| over all visible pairs
  double range = 0;          ///< of the polynomial; 0: a method, of which nothing is proved
  double distance = 0;       ///< largest |o - exact o| over largest |v|; 0 for gradients, of which nothing is proved
  double relative = 0;       ///< |o - exact o| / |exact o| in the Frobenius norm, the largest of all instances
  double proved = 0;         ///< Polynomial::output_error
  double rounding = 0;       ///< what roundings may add
  std::vector<double> distances{};  ///< |o - exact o| of each query head of each batch, for certificates
  /// Each row has its polynomial: is that proved, whatever the scores? (Rows beyond the range are then exact.)
  std::optional<bool> by_rows{};
  /// Why that is not so.
  std::string_view unproved{};
  bool in_range() const { return by_rows.value_or(range > 0 && largest_score <= range); }  ///< else nothing is proved
  bool ok() const { return !in_range() || distance <= proved + rounding; }
};

struct Verification {
  std::vector<Deviation> outputs;
  std::vector<GivenInput> given;  ///< gradients are judged as functions of the given o and lse; these are judged here
  std::vector<Difference> differences;
  std::optional<Nearness> nearness{};
  std::vector<std::pair<std::string, index_t>> nan_inputs;  ///< inputs with NaN entries
  index_t nan_outputs = 0;
  bool ok() const;
};

/// What rounds in a plan: what verify() allows depends on it.
struct Roundings {
  index_t additions = 0;  ///< most that go into one word, one after the other: steps over blocks of keys, or of queries
  index_t lse = 0;        ///< how often one output takes in weights or shares made of an lse that was rounded to a word
};
/// Walks through the whole plan, without data.
Roundings roundings_of(const plan::Plan& plan);

/// Compares outputs with attention or its gradients computed row by row in fp64, a second time for a naive run in
/// `compute`, and gradients with central differences as well: O(n) extra memory. The naive run adds up blocks of 256
/// terms, or longer blocks if the plan makes longer chains of additions: give roundings_of(plan) for the outputs of a
/// plan. Throws Unsupported unless `compute` is f32 or f64.
Verification verify(const Problem& problem, const Tensors& tensors, DType compute, const Roundings& roundings = {});
/// Verifies a run that added to given outputs (Problem::accumulate, merge): `before` has them as they were.
Verification verify(const Problem& problem, const Tensors& tensors, const Tensors& before, DType compute,
                    const Roundings& roundings = {});
Verification verify(const Problem& problem, const Inputs& inputs, const Outputs& outputs, DType compute,
                    const Roundings& roundings = {});
template <class In>
Verification verify(const Problem& problem, const In& inputs, const typename In::Outputs& outputs, DType compute,
                    const Roundings& roundings = {}) {
  return verify(problem, tensors_of(inputs, outputs), compute, roundings);
}

}  // namespace redblue
