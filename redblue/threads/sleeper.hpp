#pragma once
#include <atomic>

#include "redblue/threads/spin.hpp"
#if defined(__linux__)
#include <sched.h>
#include <unistd.h>
#endif

/// A thread that sleeps until another one changes a word. Some kernels put a thread that wakes onto the CPU of the one
/// that woke it, even if others are free: there it waits until that one is done, or for the scheduler to move it, up to
/// 4 ms later. So whoever wakes it first keeps it away from the own CPU, and once awake it may again go wherever it
/// might before. What others do to its affinity in the meantime stays, unless it is just what it was left with.
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
    give_back();
    const int here = sched_getcpu();
    if (here >= 0 && here < CPU_SETSIZE && read(whole_) && CPU_ISSET(here, &whole_) && CPU_COUNT(&whole_) > 1) {
      part_ = whole_;
      CPU_CLR(here, &part_);
      has_part_ = sched_setaffinity(thread_, sizeof part_, &part_) == 0;
    }
    state_ = asleep;
  }

 private:
  enum State : int { awake, asleep, moving };  ///< moving: another thread changes its CPUs

  void lie_down() {
    thread_ = gettid();
    state_ = asleep;
  }
  void get_up() {
    for (State seen = asleep; !state_.compare_exchange_weak(seen, awake); seen = asleep) pause();
    give_back();
  }
  /// Where the system does not allow it, or has more CPUs than cpu_set_t, the thread stays where it is.
  bool read(cpu_set_t& cpus) const { return sched_getaffinity(thread_, sizeof cpus, &cpus) == 0; }
  void give_back() {
    cpu_set_t now;
    if (has_part_ && read(now) && CPU_EQUAL(&now, &part_)) sched_setaffinity(thread_, sizeof whole_, &whole_);
    has_part_ = false;
  }

  std::atomic<State> state_{awake};
  pid_t thread_ = 0;
  bool has_part_ = false;       ///< is it kept away from a CPU?
  cpu_set_t whole_{}, part_{};  ///< where it might run before, and where it may run now
#else
  void keep_away() {}

 private:
  void lie_down() {}
  void get_up() {}
#endif
};

}  // namespace redblue::threads
