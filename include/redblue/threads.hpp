#pragma once
#include <functional>
#include <memory>

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
  /// time, but none waits for another to start: running them one after another is right, only slower. A task does not
  /// throw.
  virtual void run(int n, const std::function<void(int)>& task) = 0;
};

/// A pool of `size` threads, the caller of run among them. The others start with the first run that needs them and
/// are kept: after a run they look for work for some tens of microseconds, then sleep. Where more threads would only
/// stand in each other's way, run calls its tasks one after another: inside a task of such a pool, inside an OpenMP
/// parallel region, and while another thread is inside run. A child of fork() gets threads of its own. Throws
/// InvalidProblem if size < 1; run throws Error if threads cannot be started.
std::unique_ptr<ThreadPool> make_pool(int size);

/// The pool of this process, made at first use and kept until the process ends: as many threads as the environment
/// variable REDBLUE_THREADS says if it is not empty, else one for each CPU that the process may run on. Throws
/// InvalidProblem if the variable is no number of threads.
ThreadPool& default_pool();

}  // namespace redblue
