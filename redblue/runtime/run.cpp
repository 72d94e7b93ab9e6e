#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <mutex>
#include <new>

#include "redblue/hardware/physical_memory.hpp"
#include "redblue/language/word_type.hpp"
#include "redblue/runtime/arena_memo.hpp"
#include "redblue/runtime/memory.hpp"
#include "redblue/runtime/overlap.hpp"
#include "redblue/planner/shapes.hpp"
#include "redblue/runtime/storage_of.hpp"

namespace redblue {

namespace {

bool is_given(const Tensor& t) { return t.shape[0] > 0; }

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
  void finish(ThreadPool& pool, int workers) const {
    constexpr index_t kRows = 256;  // of a piece: pieces are what workers share
    const kernel::RowConversion<T> row_conversion = kernel::implementations<T>(best_isa()).row_conversion;
    for (const Pair& pair : list_) {
      const index_t heads = pair.to.shape[1], rows = pair.to.shape[2], cols = pair.to.shape[3];
      const index_t of_instance = ceil_div(rows, kRows), pieces = pair.to.shape[0] * heads * of_instance;
      const machine::Storage target = storage_of(pair.to, heads, 1, true);
      const T* const words = static_cast<const T*>(pair.from.data);
      pool.run(workers, [&](int worker) {
        for (index_t i = worker; i < pieces; i += workers) {
          const index_t instance = i / of_instance, row = i % of_instance * kRows;
          machine::scatter<T>(target, {SlowArray::O, instance, row, 0, {std::min(kRows, rows - row), cols}},
                              words + (instance * rows + row) * cols, cols, 1, row_conversion);
        }
      });
    }
  }

 private:
  struct Pair {
    Tensor from, to;
  };
  std::vector<Pair> list_;
  Words words_;
};

/// Arrays in the order in which a pattern takes their queries or keys, a bias in both: inputs are gathered before the
/// schedule runs, outputs scattered afterwards.
class Reordered {
 public:
  Reordered(const Problem& p, std::shared_ptr<const Sequences> sequences)
      : kv_heads_(p.kv_heads.value_or(p.heads)), sequences_(std::move(sequences)) {}

  /// Does anything move?
  bool any() const { return sequences_ != nullptr && sequences_->reordered(); }
  bool moves(SlowArray a) const { return any() && (side_of(a) != Side::neither || is_bias(a)); }
  void gather_later(SlowArray a, const Tensor& from, const Tensor& to) { inputs_.push_back({a, from, to}); }
  void scatter_later(SlowArray a, const Tensor& from, const Tensor& to) { outputs_.push_back({a, from, to}); }

  void gather(ThreadPool& pool, int workers) const {
    for (const Move& m : inputs_) {
      const std::size_t width = size_of(m.from.dtype), cols = static_cast<std::size_t>(m.from.shape[3]);
      const bool whole_rows = !is_bias(m.array) && m.from.strides[3] == 1;
      for_rows(pool, workers, m, [&](index_t instance, index_t place, index_t row, const auto& column) {
        const auto at = [&](const Tensor& t, index_t r) {
          const index_t B = instance / t.shape[1], H = instance % t.shape[1];
          return static_cast<std::byte*>(t.data) +
                 (B * t.strides[0] + H * t.strides[1] + r * t.strides[2]) * static_cast<index_t>(width);
        };
        const std::byte* from = at(m.from, row);
        std::byte* to = at(m.to, place);
        if (whole_rows) return void(std::memcpy(to, from, cols * width));
        for (index_t t = 0; t < m.from.shape[3]; ++t)
          std::memcpy(to + t * static_cast<index_t>(width),
                      from + column(t) * m.from.strides[3] * static_cast<index_t>(width), width);
      });
    }
  }
  template <class T>
  void scatter(ThreadPool& pool, int workers) const {
    for (const Move& m : outputs_) {
      const machine::Storage target = storage_of(m.to, m.to.shape[1], 1, true);
      const index_t rows = m.to.shape[2], cols = m.to.shape[3];
      const kernel::RowConversion<T> row_conversion = kernel::implementations<T>(best_isa()).row_conversion;
      for_rows(pool, workers, m, [&](index_t instance, index_t place, index_t row, const auto& column) {
        const T* words = static_cast<const T*>(m.from.data) + (instance * rows + place) * cols;
        if (!is_bias(m.array))
          return machine::scatter<T>(target, {m.array, instance, row, 0, {1, cols}}, words, cols, 1, row_conversion);
        for (index_t t = 0; t < cols; ++t)
          machine::scatter<T>(target, {m.array, instance, row, column(t), {1, 1}}, words + t, 1, 1);
      });
    }
  }

