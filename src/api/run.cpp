#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <memory>
#include <new>

#include "engine.hpp"
#include "memory.hpp"
#include "overlap.hpp"
#include "redblue/machine/staging.hpp"
#include "redblue/plan/schedules.hpp"
#include "redblue/schedule/workspace.hpp"
#include "storage_of.hpp"

namespace redblue {

namespace {

bool is_given(const Tensor& t) { return t.shape[0] > 0; }

/// Words of the staging buffers of a plan, and of the forward plan before it: measured once.
template <class T>
class StagingOf {
 public:
  machine::StagingWords operator()(const plan::Plan& plan, const std::array<bool, kSlowArrays>& staged) {
    if (std::find(staged.begin(), staged.end(), true) == staged.end()) return {};
    const auto [known, is_new] = known_.try_emplace(&plan);
    if (is_new) {
      machine::Staging staging(staged);
      machine::Any any(staging);
      engine_of(plan.problem.op).run_on(any, plan);
      known->second = staging.words();
    }
    return known->second;
  }

 private:
  std::map<const plan::Plan*, machine::StagingWords> known_;
};

/// Outputs that live in the compute type while the schedule revisits them, and are converted once at the end: rounding
/// to a narrower type at each visit would add an error per visit.
class Converted {
 public:
  void add(const Tensor& from, const Tensor& to) {
    list_.push_back({from, to});
    words_ += Words(to.shape[0]) * to.shape[1] * to.shape[2] * to.shape[3];
  }
  Words words() const { return words_; }
  template <class T>
  void finish() const {
    for (const auto& [from, to] : list_) {
      const auto [B, H, rows, cols] = to.shape;
      const machine::Storage target = storage_of(to, H, 1, true);
      for (index_t i = 0; i < B * H; ++i)
        machine::scatter<T>(target, {SlowArray::O, i, 0, 0, {rows, cols}},
                            static_cast<const T*>(from.data) + i * rows * cols, cols, 1);
    }
  }

