#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>
#include <new>
#include <vector>

#include "engine.hpp"
#include "overlap.hpp"
#include "redblue/plan/schedules.hpp"
#include "redblue/schedule/workspace.hpp"
#include "storage_of.hpp"

namespace redblue {

namespace {

/// make(), which takes about this many words of T from the system; says who wanted them if they cannot be had.
template <class T, class Make>
auto with_memory(Words words, std::string_view what, const Make& make) {
  const Words bytes = words * sizeof(T), have = Words(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE);
  const auto refusal = [&] {
    return CapacityError(
        fmt::format(
            "{} needs {} bytes and this machine has {}: choose fewer threads, a schedule without workspace, or a "
            "smaller problem",
            what, bytes.str(), have.str()),
        bytes, have);
  };
  if (bytes > have) throw refusal();
  try {
    return make();
  } catch (const std::bad_alloc&) {
    throw refusal();
  }
}

template <class T>
std::unique_ptr<T[]> allocate(Words words, std::string_view what) {
  return with_memory<T>(
      words, what, [&] { return std::make_unique_for_overwrite<T[]>(static_cast<std::size_t>(words.to_index())); });
}

/// An array in the compute type, beside the caller's memory.
template <class T>
struct Own {
  std::unique_ptr<T[]> data;
  Words words;
  Tensor tensor;

  Own(const std::array<index_t, 4>& shape, std::string_view what)
      : words(Words(shape[0]) * shape[1] * shape[2] * shape[3]) {
    data = allocate<T>(words, what);
    tensor = Tensor(data.get(), kDTypeOf<T>, shape);
  }
};

/// Outputs that live in the compute type while the schedule revisits them, and are converted once at the end: rounding
/// to a narrower type at each visit would add an error per visit.
template <class T>
class Working {
 public:
  /// Where the schedule writes `target`.
  Tensor at(const Tensor& target, bool revisited) {
    if (!revisited || target.dtype == kDTypeOf<T>) return target;
    list_.push_back({target, Own<T>(target.shape, "an output in the compute type")});
    return list_.back().own.tensor;
  }
  Words words() const {
    Words total;
    for (const Entry& e : list_) total += e.own.words;
    return total;
  }
  void finish() const {
    for (const Entry& e : list_) {
      const auto [B, H, rows, cols] = e.target.shape;
      const machine::Storage to = storage_of(e.target, H, 1, true);
      for (index_t i = 0; i < B * H; ++i)
        machine::scatter<T>(to, {SlowArray::O, i, 0, 0, {rows, cols}}, e.own.data.get() + i * rows * cols, cols, 1);
    }
  }

 private:
  struct Entry {
    Tensor target;
    Own<T> own;
  };
  std::vector<Entry> list_;
};

template <class T>
Measured engine_run(const Engine& e, const plan::Plan& plan, const Resources& with) {
  if constexpr (std::same_as<T, float>)
    return e.run_f32(plan, with);
  else
    return e.run_f64(plan, with);
}

/// How many of the pool's threads a run takes.
int workers_of(const plan::Plan& plan, int threads, const ThreadPool& pool) {
  if (threads < 0) throw InvalidProblem(fmt::format("threads = {}: give a number from 1 on, or 0 for all", threads));
  if (threads > 0) return std::min(threads, pool.size());
  // To wake a thread that sleeps takes about 10 us, in which one that is awake does this much at 200 GFLOP/s.
  constexpr index_t kFlopsPerThread = 2'000'000;
  return static_cast<int>(std::clamp(plan.row().flops / kFlopsPerThread, Words(1), Words(pool.size())).to_index());
}

/// Adds up what the workers have moved, and tells the caller how far the run is, from one thread at a time.
class ProgressReport {
 public:
  ProgressReport(const std::function<void(double)>& tell, int workers, Words before, Words in_all)
      : tell_(tell), moved_(static_cast<std::size_t>(workers)), before_(before), in_all_(in_all) {}

  void operator()(int worker, index_t words) {
    moved_[static_cast<std::size_t>(worker)] = words;
    const std::unique_lock lock(telling_, std::try_to_lock);
    if (!lock) return;  // somebody tells already
    Words sum = before_;
    for (const auto& m : moved_) sum += m.load();
    tell_(sum.to_double() / in_all_.to_double());
  }