 private:
  struct Move {
    SlowArray array;
    Tensor from, to;
  };
  static bool is_bias(SlowArray a) { return a == SlowArray::bias || a == SlowArray::dBias; }
  /// f(batch and head, place in the order, row of the caller's array, column(place) of the caller's array). What all
  /// share of a bias stays. Workers share the heads.
  template <class F>
  void for_rows(ThreadPool& pool, int workers, const Move& m, const F& f) const {
    const index_t instances = m.from.shape[0] * m.from.shape[1];
    pool.run(workers, [&](int worker) {
      for (index_t i = worker; i < instances; i += workers) for_rows_of(i, m, f);
    });
  }
  template <class F>
  void for_rows_of(index_t i, const Move& m, const F& f) const {
    const auto [batch, heads, rows, cols] = m.from.shape;
    const index_t group = std::max<index_t>(heads / kv_heads_, 1);
    const Order* order = sequences_->order_of(i / heads * kv_heads_ + i % heads / group, kv_heads_);
    const auto in = [order](bool moves, std::vector<index_t> Order::* list) {
      return [to = moves && order != nullptr ? &(order->*list) : nullptr](index_t place) {
        return to == nullptr ? place : (*to)[static_cast<std::size_t>(place)];
      };
    };
    const auto row = in(!is_bias(m.array) || rows > 1, side_of(m.array) == Side::keys ? &Order::keys : &Order::queries),
               column = in(is_bias(m.array) && cols > 1, &Order::keys);
    for (index_t place = 0; place < rows; ++place) f(i, place, row(place), column);
  }

