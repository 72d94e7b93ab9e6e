#pragma once
#include <functional>
#include <memory>
#include <string_view>

#include "redblue/language/types.hpp"

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
  /// Calls task(i) once for each i < n and returns when all calls have returned. As many calls as possible should run
  /// at the same time, but no task waits for another to start: a pool may run them one after another, which is only
  /// slower. A task does not throw.
  virtual void run(int n, const std::function<void(int)>& task) = 0;
};

/// A number of threads that was asked for by this name ("--threads ", "threads = "). Throws InvalidProblem unless it is
/// from 1 to `most`.
int asked_threads(std::string_view name, index_t asked, index_t most);

/// A pool of `size` threads, of which one is the caller of run. The other threads start with the first run that needs
/// them and stay: after a run they look for work for some tens of microseconds, then sleep. In three cases, where more
/// threads would only slow each other down, run calls its tasks one after another: inside a task of such a pool, inside
/// an OpenMP parallel region, and while another thread is inside run. A child of fork() gets threads of its own. Throws
/// InvalidProblem if size < 1; run throws Error if threads cannot be started.
std::unique_ptr<ThreadPool> make_pool(int size);

/// The pool of this process, made at first use and kept until the process ends. It has as many threads as the
/// environment variable REDBLUE_THREADS says; if that is empty, one for each CPU that the process may run on. Throws
/// InvalidProblem if the variable is not a number of threads.
ThreadPool& default_pool();

}  // namespace redblue
