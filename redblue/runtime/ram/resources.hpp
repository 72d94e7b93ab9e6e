#pragma once
#include <functional>
#include <vector>

#include "redblue/machines/ram/ram.hpp"
#include "redblue/planner/run_on.hpp"
#include "redblue/runtime/run.hpp"

/// What a run in the caller's memory has at hand.
namespace redblue {

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

/// Runs the chosen row, without a forward plan before it.
template <class T>
Measured run_row(const plan::Plan& plan, Resources<T>&& with);

}  // namespace redblue
