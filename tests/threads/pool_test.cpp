#include "redblue/threads/pool.hpp"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <numeric>
#include <set>
#include <thread>

#include "redblue/language/error.hpp"
#include "threads/pools.hpp"

// Stands in for an OpenMP runtime.
static bool in_a_parallel_region = false;
extern "C" int omp_in_parallel() { return in_a_parallel_region ? 1 : 0; }

namespace redblue::test {
namespace {

/// How often run(n) called each task.
std::vector<int> calls(ThreadPool& pool, int n) {
  std::vector<std::atomic<int>> count(static_cast<std::size_t>(n));
  pool.run(n, [&](int i) { ++count[static_cast<std::size_t>(i)]; });
  return {count.begin(), count.end()};
}
std::vector<int> once(int n) { return std::vector<int>(static_cast<std::size_t>(n), 1); }

/// A thread that has all of a pool of two at work while the object lives.
class Busy {
 public:
  explicit Busy(ThreadPool& pool)
      : thread_([&] {
          pool.run(2, [&](int) {
            inside_ = true;
            while (!leave_) std::this_thread::yield();
          });
        }) {
    while (!inside_) std::this_thread::yield();
  }
  ~Busy() {
    leave_ = true;
    thread_.join();
  }

 private:
  std::atomic<bool> inside_{false}, leave_{false};
  std::thread thread_;
};

TEST(ThreadsPool, CallsEveryTaskOnce) {
  for (const int size : {1, 2, 5}) {
    const auto pool = make_pool(size);
    EXPECT_EQ(pool->size(), size);
    for (int round = 0; round < 300; ++round)
      for (const int n : {0, 1, 2, 5, 17}) ASSERT_EQ(calls(*pool, n), once(n));
  }
}

TEST(ThreadsPool, RunsTasksAtTheSameTime) {
  const auto pool = make_pool(3);
  std::atomic<int> met{0};
  pool->run(3, [&](int) { meet(met, 3); });
  EXPECT_EQ(met, 3);
}

TEST(ThreadsPool, KeepsItsThreads) {
  const auto pool = make_pool(3);
  std::set<std::thread::id> seen;
  std::mutex mutex;
  for (int round = 0; round < 50; ++round) {
    if (round % 10 == 0) usleep(2000);  // asleep by now
    std::atomic<int> met{0};
    pool->run(3, [&](int) {
      meet(met, 3);
      const std::lock_guard lock(mutex);
      seen.insert(std::this_thread::get_id());
    });
  }
  EXPECT_EQ(seen.size(), 3U);
  EXPECT_TRUE(seen.contains(std::this_thread::get_id()));
}

TEST(ThreadsPool, ARunInsideATaskStaysOnItsThread) {
  const auto pool = make_pool(3), other = make_pool(3);
  std::atomic<int> inner{0}, strayed{0};
  pool->run(3, [&](int) {
    const auto self = std::this_thread::get_id();
    for (ThreadPool* p : {pool.get(), other.get()})
      p->run(4, [&](int) {
        ++inner;
        if (std::this_thread::get_id() != self) ++strayed;
      });
  });
  EXPECT_EQ(inner, 24);
  EXPECT_EQ(strayed, 0);
}

TEST(ThreadsPool, ServesOneCallerAndTheOthersServeThemselves) {
  const auto pool = make_pool(2);
  Busy busy(*pool);
  std::set<std::thread::id> seen;
  pool->run(5, [&](int) { seen.insert(std::this_thread::get_id()); });  // no lock: on this thread alone
  EXPECT_EQ(seen, std::set{std::this_thread::get_id()});
}

TEST(ThreadsPool, TwoCallersAtOnce) {
  const auto pool = make_pool(3);
  const auto call = [&] {
    for (int round = 0; round < 500; ++round) ASSERT_EQ(calls(*pool, 7), once(7));
  };
  std::thread other(call);
  call();
  other.join();
}

TEST(ThreadsPool, StaysOnItsThreadInsideAParallelRegionOfOpenMp) {
  const auto pool = make_pool(3);
  std::set<std::thread::id> seen;
  in_a_parallel_region = true;
  pool->run(9, [&](int) { seen.insert(std::this_thread::get_id()); });
  in_a_parallel_region = false;
  EXPECT_EQ(seen, std::set{std::this_thread::get_id()});
}

TEST(ThreadsPool, OfAnyKindCallsEveryTaskOnce) {
  InOrder in_order;
  InReverse in_reverse;
  AllAtOnce all_at_once;
  for (ThreadPool* pool : {static_cast<ThreadPool*>(&in_order), static_cast<ThreadPool*>(&in_reverse),
                           static_cast<ThreadPool*>(&all_at_once), &default_pool()})
    EXPECT_EQ(calls(*pool, 6), once(6));
}

TEST(ThreadsPool, TheDefaultIsOneWithAThreadForEachCpu) {
  EXPECT_EQ(&default_pool(), &default_pool());
  cpu_set_t cpus;
  ASSERT_EQ(sched_getaffinity(0, sizeof cpus, &cpus), 0);
  if (std::getenv("REDBLUE_THREADS") != nullptr) GTEST_SKIP() << "the environment sets the number of threads";
  EXPECT_EQ(default_pool().size(), CPU_COUNT(&cpus));
}

TEST(Pool, RefusesToBeEmpty) { EXPECT_THROW(make_pool(0), InvalidProblem); }

// Not under the thread sanitizer, which knows no threads in a child.
TEST(Pool, WorksInAChildOfFork) {
  const auto pool = make_pool(3);
  const auto all_meet = [&] {
    std::atomic<int> met{0};
    pool->run(3, [&](int) { meet(met, 3); });
  };
  all_meet();
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    alarm(20);  // ends it should it hang
    all_meet();
    _exit(calls(*pool, 9) == once(9) ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  all_meet();
}

TEST(Pool, WorksInAChildOfForkMadeWhileItIsBusy) {
  const auto pool = make_pool(2);
  Busy busy(*pool);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    alarm(20);
    std::atomic<int> met{0};
    pool->run(2, [&](int) {  // the busy thread is not here: the pool is free
      meet(met, 2);
    });
    _exit(0);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

}  // namespace
}  // namespace redblue::test