 private:
  const std::function<void(double)>& tell_;
  std::vector<std::atomic<index_t>> moved_;
  Words before_, in_all_;
  std::mutex telling_;
};

template <class T>
Measured run_in(const plan::Plan& plan, Tensors tensors, const RunOptions& options, Words moved_before, Words in_all) {
  const Problem& p = plan.problem;
  const plan::Row& row = plan.row();
  const Engine& engine = engine_of(p.op);
  std::vector<Own<T>> own;  // what nobody gave or wants
  const auto make_own = [&](SlowArray a, const std::array<index_t, 4>& shape, const char* what) {
    own.emplace_back(shape, what);
    tensors[a] = own.back().tensor;
  };
  Measured before;
  if (plan.forward) {
    const Problem& f = plan.forward->problem;
    make_own(SlowArray::O, shape_of(f, SlowArray::O), "the output of the forward pass");
    make_own(SlowArray::lse, shape_of(f, SlowArray::lse), "lse");
    before = run_in<T>(*plan.forward, tensors, options, moved_before, in_all);
    moved_before += before.io.total();
  }

  Resources with;
  with.pool = options.pool == nullptr ? &default_pool() : options.pool;
  with.workers = workers_of(plan, options.threads, *with.pool);
  with.bf16 = options.compute == DType::bf16;
  machine::SlowMemory slow;
  Working<T> working;
  const auto place = [&](SlowArray a, const Tensor& t, bool writable) {
    const bool grouped = t.shape[1] != p.instances() / p.batch;
    slow[index_of(a)] = storage_of(t, p.instances() / p.batch, grouped ? p.group() : 1, writable);
  };
  if (p.sources == Sources::self) tensors[SlowArray::A2] = tensors[SlowArray::A1];
  if (p.sources != Sources::distinct) tensors[SlowArray::A3] = tensors[SlowArray::A2];
  const auto is_one_of = [](const auto& list, SlowArray a) {
    return std::find(list.begin(), list.end(), a) != list.end();
  };
  const auto outputs = outputs_of(p);
  for (std::size_t i = 0; i < kSlowArrays; ++i) {
    const auto a = static_cast<SlowArray>(i);
    if (is_one_of(outputs, a)) {
      if (a == SlowArray::lse && tensors[a].data == nullptr) make_own(a, shape_of(p, a), "lse");
      // Every schedule that reads lse back does so to compute with it.
      place(a, working.at(tensors[a], engine.rewrites_outputs(plan) || a == SlowArray::lse), true);
    } else if (tensors[a].data != nullptr) {
      place(a, tensors[a], false);
    }
  }
  const auto workspace = engine.workspace(plan);
  // A workspace for each instance under way.
  const index_t sets = workspace.empty() ? 1 : std::min<index_t>(with.workers, p.instances());
  with.slow.assign(static_cast<std::size_t>(sets), slow);
  for (const auto& [array, shape, instance, first_col] : workspace) {
    own.emplace_back(std::array<index_t, 4>{1, sets, shape.rows, shape.cols},
                     fmt::format("workspace {}", redblue::name_of(array)));
    for (index_t i = 0; i < sets; ++i)
      with.slow[static_cast<std::size_t>(i)][index_of(array)] =
          machine::Storage::matrix(own.back().data.get() + i * shape.words(), shape);
  }
  with.words = row.footprint.to_index();
  ProgressReport report(options.progress, with.workers, moved_before, in_all);
  if (options.progress) with.report = [&](int worker, index_t words) { report(worker, words); };
  Measured m =
      with_memory<T>(row.footprint * with.workers, "fast memory", [&] { return engine_run<T>(engine, plan, with); });
  if (options.progress) options.progress((moved_before + m.io.total()).to_double() / in_all.to_double());
  working.finish();
  m.converted_words = working.words();
  if (plan.forward) {
    m.io = before.io + m.io;
    m.peak = std::max(before.peak, m.peak);
    m.flops += before.flops;
    m.staging_words = std::max(before.staging_words, m.staging_words);
    m.padding_words = std::max(before.padding_words, m.padding_words);
    m.threads = std::max(before.threads, m.threads);
    m.most_per_thread += before.most_per_thread;
  }
  return m;
}

std::vector<NamedTensor> named(const std::vector<SlowArray>& arrays, const Tensors& tensors) {
  std::vector<NamedTensor> list;
  for (const SlowArray a : arrays)
    if (tensors[a].data != nullptr) list.push_back({tensor_name(a), tensors[a]});
  return list;
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

Measured run(const plan::Plan& plan, const Tensors& tensors, const RunOptions& options) {
  const auto inputs = inputs_of(plan.problem), outputs = outputs_of(plan.problem);
  require_shapes(plan.problem, inputs, tensors);
  require_shapes(plan.problem, outputs, tensors);
  require_no_overlap(named(inputs, tensors), named(outputs, tensors));
  Tensors used;
  for (const auto* list : {&inputs, &outputs})
    for (const SlowArray a : *list) used[a] = tensors[a];
  if (!follows_forward(plan.problem.op) && used[SlowArray::lse].data != nullptr &&
      plan.row().io.writes[index_of(SlowArray::lse)] == 0)
    throw InvalidProblem(
        fmt::format("schedule {} writes no lse for this plan: set lse_required in the problem, or ask for none",
                    plan.row().schedule));
  const Words total = plan.io().total();
  if (options.compute == DType::f64) return run_in<double>(plan, used, options, 0, total);
  if (options.compute == DType::f32) return run_in<float>(plan, used, options, 0, total);
  if (options.compute == DType::bf16) {
    if (plan.problem.op != Operation::forward)
      throw Unsupported(
          fmt::format("compute type bf16 for {}: bf16 products are for the forward pass, f32 and f64 for all",
                      name_of(plan.problem.op)));
    for (const SlowArray a : inputs)
      if (tensors[a].dtype != DType::bf16 || tensors[a].strides[3] != 1)
        throw Unsupported(
            fmt::format("compute type bf16: {} must be bf16, the features of a row side by side; f32 takes "
                        "any type and strides",
                        tensor_name(a)));
    return run_in<float>(plan, used, options, 0, total);
  }
  throw Unsupported(
      fmt::format("compute type {}: arithmetic is f32, f64, or bf16 with sums in f32", name_of(options.compute)));
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
