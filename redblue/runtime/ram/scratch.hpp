#pragma once
#include <algorithm>
#include <cstddef>
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <vector>

#include "redblue/machines/ram/caller_memory.hpp"
#include "redblue/machines/ram/worker_states.hpp"

namespace redblue {

/// Lists and memory of a run.
template <class T, class Slow = machine::CallerMemory<T>>
struct Scratch {
  machine::WorkerStates<T, Slow> states;
  std::vector<machine::ArenaMemory<T>> arenas;

  /// As many bytes, or none where the system has not as many.
  std::span<std::byte> bytes(std::size_t size) {
    if (size > size_) {
      bytes_.reset(new (std::nothrow) std::byte[size]);
      size_ = bytes_ == nullptr ? 0 : size;
    }
    return {bytes_.get(), std::min(size, size_)};
  }
  /// What is more than this goes back.
  void keep_at_most(std::size_t size) {
    if (size_ <= size) return;
    bytes_.reset();
    size_ = 0;
  }

 private:
  std::unique_ptr<std::byte[]> bytes_;
  std::size_t size_ = 0;
};

/// The scratch of this thread for as long as this lives, which goes on from run to run: a small run on one thread then
/// takes no memory from the system. A run inside another, of what that calls, has a scratch of its own.
template <class T>
class ScratchOfThread {
 public:
  ScratchOfThread() {
    Kept& kept = of_thread();
    if (kept.taken)
      own_.emplace();
    else
      kept.taken = true;
  }
  ~ScratchOfThread() {
    if (own_) return;
    Kept& kept = of_thread();
    kept.scratch.keep_at_most(kMost);
    kept.taken = false;
  }
  ScratchOfThread(const ScratchOfThread&) = delete;
  ScratchOfThread& operator=(const ScratchOfThread&) = delete;

  Scratch<T>& operator*() { return own_ ? *own_ : of_thread().scratch; }

 private:
  static constexpr std::size_t kMost = 1 << 18;  ///< bytes: a run that takes more computes for longer than it asks
  struct Kept {
    Scratch<T> scratch;
    bool taken = false;
  };
  static Kept& of_thread() {
    static thread_local Kept kept;
    return kept;
  }

  std::optional<Scratch<T>> own_;
};

}  // namespace redblue
