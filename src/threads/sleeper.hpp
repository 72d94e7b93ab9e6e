#pragma once
#include <atomic>
#if defined(__linux__)
#include <sched.h>
#include <unistd.h>
#endif

/// A thread that sleeps until another one changes a word. Some kernels put a thread that wakes onto the CPU of the one
/// that woke it, even if others are free: there it waits until that one is done, or for the scheduler to move it, up to
/// 4 ms later. So whoever wakes it first keeps it away from the own CPU, and once awake it may go everywhere again.
namespace redblue::threads {

class Sleeper {
 public:
  /// Sleeps while word == old.
  template <class T>
  void wait(const std::atomic<T>& word, T old) {
    lie_down();
    word.wait(old);
    get_up();
  }
#if defined(__linux__)
  /// To be called between changing the word and notifying: the thread wakes on another CPU than this one, if it may run
  /// on another. Does nothing if it is not asleep.
  void keep_away() {
    State seen = asleep;
    if (state_ != asleep || !state_.compare_exchange_strong(seen, moving)) return;
    const int here = sched_getcpu();
    change_cpus([&](cpu_set_t& cpus) {
      if (left_out_ >= 0) CPU_SET(left_out_, &cpus);
      left_out_ = -1;
      if (here < 0 || here >= CPU_SETSIZE || !CPU_ISSET(here, &cpus) || CPU_COUNT(&cpus) < 2) return;
      CPU_CLR(here, &cpus);
      left_out_ = here;
    });
    state_ = asleep;
  }

 private:
  enum State : int { awake, asleep, moving };  ///< moving: another thread changes its CPUs

  void lie_down() {
    thread_ = gettid();
    state_ = asleep;
  }
  void get_up() {
    for (State seen = asleep; !state_.compare_exchange_weak(seen, awake); seen = asleep) {
    }
    if (left_out_ >= 0) change_cpus([&](cpu_set_t& cpus) { CPU_SET(left_out_, &cpus); });
    left_out_ = -1;
  }
  /// Where the system does not allow it, or has more CPUs than cpu_set_t, the thread stays where it is.
  template <class Change>
  void change_cpus(const Change& change) {
    cpu_set_t cpus;
    if (sched_getaffinity(thread_, sizeof cpus, &cpus) != 0) return;
    change(cpus);
    sched_setaffinity(thread_, sizeof cpus, &cpus);
  }

  std::atomic<State> state_{awake};
  pid_t thread_ = 0;
  int left_out_ = -1;  ///< the CPU that it is kept away from
#else
  void keep_away() {}

 private:
  void lie_down() {}
  void get_up() {}
#endif
};

}  // namespace redblue::threads
