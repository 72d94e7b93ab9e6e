#pragma once
#include <functional>

#include "redblue/machines/ram/ram.hpp"
#include "redblue/runtime/ram/scratch.hpp"
#include "redblue/runtime/run.hpp"

/// What a run in the caller's memory has at hand.
namespace redblue {

template <class T>
struct Resources {
  Scratch<T>& scratch;  ///< its slow memory: the caller's arrays and workspace; arenas: fast memory of each worker
  index_t words = 0;    ///< of fast memory, of each
  ThreadPool* pool = nullptr;
  bool bf16 = false;                                        ///< do products of attention take bf16?
  std::function<void(int worker, index_t words)> report{};  ///< called now and then with the words a worker has moved

  std::vector<machine::SlowMemory>& slow() const { return scratch.states.slow; }
};

/// The fastest that this processor has.
template <class T>
const kernel::Implementations<T>& implementations_for(bool bf16) {
  if constexpr (std::same_as<T, float>)
    if (bf16) return kernel::bf16_implementations(best_isa());
  return kernel::implementations<T>(best_isa());
}

/// Runs the plan's chosen row, as it was prepared, without a forward plan before it.
template <class T>
Measured run_row(const plan::Plan& plan, const plan::Prepared& prepared, const Resources<T>& with);

}  // namespace redblue
