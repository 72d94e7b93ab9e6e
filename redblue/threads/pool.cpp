#include "redblue/threads/pool.hpp"

#include <fmt/format.h>
#include <sched.h>
#include <unistd.h>

#include <atomic>
#include <charconv>
#include <csignal>
#include <cstdlib>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include "redblue/language/error.hpp"
#include "redblue/threads/sleeper.hpp"
#include "redblue/threads/slice.hpp"
#include "redblue/threads/spin.hpp"

// There if the program has an OpenMP runtime.
extern "C" [[gnu::weak]] int omp_in_parallel();

namespace redblue {

namespace {

thread_local bool inside_a_task = false;

bool inside_a_parallel_region() { return inside_a_task || (omp_in_parallel != nullptr && omp_in_parallel() != 0); }

/// A thread starts with all signals blocked: they are the program's.
template <class Main>
std::thread start_thread(const Main& main) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread thread;
  try {
    thread = std::thread(main);
  } catch (...) {
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    throw;
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return thread;
}

/// The threads of one process. The caller of run calls helpers and also works itself. At the end it withdraws the calls
/// that no helper has answered yet, so that it never waits for a thread to wake up.
class HelperThreads {
 public:
  HelperThreads() = default;
  HelperThreads(const HelperThreads&) = delete;
  HelperThreads& operator=(const HelperThreads&) = delete;
  ~HelperThreads() {
    for (const auto& helper : helpers_) {
      helper->call.store(kStop, std::memory_order_release);
      helper->call.notify_one();
      helper->thread.join();
    }
  }

  pid_t process() const { return process_; }

  /// Runs the tasks with this number of helpers; returns false if another thread is running tasks.
  bool try_run(int n, const std::function<void(int)>& task, int helpers) {
    const std::unique_lock lock(busy_, std::try_to_lock);
    if (!lock) return false;
    while (static_cast<int>(helpers_.size()) < helpers) start_helper();
    task_ = &task;
    n_ = n;
    next_.store(0, std::memory_order_relaxed);
    for (int i = 0; i < helpers; ++i) {
      Helper& helper = *helpers_[static_cast<std::size_t>(i)];
      helper.call.store(kCalled, std::memory_order_seq_cst);  // before the question whether it sleeps
      helper.sleeper.keep_away();
      helper.call.notify_one();
    }
    inside_a_task = true;
    work();
    inside_a_task = false;
    for (int i = 0; i < helpers; ++i) helpers_[static_cast<std::size_t>(i)]->dismiss();
    return true;
  }

 private:
  /// The states of a helper's `call`. The caller changes idle -> called and called -> idle (withdrawn); the helper
  /// called -> at work and at work -> idle.
  enum Call : int { kIdle, kCalled, kAtWork, kStop };

  struct alignas(64) Helper {
    std::atomic<int> call{kIdle};
    threads::Sleeper sleeper;
    std::thread thread;

    void dismiss() {
      int seen = kCalled;
      if (call.compare_exchange_strong(seen, kIdle, std::memory_order_acquire)) return;
      const auto gone = [&] { return call.load(std::memory_order_acquire) != kAtWork; };
      if (!threads::spin_until(gone)) call.wait(kAtWork, std::memory_order_acquire);
    }
  };

  void start_helper() {
    auto helper = std::make_unique<Helper>();
    try {
      helper->thread = start_thread([this, &h = *helper] { serve(h); });
    } catch (const std::system_error& e) {
      throw Error(fmt::format("cannot start thread {} of the pool: {}; ask for fewer threads", helpers_.size() + 2,
                              e.code().message()));
    }
    helpers_.push_back(std::move(helper));
  }

  void serve(Helper& self) {
    threads::ask_for_short_slices();
    inside_a_task = true;
    for (;;) {
      const auto called = [&] { return self.call.load(std::memory_order_relaxed) != kIdle; };
      if (!threads::spin_until(called)) self.sleeper.wait(self.call, int{kIdle});
      int seen = kCalled;
      if (self.call.compare_exchange_strong(seen, kAtWork, std::memory_order_acquire)) {
        work();
        self.call.store(kIdle, std::memory_order_release);
        self.call.notify_one();
      } else if (seen == kStop) {
        return;
      }
    }
  }

  void work() {
    for (int i = next_.fetch_add(1); i < n_; i = next_.fetch_add(1)) (*task_)(i);
  }

  const pid_t process_ = getpid();
  std::mutex busy_;
  std::vector<std::unique_ptr<Helper>> helpers_;
  const std::function<void(int)>* task_ = nullptr;
  int n_ = 0;
  alignas(64) std::atomic<int> next_{0};
};

class Pool final : public ThreadPool {
 public:
  explicit Pool(int size) : size_(size), helper_threads_(new HelperThreads) {}
  ~Pool() override {
    const HelperThreads* helper_threads = helper_threads_.load();
    if (helper_threads->process() == getpid())
      delete helper_threads;  // a child of fork() cannot join its parent's threads
  }

  int size() const override { return size_; }
  void run(int n, const std::function<void(int)>& task) override {
    const int helpers = std::min(n, size_) - 1;
    if (helpers < 1 || inside_a_parallel_region() || !helper_threads().try_run(n, task, helpers))
      for (int i = 0; i < n; ++i) task(i);
  }

 private:
  /// After fork() the threads are gone, and locks that they held may stay locked for ever: the old ones are left alone.
  HelperThreads& helper_threads() {
    HelperThreads* helper_threads = helper_threads_.load();
    if (helper_threads->process() == getpid()) return *helper_threads;
    auto fresh = std::make_unique<HelperThreads>();
    return helper_threads_.compare_exchange_strong(helper_threads, fresh.get()) ? *fresh.release() : *helper_threads;
  }

  const int size_;
  std::atomic<HelperThreads*> helper_threads_;
};

int default_size() {
  constexpr const char* kVariable = "REDBLUE_THREADS";
  const char* const text = std::getenv(kVariable);
  if (text != nullptr && *text != '\0') {
    const std::string_view given(text);
    int size = 0;
    const auto [end, error] = std::from_chars(given.data(), given.data() + given.size(), size);
    if (error != std::errc() || end != given.data() + given.size() || size < 1)
      throw InvalidProblem(fmt::format("{}={}: give a number of threads from 1 on", kVariable, given));
    return size;
  }
  cpu_set_t cpus;
  if (sched_getaffinity(0, sizeof cpus, &cpus) == 0) return CPU_COUNT(&cpus);
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));  // more CPUs than cpu_set_t has bits
}

}  // namespace

int asked_threads(std::string_view name, index_t asked, index_t most) {
  if (asked < 1 || asked > most)
    throw InvalidProblem(fmt::format("{}{}: give a number from 1 to {}, or leave it out", name, asked, most));
  return static_cast<int>(asked);
}

std::unique_ptr<ThreadPool> make_pool(int size) {
  if (size < 1) throw InvalidProblem(fmt::format("a pool of {} threads: it takes at least 1", size));
  return std::make_unique<Pool>(size);
}

ThreadPool& default_pool() {
  static ThreadPool& pool = *make_pool(default_size()).release();  // never destroyed: others may run until the very end
  return pool;
}

}  // namespace redblue
