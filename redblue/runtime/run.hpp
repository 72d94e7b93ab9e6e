#pragma once
#include <algorithm>
#include <array>
#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <ranges>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "redblue/language/dtype.hpp"
#include "redblue/language/error.hpp"
#include "redblue/language/scales.hpp"
#include "redblue/planner/planner.hpp"
#include "redblue/planner/shapes.hpp"
#include "redblue/problem/problem.hpp"
#include "redblue/threads/pool.hpp"

namespace redblue::machine {
struct Trace;        // redblue/machines/trace.hpp
struct OutlineLine;  // redblue/machines/outline.hpp
}  // namespace redblue::machine

/// The library in three steps: describe a Problem, make a Plan, run it on your memory.
///
/// ```cpp
/// std::vector<float> q(12 * 512 * 64), k = q, v = q, o = q, lse(12 * 512);
/// redblue::Problem problem{.heads = 12, .n_q = 512, .n_k = 512, .d = 64, .d_v = 64};
/// redblue::plan::Plan plan = redblue::plan::make_plan(problem, {.M = 16384});
/// redblue::run(plan, {{q, {1, 12, 512, 64}}, {k, {1, 12, 512, 64}}, {v, {1, 12, 512, 64}}},
///              {{o, {1, 12, 512, 64}}, {lse, {1, 12, 512, 1}}});
/// ```
namespace redblue {

namespace detail {
/// Throws InvalidProblem unless a view of this shape with these strides lies within `words` words.
void require_within(std::size_t words, const std::array<index_t, 4>& shape, const std::array<index_t, 4>& strides);
/// The strides of a contiguous tensor. For sizes that no memory holds they wrap around: there are plans for them, but
/// no runs.
constexpr std::array<index_t, 4> contiguous_strides(const std::array<index_t, 4>& shape) {
  std::array<std::uint64_t, 4> strides{0, 0, 0, 1};
  for (std::size_t i = 3; i > 0; --i) strides[i - 1] = strides[i] * static_cast<std::uint64_t>(shape[i]);
  return std::bit_cast<std::array<index_t, 4>>(strides);
}
}  // namespace detail

/// float or double words side by side, which outlive a view of them: a std::vector, std::array or std::span.
template <class R>
concept TensorRange =
    std::ranges::contiguous_range<R> && std::ranges::borrowed_range<R> &&
    (std::same_as<std::ranges::range_value_t<R>, float> || std::same_as<std::ranges::range_value_t<R>, double>);

/// A view of the caller's memory: batch x heads x sequence x features, with any strides (in elements). Without strides
/// it is contiguous in that order.
///
/// ```cpp
/// std::vector<float> x(2 * 8 * 100 * 64);
/// redblue::Tensor heads_first(x, {2, 8, 100, 64});
/// redblue::Tensor tokens_first(x, {2, 8, 100, 64}, {100 * 8 * 64, 64, 8 * 64, 1});  // [batch, token, head, feature]
/// redblue::Tensor the_same(x, {2, 8, 100, 64}, redblue::Dimensions("bshd").strides({2, 8, 100, 64}));
/// ```
struct Tensor {
  void* data = nullptr;
  DType dtype = DType::f32;
  std::array<index_t, 4> shape{};
  std::array<index_t, 4> strides{};
  bool read_only = false;  ///< a run does not take it for an output
  Scales scales{};         ///< of int8 keys and values

