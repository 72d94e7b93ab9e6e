#include "run.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <thread>
#include <utility>

#include "describe.hpp"

namespace redblue::python {

namespace {

/// Asks Python for signals now and then, in the thread that made it.
class SignalWatch {
 public:
  void operator()(double /*share*/) {
    if (std::this_thread::get_id() != caller_ || Clock::now() < next_) return;
    next_ = Clock::now() + kEvery;
    const nb::gil_scoped_acquire locked;
    if (PyErr_CheckSignals() != 0) throw Interrupted();
  }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr auto kEvery = std::chrono::milliseconds(50);
  std::thread::id caller_ = std::this_thread::get_id();
  Clock::time_point next_ = Clock::now() + kEvery;
};

/// The chosen row alone, with another seed.
plan::Plan reseeded(const plan::Plan& plan, index_t seed) {
  plan::Plan copy;
  copy.problem = plan.problem;
  copy.problem.seed = seed;
  copy.problem.validate();
  copy.options = plan.options;
  copy.rows = {plan.row()};
  if (plan.forward) copy.forward = std::make_shared<const plan::Plan>(reseeded(*plan.forward, seed));
  return copy;
}

}  // namespace

std::function<void(double)> signal_watch() { return SignalWatch(); }

Form form_of(SlowArray a, bool tokens_first) {
  if (is_statistic(a)) return Form::rows;
  if (is_of_heads(a)) return Form::heads;
  if (is_like_bias(a) || is_of_pairs(a)) return Form::heads_first;
  return tokens_first ? Form::tokens_first : Form::heads_first;
}

bool is_written(const Problem& p, SlowArray a) {
  if (a == SlowArray::O || a == SlowArray::lse) return is_forward(p.op) || (follows_forward(p.op) && !p.forward_given);
  const auto outputs = facts_of(p.op).writes;
  return std::ranges::find(outputs, a) != outputs.end();
}

namespace {

/// The scales of int8 keys or values. Python has brought them to an array of NumPy of three dimensions.
Scales scales_in(nb::handle array, nb::handle keys, SlowArray name, Buffers& buffers) {
  const Given g = from_buffer(array, name, false, buffers);
  if (g.dtype != DType::f32 || g.dimensions != 3) throw nb::type_error("scales: fp32 of 3 dimensions");
  return {static_cast<const float*>(g.data), nb::cast<index_t>(keys), g.strides[0], g.strides[1], g.strides[2]};
}

}  // namespace

Tensors tensors_in(nb::handle arrays, const Problem& problem, bool tokens_first, Buffers& buffers) {
  constexpr Py_ssize_t kArrays = std::ssize(kRunArrays), kWithScales = kArrays + 3;
  const Py_ssize_t size = PyTuple_CheckExact(arrays.ptr()) == 0 ? 0 : PyTuple_Size(arrays.ptr());
  if (size != kArrays && size != kWithScales)
    throw nb::type_error(fmt::format("arrays: a tuple of {}", kRunArrays.size()).c_str());
  Tensors result;
  for (std::size_t i = 0; i < kRunArrays.size(); ++i) {
    const nb::handle array = PyTuple_GetItem(arrays.ptr(), static_cast<Py_ssize_t>(i));
    if (array.is_none()) continue;
    const SlowArray a = kRunArrays[i];
    result[a] = tensor_of(array, form_of(a, tokens_first), a, is_written(problem, a), buffers);
  }
  if (size == kWithScales) {
    const nb::handle keys = PyTuple_GetItem(arrays.ptr(), kArrays + 2);
    for (const SlowArray a : {SlowArray::K, SlowArray::V})
      result[a].scales = scales_in(PyTuple_GetItem(arrays.ptr(), kArrays + (a == SlowArray::V)), keys, a, buffers);
  }
  return result;
}

Measured run(const NamedPlan& p, const Tensors& tensors, index_t seed, std::function<void(double)> progress) {
  const Problem& problem = p.plan.problem;
  RunOptions options;
  options.progress = std::move(progress);
  options.compute = p.wanted.compute;
  options.pool = &pool_of(p.wanted.threads);
  if (problem.forward_first()) options.forward = {tensors[SlowArray::O], tensors[SlowArray::lse]};
  const bool as_planned = problem.dropout == 0 || seed == problem.seed;
  Measured measured = as_planned ? redblue::run(p.plan, tensors, options, p.memo)
                                 : redblue::run(reseeded(p.plan, seed), tensors, options);
  count_run(p, seed);
  return measured;
}

Measured run_tensors(const NamedPlan& p, const Tensors& tensors, index_t seed) {
  constexpr index_t kLongFlops = 2'000'000'000;  // some 10 ms: shorter runs end before anyone asks
  const bool is_long = p.plan.row().flops > kLongFlops;
  return unlocked([&] { return run(p, tensors, seed, is_long ? signal_watch() : std::function<void(double)>()); });
}

nb::object run(const NamedPlan& p, nb::handle arrays, bool tokens_first, index_t seed, bool measure) {
  Buffers buffers;
  const Tensors tensors = tensors_in(arrays, p.plan.problem, tokens_first, buffers);
  const Measured m = run_tensors(p, tensors, seed);
  return measure ? nb::object(describe(m)) : nb::none();
}

nb::dict counted(const NamedPlan& p) {
  return describe(unlocked([&] { return count(p.plan, [watch = signal_watch()] { watch(0); }); }));
}

}  // namespace redblue::python
