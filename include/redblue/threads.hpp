#pragma once
#include <functional>

namespace redblue {

/// Threads that a run may use. Derive from it to plug in a pool of your own.
class ThreadPool {
 public:
  ThreadPool() = default;
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;
  virtual ~ThreadPool() = default;

  /// How many tasks may run at once, the calling thread's among them.
  virtual int size() const = 0;
  /// Calls task(i) once for each i < n and returns when all have returned. As many as can be should run at the same
  /// time, but none waits for another to start: running them one after another is right, only slower.
  virtual void run(int n, const std::function<void(int)>& task) = 0;
};

}  // namespace redblue