  Tensor() = default;
  /// Throws InvalidProblem if the view leaves the range. A range of const words is read-only.
  template <TensorRange R>
  Tensor(R&& words, std::array<index_t, 4> shape, std::array<index_t, 4> strides)
      : Tensor(const_cast<void*>(static_cast<const void*>(std::ranges::data(words))),
               std::same_as<std::ranges::range_value_t<R>, float> ? DType::f32 : DType::f64, shape, strides) {
    read_only = std::is_const_v<std::remove_reference_t<std::ranges::range_reference_t<R>>>;
    detail::require_within(std::ranges::size(words), shape, strides);
  }
  template <TensorRange R>
  Tensor(R&& words, std::array<index_t, 4> shape)
      : Tensor(std::forward<R>(words), shape, detail::contiguous_strides(shape)) {}
  /// Memory of any type, which is not checked: f16 and bf16 lie there as two bytes each, int8 as one.
  Tensor(void* data, DType dtype, std::array<index_t, 4> shape, std::array<index_t, 4> strides)
      : data(data), dtype(dtype), shape(shape), strides(strides) {}
  Tensor(void* data, DType dtype, std::array<index_t, 4> shape)
      : Tensor(data, dtype, shape, detail::contiguous_strides(shape)) {}
};

/// q [batch, heads, n_q, d], k [batch, kv_heads, n_k, d], v [batch, kv_heads, n_k, d_v]. A run only reads them. k and v
/// may both be int8 with Tensor::scales: the result is that of their words times the scales.
struct Inputs {
  Tensor q, k, v;
  Tensor bias{};    ///< shaped like Problem::bias
  Tensor slopes{};  ///< [1, heads, 1, 1] where Problem::alibi
  Tensor sinks{};   ///< [1, heads, 1, 1] where Problem::sinks
};

/// o [batch, heads, n_q, d_v], lse [batch, heads, n_q, 1]. If lse.data is null, no lse is written.
struct Outputs {
  Tensor o, lse;
};

/// Operation::merge: o and lse of one set of keys. They are merged into the Outputs, those of another set.
struct MergeInputs {
  using Outputs = redblue::Outputs;
  Tensor o, lse;
};

struct BackwardOutputs;
struct TangentOutputs;
struct SecondOutputs;
struct GradientXOutputs;
struct ScoresOutputs;

/// Operation::backward: q, k, v as in Inputs, dO with the shape of o, and o and lse of the forward pass, which are not
/// needed if Problem::forward_given is false.
struct BackwardInputs {
  using Outputs = BackwardOutputs;
  Tensor q, k, v, dO, o, lse;
  Tensor bias{}, slopes{}, sinks{};
  Tensor dlse{};  ///< like lse where Problem::lse_gradient
};

/// dq like q, dk like k, dv like v. With grouped heads dk and dv are sums over the query heads of a group.
struct BackwardOutputs {
  Tensor dq, dk, dv;
  Tensor dbias{};   ///< like bias where Problem::bias_gradient
  Tensor dsinks{};  ///< like sinks where Problem::sinks_gradient
};

/// Operation::tangent: q, k, v, o and lse as for backward, and tq, tk, tv, like q, k, v: the directions in which they
/// move.
struct TangentInputs {
  using Outputs = TangentOutputs;
  Tensor q, k, v, o, lse, tq, tk, tv;
  Tensor bias{}, slopes{}, sinks{};
  Tensor tbias{};   ///< like bias where Problem::bias_direction: that in which it moves
  Tensor tsinks{};  ///< like sinks where Problem::sinks_direction
};

/// to like o, tlse like lse: how these move.
struct TangentOutputs {
  Tensor to, tlse;
};

/// Operation::second: the inputs of backward, and gq, gk, gv, like dq, dk, dv.
struct SecondInputs {
  using Outputs = SecondOutputs;
  Tensor q, k, v, dO, o, lse, gq, gk, gv;
  Tensor bias{}, slopes{}, sinks{};
  Tensor dlse{};    ///< like lse where Problem::lse_gradient
  Tensor gbias{};   ///< like bias where Problem::bias_direction
  Tensor gsinks{};  ///< like sinks where Problem::sinks_direction
};

/// The gradients of <gq, dq> + <gk, dk> + <gv, dv>: lq like q, lk like k, lv like v, ldO like dO, and ldlse like dlse
/// where that is given. Where Problem::bias_direction, <gbias, dbias> is added, and lbias is like bias; where
/// Problem::sinks_direction, <gsinks, dsinks> is, and lsinks is like sinks.
struct SecondOutputs {
  Tensor lq, lk, lv, ldO;
  Tensor ldlse{}, lbias{}, lsinks{};
};

/// Operation::gradient_x: a1 [batch, heads, n_q, d], a2 and a3 [batch, heads, n_k, d], x [batch, heads, d, d],
/// y [batch, heads, d, d_v], dO, o and lse as for backward. a3, and a2, may be empty as Problem::sources says.
struct GradientXInputs {
  using Outputs = GradientXOutputs;
  Tensor a1, a2, a3, x, y, dO, o, lse;
};

/// g [batch, heads, d, d]
struct GradientXOutputs {
  Tensor g;
};

/// Operation::scores and Operation::weights: q and k as in Inputs; weights also lse [batch, heads, n_q, 1] of the
/// forward pass.
struct ScoresInputs {
  using Outputs = ScoresOutputs;
  Tensor q, k, lse{};
  Tensor bias{}, slopes{};
};

/// s [batch, heads, n_q, n_k]: S, or the weights P.
struct ScoresOutputs {
  Tensor s;
};

/// The tensors of any operation, by the array that they hold. docs/notation.md lists the arrays. To copy them takes the
/// time of those that were named: an operation has few of all arrays.
class Tensors {
 public:
  Tensors() {}
  Tensors(const Tensors& other) : place_(other.place_), size_(other.size_) {
    std::copy_n(other.list.begin(), size_, list.begin());
  }
  Tensors& operator=(const Tensors& other) {
    if (this == &other) return *this;
    place_ = other.place_;
    size_ = other.size_;
    std::copy_n(other.list.begin(), size_, list.begin());
    return *this;
  }
  ~Tensors() = default;

