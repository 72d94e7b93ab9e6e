#pragma once
#include <array>
#include <cstddef>
#include <functional>

#include "redblue/core/dtype.hpp"
#include "redblue/core/error.hpp"
#include "redblue/machine/trace.hpp"
#include "redblue/plan/planner.hpp"
#include "redblue/problem.hpp"

/// The library in three steps: describe a Problem, make a Plan, run it on your memory.
///
///   redblue::Problem problem{.heads = 12, .n_q = 512, .n_k = 512, .d = 64, .d_v = 64};
///   redblue::plan::Plan plan = redblue::plan::make_plan(problem, {.M = 16384});
///   redblue::run(plan, {q, k, v}, {o, lse});          // Tensor views of your arrays
namespace redblue {

/// Batch x heads x sequence x features, any strides (in elements): a view of the caller's memory.
struct Tensor {
  void* data = nullptr;
  DType dtype = DType::f32;
  std::array<index_t, 4> shape{};
  std::array<index_t, 4> strides{};

  Tensor() = default;
  Tensor(void* data, DType dtype, std::array<index_t, 4> shape, std::array<index_t, 4> strides)
      : data(data), dtype(dtype), shape(shape), strides(strides) {}
  /// Contiguous, in the order of `shape`.
  Tensor(void* data, DType dtype, std::array<index_t, 4> shape)
      : Tensor(data, dtype, shape, {shape[1] * shape[2] * shape[3], shape[2] * shape[3], shape[3], 1}) {}
  Tensor(float* data, std::array<index_t, 4> shape) : Tensor(data, DType::f32, shape) {}
  Tensor(double* data, std::array<index_t, 4> shape) : Tensor(data, DType::f64, shape) {}
};

/// q [batch, heads, n_q, d], k [batch, kv_heads, n_k, d], v [batch, kv_heads, n_k, d_v]. Never written.
struct Inputs {
  Tensor q, k, v;
};

/// o [batch, heads, n_q, d_v], lse [batch, heads, n_q, 1]. lse.data may be null where it is not wanted.
struct Outputs {
  Tensor o, lse;
};

struct RunOptions {
  DType compute = DType::f32;              ///< f32 or f64: the type of a word in fast memory
  std::function<void(double)> progress{};  ///< called now and then with the share of the work that is done
};

/// What a run, or a count, measured. Words over all batches and heads.
struct Measured {
  Io io;
  Words peak;             ///< most words resident at a time
  Words flops;            ///< 2 x multiply-adds of products
  Words staging_words;    ///< run: buffers beside fast memory, for element types or strides that need copying
  Words converted_words;  ///< run: outputs held in the compute type until the end, because the schedule revisits them
};

/// Runs the chosen row of the plan. Throws InvalidProblem when a tensor does not fit the problem, and Error when memory
/// for fast memory or workspace cannot be had. Outputs are undefined if it throws.
Measured run(const plan::Plan& plan, const Inputs& inputs, const Outputs& outputs, const RunOptions& options = {});

/// Runs the chosen row on the counting machine: exact words without data.
Measured count(const plan::Plan& plan);

/// The operations of the chosen row, in order. Throws InvalidProblem when there are more than `most`.
machine::Trace trace(const plan::Plan& plan, std::size_t most = 1'000'000);

}  // namespace redblue
