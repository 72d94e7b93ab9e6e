#pragma once
#include <functional>
#include <vector>

#include "redblue/machines/any.hpp"
#include "redblue/machines/ram/ram.hpp"
#include "redblue/problem/sequences.hpp"
#include "redblue/runtime/run.hpp"

/// Where the chosen schedule of a plan meets a machine.
namespace redblue {

/// What a run has at hand.
template <class T>
struct Resources {
  std::vector<machine::SlowMemory> slow;        ///< the caller's arrays and workspace: see machine::Ram
  std::vector<machine::ArenaMemory<T>> arenas;  ///< fast memory of each worker
  index_t words;                                ///< of each
  ThreadPool* pool;
  bool bf16 = false;                                      ///< do products of attention take bf16?
  std::function<void(int worker, index_t words)> report;  ///< called now and then with the words a worker has moved
};

/// The fastest that this processor has.
template <class T>
const kernel::Implementations<T>& implementations_for(bool bf16) {
  if constexpr (std::same_as<T, float>)
    if (bf16) return kernel::bf16_implementations(best_isa());
  return kernel::implementations<T>(best_isa());
}

/// The chosen row with its tiles on any machine, once for each of these instances.
inline void run_on(machine::Any& m, const plan::Plan& plan, const plan::Instances& instances) {
  plan.row().algorithm->run(m, instances, plan.row().tiling);
}
/// Once for each batch and key-value head.
inline void run_on(machine::Any& m, const plan::Plan& plan) { run_on(m, plan, plan.instances()); }

/// One of the plan's instances; where batches differ, one of each. Others differ only in where their arrays begin.
inline plan::Instances unlike_instances(const plan::Plan& plan) {
  plan::Instances x = plan.instances();
  x.count = batches_of(x.sizes);
  x.sizes.modifiers.kv_heads = 1;
  return x;
}

/// The chosen row, without a forward plan before it: counted, and run on the caller's memory.
Measured count_row(const plan::Plan& plan, const std::function<void()>& now_and_then);
template <class T>
Measured run_row(const plan::Plan& plan, Resources<T>&& with);

}  // namespace redblue
