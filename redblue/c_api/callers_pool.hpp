#pragma once
#include <fmt/format.h>

#include <atomic>

#include "redblue/c_api/calls.hpp"
#include "redblue/c_api/structs.hpp"
#include "redblue/threads/pool.hpp"

namespace redblue::c_api {

/// The caller's thread pool.
class CallersPool final : public ThreadPool {
 public:
  explicit CallersPool(const redblue_thread_pool& pool) : pool_(pool) {
    if (pool.size == nullptr || pool.run == nullptr)
      throw InvalidArgument("redblue_thread_pool needs both functions, size and run");
    size_ = pool.size(pool.context);
    if (size_ < 1) throw InvalidArgument(fmt::format("the thread pool has size {}: it must have 1 or more", size_));
  }
  int size() const override { return size_; }
  void run(int n, const std::function<void(int)>& task) override {
    Job job{task, n, 0};
    pool_.run(pool_.context, n, &run_task, &job);
    if (job.done != n) throw Error(fmt::format("the thread pool returned after {} of {} tasks", job.done.load(), n));
  }

 private:
  struct Job {
    const std::function<void(int)>& task;
    int n;
    std::atomic<int> done;
  };
  static void run_task(void* arg, int i) {
    Job& job = *static_cast<Job*>(arg);
    if (i < 0 || i >= job.n) return;  // run() then misses one
    job.task(i);
    ++job.done;
  }

  redblue_thread_pool pool_;
  int size_;
};

}  // namespace redblue::c_api