  index_t kv_heads_;
  std::shared_ptr<const Sequences> sequences_;
  std::vector<Move> inputs_, outputs_;
};

/// How far to go to find out what a run takes.
struct Effort {
  Words enough;  ///< no walk where more bytes than this are taken already
  Walk walk;
};

/// Takes from `stack` all that a run takes beside inputs and outputs, and calls execute(plan, resources, converted,
/// reordered) where something is to be run: for the forward pass, if one comes first, and for the chosen row, if there
/// is one. To learn the size only, pass a stack without memory. Returns whether that was all: false if it stopped at
/// `effort.enough`.
template <class T, class Execute>
bool lay_out(const plan::Plan& plan, Tensors tensors, const RunOptions& options, const Effort& effort, Stack& stack,
             ArenaMemo& memo, const Execute& execute) {
  const Problem& p = plan.problem;
  const auto own = [&](const std::array<index_t, 4>& shape, std::string_view what) {
    return Tensor(stack.take<T>(Words(shape[0]) * shape[1] * shape[2] * shape[3], what), kDTypeOf<T>, shape);
  };
  Converted converted;
  if (p.forward_first()) {
    const Problem f = p.forward();
    for (const SlowArray a : {SlowArray::O, SlowArray::lse})
      if (const Tensor kept = tensors[a]; !is_given(kept) || kept.dtype != kDTypeOf<T>) {
        tensors[a] = own(shape_of(f, a), a == SlowArray::O ? "the output of the forward pass" : "lse");
        if (is_given(kept)) converted.add(tensors[a], kept);
      }
    if (plan.forward) {
      const Words used = stack.used();
      if (!lay_out<T>(*plan.forward, tensors, options, effort, stack, memo, execute)) return false;
      stack.release(used);
    }
  }
  if (plan.rows.empty()) return true;

  const plan::Row& row = plan.row();
  Resources<T> with;
  with.pool = options.pool == nullptr ? &default_pool() : options.pool;
  const int workers = workers_of(plan, options.threads, *with.pool);
  with.bf16 = options.compute == DType::bf16;
  with.slow.resize(1);
  const auto place = [&](SlowArray a, const Tensor& t, bool writable) {
    const bool grouped = t.shape[1] != p.instances() / p.batch;
    with.slow.front()[index_of(a)] = is_of_modifiers(a)
                                         ? storage_of_modifier(t, p, writable)
                                         : storage_of(t, p.instances() / p.batch, grouped ? p.group() : 1, writable);
  };
  if (p.sources == Sources::self) tensors[SlowArray::A2] = tensors[SlowArray::A1];
  if (p.sources != Sources::distinct) tensors[SlowArray::A3] = tensors[SlowArray::A2];
  const Shapes shapes(p);
  const auto outputs = shapes.outputs();
  Reordered reordered(p, shapes.sizes().sequences);
  for (std::size_t i = 0; i < kSlowArrays; ++i) {
    const auto a = static_cast<SlowArray>(i);
    const Tensor& t = tensors[a];
    const bool moves = is_given(t) && reordered.moves(a);
    if (std::find(outputs.begin(), outputs.end(), a) == outputs.end()) {
      if (!is_given(t)) continue;
      Tensor copy = t;
      if (moves) {
        const Words words = Words(t.shape[0]) * t.shape[1] * t.shape[2] * t.shape[3];
        const Words whole = (words * size_of(t.dtype) + sizeof(T) - 1) / sizeof(T);
        copy =
            Tensor(stack.take<T>(whole, "an input in the order of the pattern", redblue::name_of(a)), t.dtype, t.shape);
        reordered.gather_later(a, t, copy);
      }
      place(a, copy, false);
    } else if (moves) {
      const Tensor copy = own(t.shape, "an output in the order of the pattern");
      reordered.scatter_later(a, copy, t);
      place(a, copy, true);
    } else if (!is_given(t)) {
      place(a, own(shapes[a], "lse"), true);  // the caller does not ask for it
    } else if (t.dtype != kDTypeOf<T> &&
               (row.algorithm->traits.rewrites_outputs || a == SlowArray::lse || is_of_modifiers(a))) {
      // Every schedule that reads lse back does so to compute with it.
      const Tensor wide = own(t.shape, "an output in the compute type");
      converted.add(wide, t);
      place(a, wide, true);
    } else {
      place(a, t, true);
    }
  }
  const auto workspace = row.algorithm->workspace(shapes.sizes(), row.tiling);
  // A workspace for each instance under way.
  const index_t sets = workspace.empty() ? 1 : std::min<index_t>(workers, p.instances());
  for (index_t more = 1; more < sets; ++more) with.slow.push_back(with.slow.front());
  for (const Workspace& m : workspace)
    for (machine::SlowMemory& set : with.slow)
      set[index_of(m.array)] = machine::Storage::matrix(
          stack.take<T>(m.words(), "workspace", redblue::name_of(m.array)), {m.shape.rows, m.row_stride});
  with.words = row.footprint.to_index();
  if (stack.bytes() > effort.enough) return false;
  const machine::ArenaWords words = memo.words<T>(plan, with.slow.front(), with.bf16, effort.walk);
  with.arenas.resize(static_cast<std::size_t>(workers));
  for (machine::ArenaMemory<T>& arena : with.arenas) {
    arena.tiles = stack.take_span<T>(words.tiles, "fast memory");
    for (std::size_t i = 0; i < words.staging.size(); ++i)
      arena.staging[i] = stack.take_span<T>(words.staging[i], "a staging buffer");
  }
  execute(plan, with, converted, reordered);
  return true;
}

/// What a run takes beside inputs and outputs.
struct Need {
  Words bytes;
  Stack::Largest most;
  bool all;  ///< false: it takes at least this, which is more than the machine has and more than the caller gave