  Tensor& operator[](SlowArray a) {
    std::uint8_t& place = place_[index_of(a)];
    if (place == 0) {
      list[size_] = kNone;
      place = ++size_;
    }
    return list[place - 1U];
  }
  const Tensor& operator[](SlowArray a) const {
    const std::uint8_t place = place_[index_of(a)];
    return place == 0 ? kNone : list[place - 1U];
  }

 private:
  static constexpr Tensor kNone{};
  static_assert(kSlowArrays < 256);

  std::array<std::uint8_t, kSlowArrays> place_{};  ///< in `list`, from 1 on; 0: it was not named
  std::uint8_t size_ = 0;
  union {
    std::array<Tensor, kSlowArrays> list;  ///< those behind `size_` are not even cleared
  };
};

/// Inputs and outputs in one list.
Tensors tensors_of(const Inputs& inputs, const Outputs& outputs);
Tensors tensors_of(const MergeInputs& inputs, const Outputs& outputs);
Tensors tensors_of(const BackwardInputs& inputs, const BackwardOutputs& outputs);
Tensors tensors_of(const TangentInputs& inputs, const TangentOutputs& outputs);
Tensors tensors_of(const SecondInputs& inputs, const SecondOutputs& outputs);
Tensors tensors_of(const GradientXInputs& inputs, const GradientXOutputs& outputs);
Tensors tensors_of(const ScoresInputs& inputs, const ScoresOutputs& outputs);

class Backend;  // redblue/runtime/backend.hpp

struct RunOptions {
  /// f32 or f64: the type of a word in fast memory. bf16 is for forward, and for backward of the exact softmax without
  /// modifiers, with bf16 inputs (o and lse may have other types; K and V of a forward pass may be int8): where the
  /// processor can, it multiplies bf16, weights included, and sums in f32; elsewhere it means f32 (Measured::kernels).
  DType compute = DType::f32;
  /// The run calls it now and then with the share of the work that is done, from any thread, one call at a time.
  std::function<void(double)> progress{};
  /// Threads, at most as many as the pool has; 0: as many as the work is worth. Each has its own fast memory and
  /// workspace. The result is the same to the last bit for any number of threads.
  int threads = 0;
  ThreadPool* pool = nullptr;  ///< where threads come from; null: default_pool()
  /// run_bytes() bytes that the run may use, apart from all tensors; empty: the run allocates.
  std::span<std::byte> memory{};
  /// Gradients whose forward pass runs first (Problem::forward_first): where its o and lse are left, beside the
  /// gradients. What has no data is not kept. The gradients are the same to the last bit. Other runs refuse it.
  Outputs forward{};
  const Backend* backend = nullptr;  ///< where the plan is carried out; null: ram_backend()
};

/// What a run or a count measured. Words are summed over all batches and heads.
struct Measured {
  Io io;
  Words peak;                          ///< most words resident at a time in the fast memory of one thread
  std::optional<Words> peak_bytes{};   ///< count: the same in bytes, where the plan has fast memory in bytes
  std::optional<Words> moved_bytes{};  ///< count: bytes that move, where the plan says what words of slow memory take
  Words flops;                         ///< 2 x multiply-adds of products
  Words staging_words;    ///< run: buffers beside fast memory, for element types or strides that need copying
  Words padding_words;    ///< run: unused words between tiles, so that each tile begins on a cache line
  Words bytes;            ///< run: all memory beside inputs and outputs
  Words converted_words;  ///< run: outputs held in the compute type until the end, because the schedule revisits them
  std::string_view kernels;  ///< run: the instruction set of the kernels' implementations
  int threads = 1;           ///< threads that could take part
  Decisions decisions{};     ///< that the schedule asked for: of the data, or all the worst where there are none
  Words most_per_thread;     ///< most words moved by one thread: io.total() / threads if they shared evenly
};

/// The bytes that run() takes beside inputs and outputs: fast memory, workspace, staging buffers, outputs in the
/// compute type. They depend on the number of threads and on the tensors' types and strides, not on their data. If no
/// lse is to be written, its tensor has no shape. Where a run takes more than this machine has, and more
/// than options.memory holds, the result is a part of what it takes that is already more than both: the rest is not
/// looked for, because that may take hours.
Words run_bytes(const plan::Plan& plan, const Tensors& tensors, const RunOptions& options = {});

/// Throws Unsupported if a run with RunOptions::compute would refuse these tensors, and InvalidProblem if the scale is
/// not finite in that type.
void require_arithmetic(DType compute, const Problem& problem, const Tensors& tensors);

/// Contiguous tensors without data, for all arrays that the operation reads and writes; lse of a forward pass only if
/// it is required. lse is f64 if the other tensors are f64, else f32.
Tensors contiguous_tensors(const Problem& problem, DType dtype);

/// A value for plan::Options::cap: a run on such tensors may take at most `bytes`. It looks at a part of a long problem
/// (redblue/runtime/fewer_tiles.hpp); run looks at all, and throws MemoryError if that takes more.
plan::Cap memory_cap(Words bytes, const Tensors& tensors, const RunOptions& options = {});

/// The bytes of memory that a run takes.
struct RunMemory {
  Words inputs, outputs;  ///< arrays; dimensions of stride 0 count once
  Words beside;           ///< fast memory, workspace, buffers, outputs in the type of the arithmetic

