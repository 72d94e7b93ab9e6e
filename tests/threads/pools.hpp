#pragma once
#include <atomic>
#include <thread>
#include <vector>

#include "redblue/threads/pool.hpp"

namespace redblue::test {

/// Waits until `count` tasks have begun: for ever, if they run one after another.
inline void meet(std::atomic<int>& begun, int count) {
  ++begun;
  while (begun < count) std::this_thread::yield();
}

/// Pools as a caller might plug them in: each calls every task once, in its own way.
class InOrder : public ThreadPool {
 public:
  int size() const override { return 4; }
  void run(int n, const std::function<void(int)>& task) override {
    for (int i = 0; i < n; ++i) task(i);
  }
};

class InReverse : public ThreadPool {
 public:
  int size() const override { return 4; }
  void run(int n, const std::function<void(int)>& task) override {
    for (int i = n - 1; i >= 0; --i) task(i);
  }
};

/// A thread for every task.
class AllAtOnce : public ThreadPool {
 public:
  int size() const override { return 4; }
  void run(int n, const std::function<void(int)>& task) override {
    std::vector<std::thread> threads;
    for (int i = 0; i < n; ++i) threads.emplace_back(task, i);
    for (std::thread& t : threads) t.join();
  }
};

}  // namespace redblue::test