  /// "this run takes B bytes beside inputs and outputs, b of them for workspace S"
  std::string account() const {
    return fmt::format("this run takes {}{} bytes beside inputs and outputs, {} of them for {}{}{}",
                       all ? "" : "at least ", bytes.str(), most.bytes.str(), most.what, most.array.empty() ? "" : " ",
                       most.array);
  }
};

template <class T>
Need need_of(const plan::Plan& plan, const Tensors& tensors, const RunOptions& options, ArenaMemo& memo,
             Walk walk = Walk::whole) {
  Stack stack;
  const Effort effort{std::max(physical_memory(), Words(options.memory.size())), walk};
  const bool all = lay_out<T>(plan, tensors, options, effort, stack, memo, [](const auto&...) {});
  return {stack.bytes(), stack.largest(), all};
}

/// All of it from the system.
std::unique_ptr<std::byte[]> allocate(const Need& need) {
  const Words have = physical_memory();
  const auto refusal = [&] {
    return MemoryError(fmt::format("{}, and this machine has {}: choose fewer threads, a schedule without workspace, a "
                                   "smaller fast memory, or a smaller problem",
                                   need.account(), have.str()),
                       need.bytes, have);
  };
  if (need.bytes > have) throw refusal();
  try {
    return std::make_unique_for_overwrite<std::byte[]>(static_cast<std::size_t>(need.bytes.to_index()));
  } catch (const std::bad_alloc&) {
    throw refusal();
  }
}

/// Runs in this memory, and adds up what is measured. Returns false where the schedule takes more than these bytes of
/// it: then it has not begun.
template <class T>
bool run_in_memory(const plan::Plan& plan, const Tensors& tensors, const RunOptions& options, ArenaMemo& memo,
                   std::span<std::byte> memory, Words bytes, Measured& all) {
  Stack stack(memory);
  bool fits = true;
  const auto execute = [&](const plan::Plan& part, Resources<T>& with, const Converted& converted,
                           const Reordered& reordered) {
    fits = fits && stack.bytes() <= bytes;
    if (!fits) return;
    std::optional<ProgressReport> report;
    if (options.progress) {
      report.emplace(options.progress, static_cast<int>(with.arenas.size()), all.io.total(), plan.io().total());
      with.report = std::ref(*report);
    }
    ThreadPool& pool = *with.pool;
    const auto workers = static_cast<int>(with.arenas.size());
    reordered.gather(pool, workers);
    const Measured m = run_row<T>(part, std::move(with));
    reordered.scatter<T>(pool, workers);
    converted.finish<T>(pool, workers);
    all.io = all.io + m.io;
    all.peak = std::max(all.peak, m.peak);
    all.flops += m.flops;
    all.staging_words = std::max(all.staging_words, m.staging_words);
    all.padding_words = std::max(all.padding_words, m.padding_words);
    all.converted_words += converted.words();
    all.decisions += m.decisions;
    all.kernels = m.kernels;
    all.threads = std::max(all.threads, m.threads);
    all.most_per_thread += m.most_per_thread;
    if (options.progress) options.progress(all.io.total().to_double() / plan.io().total().to_double());
  };
  fits = lay_out<T>(plan, tensors, options, {bytes, Walk::whole}, stack, memo, execute) && fits;
  all.bytes = stack.bytes();
  return fits;
}

template <class T>
Measured run_in(const plan::Plan& plan, const Tensors& tensors, const RunOptions& options, ArenaMemo& memo) {
  Measured all;
  // What was enough for runs before it is enough for most runs. Whether it is, is seen when this one is laid out.
  const index_t enough = memo.bytes();
  if (enough > 0 && plan.forward == nullptr && options.memory.data() == nullptr && !plan.options.cap) {
    const auto size = static_cast<std::size_t>(enough);
    const std::unique_ptr<std::byte[]> own(new (std::nothrow) std::byte[size]);
    if (own != nullptr && run_in_memory<T>(plan, tensors, options, memo, {own.get(), size}, enough, all)) return all;
  }
  const Need need = need_of<T>(plan, tensors, options, memo);
  if (plan.options.cap && need.bytes > plan.options.cap->most)
    throw MemoryError(fmt::format("{}, and the plan was made for at most {}: plan for these tensors, or with a larger "
                                  "cap",
                                  need.account(), plan.options.cap->most.str()),
                      need.bytes, plan.options.cap->most);
  std::unique_ptr<std::byte[]> own;
  std::span<std::byte> memory = options.memory;
  if (memory.data() == nullptr) {
    own = allocate(need);
    memory = {own.get(), static_cast<std::size_t>(need.bytes.to_index())};
    memo.remember(need.bytes.to_index());
  } else if (need.bytes > memory.size()) {
    throw MemoryError(fmt::format("{}, and the memory given is {}", need.account(), memory.size()), need.bytes,
                      memory.size());
  }
  run_in_memory<T>(plan, tensors, options, memo, memory, need.bytes, all);
  return all;
}

/// f(null pointer of the type of a word in fast memory)
template <class F>
decltype(auto) with_compute(DType compute, const Problem& p, const Tensors& tensors, const F& f) {
  require_arithmetic(compute, p, tensors);
  if (compute == DType::f64) return f(static_cast<double*>(nullptr));
  return f(static_cast<float*>(nullptr));
}

/// The arrays that a run writes.
std::vector<SlowArray> written_by(const Shapes& shapes, const RunOptions& options) {
  std::vector<SlowArray> list = shapes.outputs();
  if (shapes.problem().forward_first()) {
    if (options.forward.o.data != nullptr) list.push_back(SlowArray::O);
    if (options.forward.lse.data != nullptr) list.push_back(SlowArray::lse);
  }
  return list;
}

/// The caller's tensors, those of a forward pass that runs first from RunOptions::forward.
Tensors with_forward(const Problem& p, Tensors tensors, const RunOptions& options) {
  if (!p.forward_first() && (options.forward.o.data != nullptr || options.forward.lse.data != nullptr))
    throw InvalidProblem(
        fmt::format("RunOptions::forward is for gradients whose forward pass runs first, not for {}{}", name_of(p.op),
                    follows_forward(p.op) ? " with o and lse given, or a score function without statistics" : ""));
  if (p.forward_first()) {
    tensors[SlowArray::O] = options.forward.o;
    tensors[SlowArray::lse] = options.forward.lse;
  }
  return tensors;
}

/// Those of these arrays, with data.
Tensors used(const Tensors& tensors, const std::vector<SlowArray>& inputs, const std::vector<SlowArray>& outputs) {
  Tensors result;
  for (const auto* list : {&inputs, &outputs})
    for (const SlowArray a : *list)
      if (tensors[a].data != nullptr) result[a] = tensors[a];
  return result;
}

void require_shapes(const Shapes& shapes, const std::vector<SlowArray>& arrays, const Tensors& tensors) {
  const Problem& p = shapes.problem();
  for (const SlowArray a : arrays) {
    const Tensor& t = tensors[a];
    if (a == SlowArray::lse && is_forward(p.op) && t.data == nullptr) continue;  // not wanted
    auto wanted = shapes[a];
    if ((a == SlowArray::slopes || a == SlowArray::sinks) && t.shape[0] == p.batch) wanted[0] = p.batch;
    if (t.dtype == DType::boolean && a != SlowArray::bias)
      throw Unsupported(fmt::format("tensor {} is bool: only a bias may be, as a mask", tensor_name(a)));
    if (t.data == nullptr) throw InvalidProblem(fmt::format("tensor {} has no data", tensor_name(a)));
    if (t.shape != wanted)
      throw InvalidProblem(fmt::format("tensor {} is [{}], the problem wants [{}] (batch, heads, sequence, features)",
                                       tensor_name(a), fmt::join(t.shape, ", "), fmt::join(wanted, ", ")));
  }
}

/// The tensors that a run takes.
Tensors checked(const plan::Plan& plan, const Tensors& tensors, const RunOptions& options) {
  const Shapes shapes(plan.problem);
  const auto inputs = shapes.inputs(), outputs = written_by(shapes, options);
  const Tensors all = with_forward(plan.problem, tensors, options);
  require_shapes(shapes, inputs, all);
  require_shapes(shapes, outputs, all);
  for (const SlowArray a : outputs)
    if (all[a].read_only)
      throw InvalidProblem(
          fmt::format("tensor {} is a view of const words: an output must be writable", tensor_name(a)));
  require_no_overlap(all, inputs, outputs, options.memory);
  Tensors mine = used(all, inputs, outputs);
  if (is_forward(plan.problem.op) && is_given(mine[SlowArray::lse]) &&
      plan.row().io.writes[index_of(SlowArray::lse)] == 0)
    throw InvalidProblem(
        fmt::format("schedule {} writes no lse for this plan: set lse_required in the problem, or ask for none",
                    plan.row().schedule));
  return mine;
}

}  // namespace

