#include "threads/sleeper.hpp"

#include <gtest/gtest.h>

#include <thread>

#include "redblue/threads.hpp"

namespace redblue::test {
namespace {

cpu_set_t cpus_of(pid_t thread) {
  cpu_set_t cpus;
  EXPECT_EQ(sched_getaffinity(thread, sizeof cpus, &cpus), 0);
  return cpus;
}
bool equal(cpu_set_t a, cpu_set_t b) { return CPU_EQUAL(&a, &b); }

TEST(ThreadsSleeper, MayNotWakeWhereItIsCalledAndMayThenGoEverywhere) {
  const cpu_set_t all = cpus_of(0);
  threads::Sleeper sleeper;
  std::atomic<int> word{0}, thread{0};
  cpu_set_t after{};
  std::thread sleeping([&] {
    thread = gettid();
    sleeper.wait(word, 0);
    after = cpus_of(0);
  });
  while (thread == 0) std::this_thread::yield();
  cpu_set_t before = all;
  for (int tries = 0; tries < 2000 && equal(before, all); ++tries) {  // until it is asleep
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    sleeper.keep_away();
    before = cpus_of(thread);
  }
  EXPECT_EQ(CPU_COUNT(&before), std::max(1, CPU_COUNT(&all) - 1));
  for (int again = 0; again < 3; ++again) {  // it stays with one CPU less, whichever it is by now
    sleeper.keep_away();
    before = cpus_of(thread);
    EXPECT_EQ(CPU_COUNT(&before), std::max(1, CPU_COUNT(&all) - 1));
  }
  word = 1;
  word.notify_one();
  sleeping.join();
  EXPECT_TRUE(equal(after, all));
}

TEST(ThreadsSleeper, StaysWhereOthersPutItWhileItSleeps) {
  const cpu_set_t all = cpus_of(0);
  if (CPU_COUNT(&all) < 2) GTEST_SKIP() << "one CPU";
  threads::Sleeper sleeper;
  std::atomic<int> word{0}, thread{0};
  cpu_set_t after{};
  std::thread sleeping([&] {
    thread = gettid();
    sleeper.wait(word, 0);
    after = cpus_of(0);
  });
  while (thread == 0) std::this_thread::yield();
  cpu_set_t one = all;
  while (equal(one, all)) {  // until it is asleep
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    sleeper.keep_away();
    one = cpus_of(thread);
  }
  CPU_XOR(&one, &one, &all);  // the CPU that it is kept away from
  ASSERT_EQ(sched_setaffinity(thread, sizeof one, &one), 0);
  sleeper.keep_away();
  word = 1;
  word.notify_one();
  sleeping.join();
  EXPECT_TRUE(equal(after, one));
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
