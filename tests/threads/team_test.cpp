#include "redblue/machines/ram/team.hpp"

#include <gtest/gtest.h>

#include <limits>
#include <stdexcept>
#include <thread>

#include "redblue/threads/subnormals.hpp"
#include "threads/pools.hpp"

namespace redblue::test {
namespace {

using machine::Team;
using Worker = Team::Worker;

/// Calls f(pool) for pools of every kind, more threads than CPUs among them.
template <class F>
void for_each_pool(const F& f) {
  InOrder in_order;
  InReverse in_reverse;
  AllAtOnce all_at_once;
  const auto kept = make_pool(8);
  for (ThreadPool* pool : {static_cast<ThreadPool*>(&in_order), static_cast<ThreadPool*>(&in_reverse),
                           static_cast<ThreadPool*>(&all_at_once), kept.get()})
    f(*pool);
}

TEST(ThreadsTeam, RunsEveryItemOnce) {
  for_each_pool([](ThreadPool& pool) {
    for (const int workers : {1, 2, 3, 8})
      for (const index_t n : {0, 1, 2, 100}) {
        std::vector<int> seen(static_cast<std::size_t>(n));
        Team::run(pool, workers, [&](Team& team) {
          EXPECT_EQ(team.workers(), workers);
          team.each({}, n, [&](Worker at, index_t i) {
            EXPECT_GE(at.index, 0);
            EXPECT_LT(at.index, workers);
            EXPECT_EQ(at.depth, 1);
            ++seen[static_cast<std::size_t>(i)];
          });
        });
        ASSERT_EQ(seen, std::vector<int>(static_cast<std::size_t>(n), 1));
      }
  });
}

/// A third of the smallest normal number, formed here and now.
float subnormal() {
  volatile float least = std::numeric_limits<float>::min();
  return least / 3;
}

#if defined(__SSE__)
TEST(ThreadsTeam, FlushesSubnormalsOnAllWorkersAndInNobodyElsesArithmetic) {
  for_each_pool([](ThreadPool& pool) {
    for (const int workers : {1, 3})
      for (const auto subnormals : {Team::Subnormals::kept, Team::Subnormals::flushed}) {
        const bool kept = subnormals == Team::Subnormals::kept;
        const auto main = [&](Team& team) {
          EXPECT_EQ(subnormal() > 0, kept);
          team.each({}, 20, [&](Worker, index_t) { EXPECT_EQ(subnormal() > 0, kept); });
          const threads::FlushSubnormals inside(false);
          EXPECT_GT(subnormal(), 0);
        };
        Team::run(pool, workers, main, subnormals);
        EXPECT_GT(subnormal(), 0);
        EXPECT_THROW(
            Team::run(pool, workers, [](Team&) { throw std::runtime_error("main"); }, subnormals), std::runtime_error);
        EXPECT_GT(subnormal(), 0);
        pool.run(workers, [](int) { EXPECT_GT(subnormal(), 0); });
      }
  });
}
#endif

TEST(ThreadsTeam, HandsOutTheLastItemFirst) {
  InOrder alone;  // so that there is one order
  std::vector<index_t> order;
  Team::run(alone, 4, [&](Team& team) { team.each({}, 4, [&](Worker, index_t i) { order.push_back(i); }); });
  EXPECT_EQ(order, (std::vector<index_t>{3, 2, 1, 0}));
}

TEST(ThreadsTeam, MainSeesWhatTheItemsWrote) {
  for_each_pool([](ThreadPool& pool) {
    Team::run(pool, 4, [&](Team& team) {
      std::vector<index_t> a(64), b(64);
      for (index_t round = 0; round < 50; ++round) {
        team.each({}, 64, [&](Worker, index_t i) { a[static_cast<std::size_t>(i)] = round + i; });
        team.each({}, 64, [&](Worker, index_t i) {
          b[static_cast<std::size_t>(i)] = a[static_cast<std::size_t>(63 - i)];  // by whichever worker
        });
        for (index_t i = 0; i < 64; ++i) ASSERT_EQ(b[static_cast<std::size_t>(i)], round + 63 - i);
      }
    });
  });
}

TEST(ThreadsTeam, AWorkerIsInOneItemOfALoopDepthAtATime) {
  // What belongs to a worker at a depth is never used by two items at once: its workspace, its arena.
  for_each_pool([](ThreadPool& pool) {
    for (int round = 0; round < 20; ++round)
      Team::run(pool, 4, [&](Team& team) {
        std::array<std::array<int, 4>, 4> inside{};  // [worker][depth]: no lock, each is its worker's own
        std::atomic<int> leaves{0};
        const std::function<void(Worker, index_t)> nest = [&](Worker at, index_t) {
          int& here = inside[static_cast<std::size_t>(at.index)][static_cast<std::size_t>(at.depth)];
          EXPECT_EQ(++here, 1);
          if (at.depth < 3) team.each(at, 3, nest);
          if (at.depth == 3) ++leaves;
          EXPECT_EQ(--here, 0);
        };
        team.each({}, 7, nest);
        EXPECT_EQ(leaves, 7 * 3 * 3);
      });
  });
}

TEST(ThreadsTeam, AWorkerIsOneThread) {
  const auto pool = make_pool(4);
  Team::run(*pool, 4, [&](Team& team) {
    std::array<std::thread::id, 4> thread;
    thread[0] = std::this_thread::get_id();
    for (int round = 0; round < 50; ++round)
      team.each({}, 20, [&](Worker at, index_t) {
        auto& mine = thread[static_cast<std::size_t>(at.index)];
        if (mine == std::thread::id()) mine = std::this_thread::get_id();
        EXPECT_EQ(mine, std::this_thread::get_id());
      });
  });
}

TEST(ThreadsTeam, OthersHelpALoopInsideALoneItem) {
  AllAtOnce pool;
  Team::run(pool, 2, [&](Team& team) {
    team.each({}, 1, [&](Worker outer, index_t) {
      std::atomic<int> met{0};
      team.each(outer, 2, [&](Worker, index_t) { meet(met, 2); });
    });
  });
}

TEST(ThreadsTeam, AWorkerThatWaitsHelpsTheLoopsInsideTheOneItWaitsFor) {
  AllAtOnce pool;
  Team::run(pool, 2, [&](Team& team) {
    std::atomic<bool> other_begun{false};
    team.each({}, 2, [&](Worker outer, index_t i) {
      if (i == 1) {
        while (!other_begun) std::this_thread::yield();
        return;  // and has nothing left to do but to help
      }
      other_begun = true;
      std::atomic<int> met{0};
      team.each(outer, 2, [&](Worker, index_t) { meet(met, 2); });
    });
  });
}

TEST(ThreadsTeam, AnExceptionOfAnItemReachesTheCaller) {
  for_each_pool([](ThreadPool& pool) {
    for (const int workers : {1, 2, 8}) {
      std::atomic<int> started{0};
      EXPECT_THROW(Team::run(pool, workers,
                             [&](Team& team) {
                               team.each({}, 100'000, [&](Worker at, index_t) {
                                 ++started;
                                 team.each(at, 4, [&](Worker, index_t i) {
                                   if (i == 1) throw std::runtime_error("an item's own");
                                 });
                               });
                             }),
                   std::runtime_error);
      EXPECT_LE(started, workers);                // the rest was left out
      Team::run(pool, workers, [&](Team& team) {  // main may catch it and go on
        EXPECT_THROW(team.each({}, 9, [](Worker, index_t) { throw std::runtime_error("caught"); }), std::runtime_error);
        std::atomic<int> done{0};
        team.each({}, 9, [&](Worker, index_t) { ++done; });
        EXPECT_EQ(done, 9);
      });
    }
  });
}

TEST(ThreadsTeam, AnExceptionOfMainReachesTheCaller) {
  for_each_pool([](ThreadPool& pool) {
    EXPECT_THROW(Team::run(pool, 3, [](Team&) { throw std::runtime_error("main's own"); }), std::runtime_error);
  });
}

TEST(ThreadsTeam, RunsInsideATaskOfItsPool) {
  const auto pool = make_pool(3);
  std::atomic<int> items{0};
  pool->run(
      3, [&](int) { Team::run(*pool, 3, [&](Team& team) { team.each({}, 10, [&](Worker, index_t) { ++items; }); }); });
  EXPECT_EQ(items, 30);
}

TEST(ThreadsTeam, TwoCallersShareAPool) {
  const auto pool = make_pool(3);
  std::atomic<int> items{0};
  const auto call = [&] {
    for (int round = 0; round < 100; ++round)
      Team::run(*pool, 3, [&](Team& team) { team.each({}, 10, [&](Worker, index_t) { ++items; }); });
  };
  std::thread other(call);
  call();
  other.join();
  EXPECT_EQ(items, 2000);
}

TEST(ThreadsTeam, WakesWorkersThatSleep) {
  AllAtOnce pool;
  Team::run(pool, 3, [&](Team& team) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));  // a long stretch without a loop
    std::atomic<int> met{0};
    team.each({}, 3, [&](Worker, index_t) { meet(met, 3); });
  });
}

}  // namespace
}  // namespace redblue::test
