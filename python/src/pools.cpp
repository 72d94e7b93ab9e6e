#include <dlfcn.h>
#include <fmt/format.h>
#include <pthread.h>

#include <array>
#include <atomic>

#include "plan.hpp"
#include "redblue/problem.hpp"

namespace redblue::python {

namespace {

/// libgomp's, or of a runtime with the same functions; null until use_openmp() finds them.
struct OpenMp {
  void (*parallel)(void (*)(void*), void*, unsigned threads, unsigned flags) = nullptr;
  int (*in_parallel)() = nullptr;
};
OpenMp openmp;
std::atomic<bool> on_openmp_here{false};  ///< are its threads there? A child of fork() has none of them

/// Runs tasks on the threads of OpenMP, which poll for work some milliseconds after each operation of PyTorch: threads
/// of another pool would have to share the CPUs with them.
class OnOpenMp final : public ThreadPool {
 public:
  explicit OnOpenMp(int size) : size_(size) {}
  int size() const override { return size_; }
  void run(int n, const std::function<void(int)>& task) override {
    Job job{task, n};
    if (n < 2 || size_ < 2 || openmp.in_parallel() != 0 || busy_.test_and_set()) return work(&job);
    // All of them, few as the tasks may be: libgomp ends those that it does not need, and PyTorch would start them
    // anew.
    openmp.parallel(&work, &job, static_cast<unsigned>(size_), 0);
    busy_.clear();
  }

 private:
  struct Job {
    const std::function<void(int)>& task;
    int n;
    std::atomic<int> next{0};
  };
  static void work(void* data) {
    Job& job = *static_cast<Job*>(data);
    for (int i = job.next++; i < job.n; i = job.next++) job.task(i);
  }

  const int size_;
  std::atomic_flag busy_;
};

/// No lock: a child of fork() must find none that a thread of its parent holds.
template <class Make>
ThreadPool& kept(std::atomic<ThreadPool*>& slot, const Make& make) {
  if (ThreadPool* pool = slot.load()) return *pool;
  std::unique_ptr<ThreadPool> fresh = make();
  ThreadPool* none = nullptr;
  return slot.compare_exchange_strong(none, fresh.get()) ? *fresh.release() : *none;
}

}  // namespace

void use_openmp() {
  if (openmp.parallel == nullptr) {
    const auto find = [](const char* name, auto& function) {
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(RTLD_DEFAULT, name));
      return function != nullptr;
    };
    OpenMp found;
    if (!find("GOMP_parallel", found.parallel) || !find("omp_in_parallel", found.in_parallel)) return;
    openmp = found;
    // The process is not asked for at each call: to ask the kernel takes 0.2 us.
    pthread_atfork(nullptr, nullptr, [] { on_openmp_here = false; });
  }
  on_openmp_here = true;
}

ThreadPool& pool_of(int threads) {
  // Never destroyed: others may run until the very end.
  static std::array<std::atomic<ThreadPool*>, kMostThreads + 1> pools, on_openmp;
  const int size = threads == 0 ? default_pool().size() : asked_threads("threads = ", threads, kMostThreads);
  if (size > 1 && size <= kMostThreads && on_openmp_here)
    return kept(on_openmp[static_cast<std::size_t>(size)], [&] { return std::make_unique<OnOpenMp>(size); });
  if (size == default_pool().size()) return default_pool();
  return kept(pools[static_cast<std::size_t>(size)], [&] { return make_pool(size); });
}

}  // namespace redblue::python
