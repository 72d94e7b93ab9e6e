#include "redblue/threads/sleeper.hpp"

#include <gtest/gtest.h>

#include <thread>

#include "redblue/threads/pool.hpp"

namespace redblue::test {
namespace {

cpu_set_t cpus_of(pid_t thread) {
  cpu_set_t cpus;
  EXPECT_EQ(sched_getaffinity(thread, sizeof cpus, &cpus), 0);
  return cpus;
}
bool equal(cpu_set_t a, cpu_set_t b) { return CPU_EQUAL(&a, &b); }

/// A thread that sleeps until it is woken, and says where it may run then.
class Sleeping {
 public:
  Sleeping() {
    while (id_ == 0) std::this_thread::yield();
  }
  ~Sleeping() {
    if (thread_.joinable()) wake();
  }
  pid_t id() const { return id_; }
  /// Keeps it away from this CPU; returns where it may run now.
  cpu_set_t keep_away() {
    sleeper_.keep_away();
    return cpus_of(id_);
  }
  /// The same once it is asleep, which takes a moment; `all`: where it may run.
  cpu_set_t keep_away_asleep(const cpu_set_t& all) {
    cpu_set_t left = all;
    for (int tries = 0; tries < 2000 && equal(left, all); ++tries) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      left = keep_away();
    }
    return left;
  }
  cpu_set_t wake() {
    word_ = 1;
    word_.notify_one();
    thread_.join();
    return after_;
  }

 private:
  threads::Sleeper sleeper_;
  std::atomic<int> word_{0}, id_{0};
  cpu_set_t after_{};
  std::thread thread_{[this] {
    id_ = gettid();
    sleeper_.wait(word_, 0);
    after_ = cpus_of(0);
  }};
};

TEST(ThreadsSleeper, MayNotWakeWhereItIsCalledAndMayThenGoEverywhere) {
  const cpu_set_t all = cpus_of(0);
  Sleeping sleeping;
  cpu_set_t left = sleeping.keep_away_asleep(all);
  for (int again = 0; again < 3; ++again) {  // it stays with one CPU less, whichever it is by now
    EXPECT_EQ(CPU_COUNT(&left), std::max(1, CPU_COUNT(&all) - 1));
    left = sleeping.keep_away();
  }
  EXPECT_TRUE(equal(sleeping.wake(), all));
}

TEST(ThreadsSleeper, StaysWhereOthersPutItWhileItSleeps) {
  const cpu_set_t all = cpus_of(0);
  if (CPU_COUNT(&all) < 2) GTEST_SKIP() << "one CPU";
  Sleeping sleeping;
  cpu_set_t one = sleeping.keep_away_asleep(all);
  CPU_XOR(&one, &one, &all);  // the CPU that it is kept away from
  ASSERT_EQ(sched_setaffinity(sleeping.id(), sizeof one, &one), 0);
  sleeping.keep_away();
  EXPECT_TRUE(equal(sleeping.wake(), one));
}

TEST(ThreadsSleeper, TasksOfAPoolMayRunOnEveryCpu) {
  const cpu_set_t all = cpus_of(0);
  const auto pool = make_pool(3);
  std::atomic<int> restricted{0};
  for (int round = 0; round < 30; ++round) {
    pool->run(6, [&](int) {
      if (!equal(cpus_of(0), all)) ++restricted;
      std::this_thread::sleep_for(std::chrono::microseconds(100));  // so that the helpers take part
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(1));  // and fall asleep
  }
  EXPECT_EQ(restricted, 0);
}

}  // namespace
}  // namespace redblue::test
