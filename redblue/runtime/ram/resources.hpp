#pragma once
#include <cstdint>
#include <functional>

#include "redblue/kernels/int8.hpp"
#include "redblue/machines/ram/ram.hpp"
#include "redblue/runtime/ram/scratch.hpp"
#include "redblue/runtime/run.hpp"

/// What a run has at hand.
namespace redblue {

/// The words that attention may multiply. int8: those of bf16 to which words of int8 are widened. below: its own, and a
/// level of memory below multiplies them (levels/).
enum class Products : std::uint8_t { own, bf16, int8, below };

template <class T, class Slow = machine::CallerMemory<T>>
struct Resources {
  Scratch<T, Slow>& scratch;  ///< its slow memory: arrays and workspace; arenas: fast memory of each worker
  index_t words = 0;          ///< of fast memory, of each
  ThreadPool* pool = nullptr;
  Products products = Products::own;
  std::function<void(int worker, index_t words)> report{};  ///< called now and then with the words a worker has moved

  std::vector<typename Slow::Arrays>& slow() const { return scratch.states.slow; }
};

/// The fastest that this processor has.
template <class T>
const kernel::Implementations<T>& implementations_for(Products products) {
  if (products == Products::below) {
    static const kernel::Implementations<T> table =
        kernel::implementations_below(kernel::implementations<T>(best_isa()));
    return table;
  }
  if constexpr (std::same_as<T, float>)
    if (products != Products::own)
      return products == Products::bf16 ? kernel::bf16_implementations(best_isa())
                                        : kernel::int8_implementations(best_isa());
  return kernel::implementations<T>(best_isa());
}

}  // namespace redblue