void require_shapes(const Problem& p, const std::vector<SlowArray>& arrays, const Tensors& tensors) {
  require_shapes(Shapes(p), arrays, tensors);
}

Tensors tensors_of(const Inputs& in, const Outputs& out) {
  Tensors t;
  t[SlowArray::Q] = in.q;
  t[SlowArray::K] = in.k;
  t[SlowArray::V] = in.v;
  t[SlowArray::bias] = in.bias;
  t[SlowArray::slopes] = in.slopes;
  t[SlowArray::sinks] = in.sinks;
  t[SlowArray::O] = out.o;
  t[SlowArray::lse] = out.lse;
  return t;
}

Tensors tensors_of(const BackwardInputs& in, const BackwardOutputs& out) {
  Tensors t = tensors_of(Inputs{in.q, in.k, in.v, in.bias, in.slopes, in.sinks}, Outputs{in.o, in.lse});
  t[SlowArray::dO] = in.dO;
  t[SlowArray::dQ] = out.dq;
  t[SlowArray::dK] = out.dk;
  t[SlowArray::dV] = out.dv;
  t[SlowArray::dBias] = out.dbias;
  t[SlowArray::dSinks] = out.dsinks;
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

Tensors tensors_of(const ScoresInputs& in, const ScoresOutputs& out) {
  Tensors t = tensors_of(Inputs{in.q, in.k, {}, in.bias, in.slopes}, Outputs{});
  t[SlowArray::lse] = in.lse;
  t[SlowArray::S] = t[SlowArray::P] = out.s;  // a run takes the one that its operation writes
  return t;
}

Words run_bytes(const plan::Plan& plan, const Tensors& tensors, const RunOptions& options, ArenaMemo& memo) {
  const Tensors all = with_forward(plan.problem, tensors, options);
  return with_compute(options.compute, plan.problem, all,
                      [&]<class T>(T*) { return need_of<T>(plan, all, options, memo).bytes; });
}

plan::Cap memory_cap(Words bytes, const Tensors& tensors, const RunOptions& options) {
  return {bytes, [tensors, options](const plan::Plan& plan) {
            ArenaMemo memo;
            const Tensors all = with_forward(plan.problem, tensors, options);
            return with_compute(options.compute, plan.problem, all,
                                [&]<class T>(T*) { return need_of<T>(plan, all, options, memo, Walk::some).bytes; });
          }};
}

Measured run(const plan::Plan& plan, const Tensors& tensors, const RunOptions& options, ArenaMemo& memo) {
  const Tensors mine = checked(plan, tensors, options);
  return with_compute(options.compute, plan.problem, mine,
                      [&]<class T>(T*) { return run_in<T>(plan, mine, options, memo); });
}

Words run_bytes(const plan::Plan& plan, const Tensors& tensors, const RunOptions& options) {
  ArenaMemo memo;
  return run_bytes(plan, tensors, options, memo);
}
Measured run(const plan::Plan& plan, const Tensors& tensors, const RunOptions& options) {
  ArenaMemo memo;
  return run(plan, tensors, options, memo);
}

Measured run(const plan::Plan& plan, const Inputs& inputs, const Outputs& outputs, const RunOptions& options) {
  return run(plan, tensors_of(inputs, outputs), options);
}
}  // namespace redblue