  Words total() const { return inputs + outputs + beside; }
};
/// For tensors with or without data. It looks at a part of a long problem, as memory_cap. Throws what run does of their
/// types and of RunOptions::compute.
RunMemory memory_of_run(const plan::Plan& plan, const Tensors& tensors, const RunOptions& options = {});

/// Runs the chosen row of the plan, after the forward plan if there is one. Throws InvalidProblem when a tensor does
/// not fit the problem or options.threads < 0, MemoryError when the run takes more than RunOptions::memory, the cap of
/// the plan, or what the machine has, and Error when a thread cannot be started. Outputs are undefined if it throws.
/// Several runs may go on at once. If they share a pool, one run uses the threads of the pool, and each of the others
/// only the thread that called it.
Measured run(const plan::Plan& plan, const Tensors& tensors, const RunOptions& options = {});
Measured run(const plan::Plan& plan, const Inputs& inputs, const Outputs& outputs, const RunOptions& options = {});
/// BackwardInputs, TangentInputs, SecondInputs, GradientXInputs or ScoresInputs, by name: lists in braces are Inputs
/// and Outputs.
template <class In>
Measured run(const plan::Plan& plan, const In& inputs, const typename In::Outputs& outputs,
             const RunOptions& options = {}) {
  return run(plan, tensors_of(inputs, outputs), options);
}

/// Runs the chosen row, after the forward plan if there is one, on the counting machine: exact words without data.
/// `now_and_then` is called many times a second; what it throws ends the count. `backend` counts; null: ram_backend().
Measured count(const plan::Plan& plan, const std::function<void()>& now_and_then = {},
               const Backend* backend = nullptr);

/// The loop nest of the chosen row, with the words of every line, without that of a forward plan before it: found by
/// running the schedule without data. Words are those of all batches and heads; what is resident is in bytes where the
/// plan has fast memory in bytes.
std::vector<machine::OutlineLine> outline(const plan::Plan& plan);

/// outline() in columns to read, as `redblue explain` prints it: lines, words moved, and what is resident after each.
std::string outline_text(const plan::Plan& plan);

/// The operations of the chosen row, in order, without those of a forward plan before it. Throws InvalidProblem when
/// there are more than `most`.
machine::Trace trace(const plan::Plan& plan, std::size_t most = 1'000'000);

}  // namespace redblue
