#pragma once
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <vector>

#include "redblue/hardware/physical_memory.hpp"
#include "redblue/planner/shapes.hpp"
#include "redblue/runtime/backend.hpp"
#include "redblue/runtime/ram/arena_memo.hpp"
#include "redblue/runtime/ram/converted.hpp"
#include "redblue/runtime/ram/reordered.hpp"
#include "redblue/runtime/ram/resources.hpp"
#include "redblue/runtime/ram/stack.hpp"
#include "redblue/runtime/storage_of.hpp"
#include "redblue/threads/worth.hpp"

/// What backends share that lead a plan through Ram: how much memory it takes, and what lies where in it.
namespace redblue {

/// How many of the pool's threads a run takes.
inline int workers_of(const plan::Plan& plan, const RowFacts& facts, int threads, const ThreadPool& pool) {
  if (threads < 0) throw InvalidProblem(fmt::format("threads = {}: give a number from 1 on, or 0 for all", threads));
  if (threads > 0) return std::min(threads, pool.size());
  const int worth = threads::worth(plan.row().flops, pool.size());
  return worth == 1 || facts.is_shared() ? worth : 1;
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

/// How far to go to find out what a run takes.
struct Effort {
  Words enough;  ///< no walk where more bytes than this are taken already
  Walk walk;
};

/// Where a run takes what it needs beside inputs and outputs: the same stack twice, where slow memory is memory.
struct Room {
  Stack& arrays;  ///< whole arrays of slow memory
  Stack& fast;    ///< fast memory and its staging buffers
};

/// Takes from `room` all that a run takes beside inputs and outputs, and calls execute(plan, facts, resources,
/// converted, reordered) where something is to be run: for the forward pass, if one comes first, and for the chosen
/// row, if there is one. To learn the size only, pass stacks without memory. Returns whether that was all: false if it
/// stopped at `effort.enough`.
template <class T, class Slow, class Execute>
bool lay_out(const plan::Plan& plan, Tensors tensors, const RunOptions& options, const Effort& effort, const Room& room,
             ArenaMemo& memo, Scratch<T, Slow>& scratch, const Execute& execute) {
  const Problem& p = plan.problem;
  const auto own = [&](const std::array<index_t, 4>& shape, std::string_view what) {
    return Tensor(room.arrays.take<T>(Words(shape[0]) * shape[1] * shape[2] * shape[3], what), kDTypeOf<T>, shape);
  };
  Converted converted;
  if (p.forward_first()) {
    const Problem f = p.forward();
    for (const SlowArray a : {SlowArray::O, SlowArray::lse})
      if (const Tensor kept = std::as_const(tensors)[a]; !is_given(kept) || kept.dtype != kDTypeOf<T>) {
        tensors[a] = own(shape_of(f, a), a == SlowArray::O ? "the output of the forward pass" : "lse");
        if (is_given(kept)) converted.add(tensors[a], kept);
      }
    if (plan.forward) {
      const Words arrays = room.arrays.used(), fast = room.fast.used();
      if (!lay_out(*plan.forward, tensors, options, effort, room, memo, scratch, execute)) return false;
      room.arrays.release(arrays);
      room.fast.release(fast);
    }
  }
  if (plan.rows.empty()) return true;

  const plan::Row& row = plan.row();
  const std::shared_ptr<const RowFacts> kept_facts = memo.facts(plan);
  const RowFacts& facts = *kept_facts;
  Resources<T, Slow> with{scratch};
  with.pool = options.pool == nullptr ? &default_pool() : options.pool;
  const int workers = workers_of(plan, facts, options.threads, *with.pool);
  if (memo.below())
    with.products = Products::below;
  else if (options.compute == DType::bf16)
    with.products = std::as_const(tensors)[SlowArray::K].dtype == DType::int8 ? Products::int8 : Products::bf16;
  static const typename Slow::Arrays kNone;
  with.slow().assign(1, kNone);
  const auto place = [&](SlowArray a, const Tensor& t, bool writable) {
    const bool grouped = t.shape[1] != p.instances() / p.batch;
    with.slow().front()[index_of(a)] = is_of_modifiers(a)
                                           ? storage_of_modifier(t, p, writable)
                                           : storage_of(t, p.instances() / p.batch, grouped ? p.group() : 1, writable);
  };
  if (p.sources == Sources::self) tensors[SlowArray::A2] = tensors[SlowArray::A1];
  if (p.sources != Sources::distinct) tensors[SlowArray::A3] = tensors[SlowArray::A2];
  const std::vector<SlowArray>& outputs = facts.outputs;
  Reordered reordered(p, facts.shapes.sizes().sequences);
  for (const SlowArray a : facts.arrays) {
    const Tensor& t = std::as_const(tensors)[a];
    const bool moves = is_given(t) && reordered.moves(a);
    if (std::find(outputs.begin(), outputs.end(), a) == outputs.end()) {
      if (!is_given(t)) continue;
      Tensor copy = t;
      if (moves) {
        const Words words = Words(t.shape[0]) * t.shape[1] * t.shape[2] * t.shape[3];
        const Words whole = (words * size_of(t.dtype) + sizeof(T) - 1) / sizeof(T);
        copy = Tensor(room.arrays.take<T>(whole, "an input in the order of the pattern", redblue::name_of(a)), t.dtype,
                      t.shape);
        copy.scales = t.scales;  // one for each head
        reordered.gather_later(a, t, copy);
      }
      place(a, copy, false);
    } else if (moves) {
      const Tensor copy = own(t.shape, "an output in the order of the pattern");
      if (adds_to(p, a)) reordered.gather_later(a, t, copy);  // of the same type
      reordered.scatter_later(a, copy, t);
      place(a, copy, true);
    } else if (!is_given(t)) {
      place(a, own(facts.shapes[a], "lse"), true);  // the caller does not ask for it
    } else if (t.dtype != kDTypeOf<T> &&
               (row.algorithm->traits.rewrites_outputs || is_statistic(a) || is_of_modifiers(a))) {
      // Every schedule that reads lse back does so to compute with it.
      const Tensor wide = own(t.shape, "an output in the compute type");
      converted.add(wide, t);
      place(a, wide, true);
    } else {
      place(a, t, true);
    }
  }
  // A workspace for each instance under way.
  const index_t sets = facts.workspace.empty() ? 1 : std::min<index_t>(workers, p.instances());
  for (index_t more = 1; more < sets; ++more) with.slow().push_back(with.slow().front());
  for (const Workspace& m : facts.workspace)
    for (auto& set : with.slow())
      set[index_of(m.array)] = machine::Storage::matrix(
          room.arrays.take<T>(m.words(), "workspace", redblue::name_of(m.array)), {m.shape.rows, m.row_stride});
  with.words = row.footprint.to_index();
  if (room.fast.bytes() > effort.enough) return false;
  const machine::ArenaWords words = memo.words<T, Slow>(plan, facts, with.slow().front(), with.products, effort.walk);
  scratch.arenas.resize(static_cast<std::size_t>(workers));
  for (machine::ArenaMemory<T>& arena : scratch.arenas) {
    arena = {};
    arena.tiles = room.fast.take_span<T>(words.tiles, "fast memory");
    for (std::size_t i = 0; i < words.staging.size(); ++i)
      if (words.staging[i] > 0) arena.staging[i] = room.fast.take_span<T>(words.staging[i], "a staging buffer");
  }
  execute(plan, facts, with, converted, reordered);
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

/// The arrays are taken from `arrays`, or, where that is null, from the same memory.
template <class T, class Slow = machine::CallerMemory<T>>
Need need_of(const plan::Plan& plan, const Tensors& tensors, const RunOptions& options, ArenaMemo& memo,
             Walk walk = Walk::whole, Stack* arrays = nullptr) {
  Stack stack;
  Scratch<T, Slow> scratch;
  const Effort effort{std::max(physical_memory(), Words(options.memory.size())), walk};
  const bool all = lay_out(plan, tensors, options, effort, Room{arrays == nullptr ? stack : *arrays, stack}, memo,
                           scratch, [](const auto&...) {});
  return {stack.bytes(), stack.largest(), all};
}

/// All of it from the system.
inline std::unique_ptr<std::byte[]> allocate(const Need& need) {
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

/// To what was measured, that of another part of the same run.
inline void add_part(Measured& all, const Measured& m) {
  all.io = all.io + m.io;
  all.peak = std::max(all.peak, m.peak);
  all.flops += m.flops;
  all.staging_words = std::max(all.staging_words, m.staging_words);
  all.padding_words = std::max(all.padding_words, m.padding_words);
  all.decisions += m.decisions;
  all.kernels = m.kernels;
  all.threads = std::max(all.threads, m.threads);
  all.most_per_thread += m.most_per_thread;
}

/// f(null pointer of the type of a word in fast memory)
template <class F>
decltype(auto) with_compute(DType compute, const F& f) {
  if (compute == DType::f64) return f(static_cast<double*>(nullptr));
  return f(static_cast<float*>(nullptr));
}

}  // namespace redblue