 private:
  struct Pair {
    Tensor from, to;
  };
  std::vector<Pair> list_;
  Words words_;
};

/// Takes from `stack` all that a run takes beside inputs and outputs, and calls execute(plan, memory, converted) where
/// something is to be run: for the forward pass, if one comes first, and for the chosen row, if there is one. Who
/// wants to know only how much that is gives a stack without memory.
template <class T, class Execute>
void lay_out(const plan::Plan& plan, Tensors tensors, Stack& stack, StagingOf<T>& staging_of, const Execute& execute) {
  const Problem& p = plan.problem;
  const auto own = [&](const std::array<index_t, 4>& shape, std::string_view what) {
    return Tensor(stack.take<T>(Words(shape[0]) * shape[1] * shape[2] * shape[3], what), kDTypeOf<T>, shape);
  };
  if (p.forward_first()) {
    const Problem f = p.forward();
    tensors[SlowArray::O] = own(shape_of(f, SlowArray::O), "the output of the forward pass");
    tensors[SlowArray::lse] = own(shape_of(f, SlowArray::lse), "lse");
    if (plan.forward) {
      const Words used = stack.used();
      lay_out<T>(*plan.forward, tensors, stack, staging_of, execute);
      stack.release(used);
    }
  }
  if (plan.rows.empty()) return;

  const Engine& engine = engine_of(p.op);
  Memory<T> memory;
  Converted converted;
  std::array<bool, kSlowArrays> staged{};
  const auto place = [&](SlowArray a, const Tensor& t, bool writable) {
    const bool grouped = t.shape[1] != p.instances() / p.batch;
    machine::Storage& s = memory.slow[index_of(a)];
    s = storage_of(t, p.instances() / p.batch, grouped ? p.group() : 1, writable);
    staged[index_of(a)] = !machine::Ram<T>::is_view(s);
  };
  if (p.sources == Sources::self) tensors[SlowArray::A2] = tensors[SlowArray::A1];
  if (p.sources != Sources::distinct) tensors[SlowArray::A3] = tensors[SlowArray::A2];
  const auto outputs = outputs_of(p);
  for (std::size_t i = 0; i < kSlowArrays; ++i) {
    const auto a = static_cast<SlowArray>(i);
    const Tensor& t = tensors[a];
    if (std::find(outputs.begin(), outputs.end(), a) == outputs.end()) {
      if (is_given(t)) place(a, t, false);
    } else if (!is_given(t)) {
      place(a, own(shape_of(p, a), "lse"), true);  // nobody wants it
    } else if (t.dtype != kDTypeOf<T> && (engine.rewrites_outputs(plan) || a == SlowArray::lse)) {
      // Every schedule that reads lse back does so to compute with it.
      const Tensor wide = own(t.shape, "an output in the compute type");
      converted.add(wide, t);
      place(a, wide, true);
    } else {
      place(a, t, true);
    }
  }
  plan::with_schedules(p.op, [&]<class S, class... More>(plan::ScheduleList<S, More...>) {
    const typename S::Operands operands(p.shape(), 1);
    for (const SlowArray a : engine.workspace(plan)) {
      const Shape shape = schedule::matrix_of(operands, a).shape;
      T* data = stack.take<T>(Words(shape.rows) * shape.cols, "workspace", redblue::name_of(a));
      memory.slow[index_of(a)] = machine::Storage::matrix(data, shape);
    }
  });
  memory.fast.arena = stack.take_span<T>(plan.row().footprint, "fast memory");
  const machine::StagingWords words = staging_of(plan, staged);
  for (std::size_t i = 0; i < words.size(); ++i)
    memory.fast.staging[i] = stack.take_span<T>(words[i], "a staging buffer");
  execute(plan, memory, converted);
}

/// The stack after laying out a run that is not to happen.
template <class T>
void measure(const plan::Plan& plan, const Tensors& tensors, Stack& stack, StagingOf<T>& staging_of) {
  lay_out<T>(plan, tensors, stack, staging_of, [](const auto&...) {});
}

/// "T takes B bytes beside inputs and outputs, b of them for workspace S"
std::string account(const Stack& stack) {
  const Stack::Largest& most = stack.largest();
  return fmt::format("this run takes {} bytes beside inputs and outputs, {} of them for {}{}{}", stack.bytes().str(),
                     most.bytes.str(), most.what, most.array.empty() ? "" : " ", most.array);
}

/// Memory from the system for all of a stack.
std::unique_ptr<std::byte[]> allocate(const Stack& stack) {
  const Words have = Words(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE);
  const auto refusal = [&] {
    return MemoryError(fmt::format("{}, and this machine has {}: choose a schedule without workspace, a smaller fast "
                                   "memory, or a smaller problem",
                                   account(stack), have.str()),
                       stack.bytes(), have);
  };
  if (stack.bytes() > have) throw refusal();
  try {
    return std::make_unique_for_overwrite<std::byte[]>(static_cast<std::size_t>(stack.bytes().to_index()));
  } catch (const std::bad_alloc&) {
    throw refusal();
  }
}

template <class T>
Measured engine_run(const Engine& e, const plan::Plan& plan, const Memory<T>& memory) {
  if constexpr (std::same_as<T, float>)
    return e.run_f32(plan, memory);
  else
    return e.run_f64(plan, memory);
}

template <class T>
Measured run_in(const plan::Plan& plan, const Tensors& tensors, const RunOptions& options) {
  StagingOf<T> staging_of;
  Stack need;
  measure<T>(plan, tensors, need, staging_of);
  if (plan.options.cap && need.bytes() > plan.options.cap->most)
    throw MemoryError(fmt::format("{}, and the plan was made for at most {}: plan for these tensors, or with a larger "
                                  "cap",
                                  account(need), plan.options.cap->most.str()),
                      need.bytes(), plan.options.cap->most);
  std::unique_ptr<std::byte[]> own;
  std::span<std::byte> memory = options.memory;
  if (memory.data() == nullptr) {
    own = allocate(need);
    memory = {own.get(), static_cast<std::size_t>(need.bytes().value())};
  } else if (need.bytes() > memory.size()) {
    throw MemoryError(fmt::format("{}, and the memory given is {}", account(need), memory.size()), need.bytes(),
                      memory.size());
  }

  const double in_all = options.progress ? plan.io().total().to_double() : 0;
  Measured all;
  all.bytes = need.bytes();
  Stack stack(memory);
  lay_out<T>(plan, tensors, stack, staging_of, [&](const plan::Plan& part, Memory<T>& m, const Converted& converted) {
    if (options.progress)
      m.report = [&](const Io& io) { options.progress((all.io + io).total().to_double() / in_all); };
    const Measured measured = engine_run<T>(engine_of(part.problem.op), part, m);
    converted.finish<T>();
    all.io = all.io + measured.io;
    all.peak = std::max(all.peak, measured.peak);
    all.flops += measured.flops;
    all.staging_words = std::max(all.staging_words, measured.staging_words);
    all.converted_words += converted.words();
  });
  return all;
}

/// f(null pointer of the type of a word in fast memory)
template <class F>
decltype(auto) with_compute(DType compute, const F& f) {
  if (compute == DType::f64) return f(static_cast<double*>(nullptr));
  if (compute == DType::f32) return f(static_cast<float*>(nullptr));
  throw Unsupported(fmt::format("compute type {}: arithmetic is f32 or f64", name_of(compute)));
}

/// Those of the operation, with data.
Tensors used(const Problem& p, const Tensors& tensors) {
  Tensors result;
  for (const auto& list : {inputs_of(p), outputs_of(p)})
    for (const SlowArray a : list)
      if (tensors[a].data != nullptr) result[a] = tensors[a];
  return result;
}

}  // namespace

void require_shapes(const Problem& p, const std::vector<SlowArray>& arrays, const Tensors& tensors) {
  for (const SlowArray a : arrays) {
    const Tensor& t = tensors[a];
    if (a == SlowArray::lse && !follows_forward(p.op) && t.data == nullptr) continue;  // not wanted
    const auto wanted = shape_of(p, a);
    if (t.data == nullptr) throw InvalidProblem(fmt::format("tensor {} has no data", tensor_name(a)));
    if (t.shape != wanted)
      throw InvalidProblem(fmt::format("tensor {} is [{}], the problem wants [{}] (batch, heads, sequence, features)",
                                       tensor_name(a), fmt::join(t.shape, ", "), fmt::join(wanted, ", ")));
  }
}

Tensors tensors_of(const Inputs& in, const Outputs& out) {
  Tensors t;
  t[SlowArray::Q] = in.q;
  t[SlowArray::K] = in.k;
  t[SlowArray::V] = in.v;
  t[SlowArray::O] = out.o;
  t[SlowArray::lse] = out.lse;
  return t;
}

Tensors tensors_of(const BackwardInputs& in, const BackwardOutputs& out) {
  Tensors t = tensors_of(Inputs{in.q, in.k, in.v}, Outputs{in.o, in.lse});
  t[SlowArray::dO] = in.dO;
  t[SlowArray::dQ] = out.dq;
  t[SlowArray::dK] = out.dk;
  t[SlowArray::dV] = out.dv;
  return t;
}

Tensors tensors_of(const GradientXInputs& in, const GradientXOutputs& out) {
  Tensors t;
  t[SlowArray::A1] = in.a1;
  t[SlowArray::A2] = in.a2;
  t[SlowArray::A3] = in.a3;
  t[SlowArray::X] = in.x;
  t[SlowArray::Y] = in.y;
  t[SlowArray::dO] = in.dO;
  t[SlowArray::O] = in.o;
  t[SlowArray::lse] = in.lse;
  t[SlowArray::g] = out.g;
  return t;
}

Words run_bytes(const plan::Plan& plan, const Tensors& tensors, const RunOptions& options) {
  return with_compute(options.compute, [&]<class T>(T*) {
    Stack stack;
    StagingOf<T> staging_of;
    measure<T>(plan, tensors, stack, staging_of);
    return stack.bytes();
  });
}

Tensors contiguous_tensors(const Problem& p, DType dtype) {
  Tensors tensors;
  for (const auto& list : {inputs_of(p), outputs_of(p)})
    for (const SlowArray a : list)
      if (a != SlowArray::lse)
        tensors[a] = Tensor(nullptr, dtype, shape_of(p, a));
      else if (follows_forward(p.op) || p.lse_required)
        tensors[a] = Tensor(nullptr, dtype == DType::f64 ? DType::f64 : DType::f32, shape_of(p, a));
  return tensors;
}

plan::Cap memory_cap(Words bytes, const Tensors& tensors, const RunOptions& options) {
  return {bytes, [tensors, options](const plan::Plan& plan) { return run_bytes(plan, tensors, options); }};
}

Measured run(const plan::Plan& plan, const Tensors& tensors, const RunOptions& options) {
  const auto inputs = inputs_of(plan.problem), outputs = outputs_of(plan.problem);
  require_shapes(plan.problem, inputs, tensors);
  require_shapes(plan.problem, outputs, tensors);
  require_no_overlap(tensors, inputs, outputs);
  const Tensors mine = used(plan.problem, tensors);
  if (!follows_forward(plan.problem.op) && is_given(mine[SlowArray::lse]) &&
      plan.row().io.writes[index_of(SlowArray::lse)] == 0)
    throw InvalidProblem(
        fmt::format("schedule {} writes no lse for this plan: set lse_required in the problem, or ask for none",
                    plan.row().schedule));
  return with_compute(options.compute, [&]<class T>(T*) { return run_in<T>(plan, mine, options); });
}

Measured run(const plan::Plan& plan, const Inputs& inputs, const Outputs& outputs, const RunOptions& options) {
  return run(plan, tensors_of(inputs, outputs), options);
}
Measured run(const plan::Plan& plan, const BackwardInputs& inputs, const BackwardOutputs& outputs,
             const RunOptions& options) {
  return run(plan, tensors_of(inputs, outputs), options);
}
Measured run(const plan::Plan& plan, const GradientXInputs& inputs, const GradientXOutputs& outputs,
             const RunOptions& options) {
  return run(plan, tensors_of(inputs, outputs), options);
}

}  // namespace redblue
