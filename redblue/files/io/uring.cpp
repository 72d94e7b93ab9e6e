#include "redblue/files/io/uring.hpp"

#include <liburing.h>

#include <algorithm>
#include <cerrno>
#include <deque>
#include <thread>
#include <utility>

namespace redblue::file::io {

namespace {

/// Any thread puts transfers into the ring; one thread takes results out of it.
class UringEngine : public Engine {
 public:
  UringEngine(const EngineOptions& options, const io_uring& ring)
      : Engine(options), ring_(ring), results_([this] { take_results(); }) {}
  ~UringEngine() override {
    {
      const std::lock_guard lock(mutex_);
      io_uring_sqe* const last = io_uring_get_sqe(&ring_);
      io_uring_prep_nop(last);
      io_uring_sqe_set_data(last, nullptr);
      submit_all();
    }
    results_.join();
    io_uring_queue_exit(&ring_);
  }
  std::string_view name() const override { return "io_uring"; }

 private:
  struct Task {
    Transfer* transfer;
    index_t bytes;
  };

  void start(Transfer* transfer, index_t at_most) override {
    const std::lock_guard lock(mutex_);
    waiting_.push_back({transfer, at_most});
    send();
  }
  /// Puts as many transfers into the ring as may be under way.
  void send() {
    while (!waiting_.empty() && under_way_ < options().depth) {
      const Task task = waiting_.front();
      waiting_.pop_front();
      io_uring_sqe* const entry = io_uring_get_sqe(&ring_);  // the ring has room for all that may be under way
      const Transfer& t = *task.transfer;
      const auto bytes = static_cast<unsigned>(std::min<index_t>(task.bytes, kMost));
      const auto offset = static_cast<std::uint64_t>(t.offset);
      if (t.kind == Request::Kind::read)
        io_uring_prep_read(entry, t.descriptor, t.buffer, bytes, offset);
      else
        io_uring_prep_write(entry, t.descriptor, t.buffer, bytes, offset);
      io_uring_sqe_set_data(entry, task.transfer);
      ++under_way_;
      submit_all();
    }
  }
  /// The kernel refuses entries for a moment when it is short of memory.
  void submit_all() {
    while (io_uring_submit(&ring_) < 0) std::this_thread::yield();
  }
  void take_results() {
    while (true) {
      io_uring_cqe* result = nullptr;
      if (io_uring_wait_cqe(&ring_, &result) != 0) continue;  // a signal came
      auto* const transfer = static_cast<Transfer*>(io_uring_cqe_get_data(result));
      const index_t moved = result->res;
      io_uring_cqe_seen(&ring_, result);
      if (transfer == nullptr) return;
      {
        const std::lock_guard lock(mutex_);
        --under_way_;
        send();
      }
      // When a thread ends, io_uring gives up what it had begun, even for a process that goes on. This thread stays.
      if ((moved == -EFAULT || moved == -ECANCELED) && !std::exchange(transfer->begun_twice, true))
        start(transfer, transfer->bytes);
      else
        completed(transfer, moved);
    }
  }

  static constexpr index_t kMost = 1 << 30;  ///< bytes of a system call

  io_uring ring_;
  std::mutex mutex_;
  std::deque<Task> waiting_;
  int under_way_ = 0;
  std::thread results_;  ///< last: it uses the others
};

}  // namespace

std::unique_ptr<Engine> make_uring_engine(const EngineOptions& options) {
  io_uring ring{};
  // One entry more ends the thread.
  if (io_uring_queue_init(static_cast<unsigned>(options.depth + 1), &ring, 0) != 0) return nullptr;
  return std::make_unique<UringEngine>(options, ring);
}
std::string_view why_no_uring() { return "the kernel does not let this process have one"; }

}  // namespace redblue::file::io
