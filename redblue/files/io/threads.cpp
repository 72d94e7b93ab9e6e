#include "redblue/files/io/threads.hpp"

#include <unistd.h>

#include <cerrno>
#include <system_error>

namespace redblue::file::io {

ThreadsEngine::ThreadsEngine(const EngineOptions& options) : Engine(options), most_(options.depth) {
  threads_.emplace_back([this] { work(); });
}

ThreadsEngine::~ThreadsEngine() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  changed_.notify_all();
  for (std::thread& t : threads_) t.join();
}

void ThreadsEngine::start(Transfer* transfer, index_t at_most) {
  const std::lock_guard lock(mutex_);
  tasks_.push_back({transfer, at_most});
  if (idle_ < static_cast<int>(tasks_.size()) && static_cast<int>(threads_.size()) < most_) {
    try {
      threads_.emplace_back([this] { work(); });
    } catch (const std::system_error&) {
      most_ = static_cast<int>(threads_.size());  // the system gives no more: those there are do all
    }
  }
  changed_.notify_one();
}

void ThreadsEngine::work() {
  std::unique_lock lock(mutex_);
  while (true) {
    ++idle_;
    changed_.wait(lock, [this] { return ends_ || !tasks_.empty(); });
    --idle_;
    if (tasks_.empty()) return;
    const Task task = tasks_.front();
    tasks_.pop_front();
    lock.unlock();
    Transfer& t = *task.transfer;
    const auto bytes = static_cast<std::size_t>(task.bytes);
    const ssize_t n = t.kind == Request::Kind::read ? pread(t.descriptor, t.buffer, bytes, t.offset)
                                                    : pwrite(t.descriptor, t.buffer, bytes, t.offset);
    completed(&t, n < 0 ? -errno : n);
    lock.lock();
  }
}

}  // namespace redblue::file::io
