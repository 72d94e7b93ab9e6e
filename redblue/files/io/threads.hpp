#pragma once
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <vector>

#include "redblue/files/io/engine.hpp"

namespace redblue::file::io {

/// pread and pwrite, in as many threads as transfers may be under way.
class ThreadsEngine : public Engine {
 public:
  explicit ThreadsEngine(const EngineOptions& options);
  ~ThreadsEngine() override;
  std::string_view name() const override { return "threads"; }

 private:
  struct Task {
    Transfer* transfer;
    index_t bytes;
  };
  void start(Transfer* transfer, index_t at_most) override;
  void work();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Task> tasks_;
  bool ends_ = false;
  int idle_ = 0;
  int most_;                          ///< threads
  std::vector<std::thread> threads_;  ///< as many as were needed so far
};

}  // namespace redblue::file::io
