#include <fmt/format.h>

#include <array>
#include <atomic>

#include "plan.hpp"
#include "redblue/core/error.hpp"

namespace redblue::python {

/// No lock: a child of fork() must find none that a thread of its parent holds.
ThreadPool& pool_of(int threads) {
  constexpr int kMost = 1024;
  static std::array<std::atomic<ThreadPool*>, kMost + 1> pools;  // never destroyed: others may run until the very end
  if (threads == 0 || threads == default_pool().size()) return default_pool();
  if (threads < 1 || threads > kMost)
    throw InvalidProblem(fmt::format("threads = {}: give a number from 1 to {}, or None", threads, kMost));
  std::atomic<ThreadPool*>& slot = pools[static_cast<std::size_t>(threads)];
  if (ThreadPool* pool = slot.load()) return *pool;
  std::unique_ptr<ThreadPool> fresh = make_pool(threads);
  ThreadPool* none = nullptr;
  return slot.compare_exchange_strong(none, fresh.get()) ? *fresh.release() : *none;
}

}  // namespace redblue::python
