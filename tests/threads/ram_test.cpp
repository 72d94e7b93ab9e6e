#include "redblue/machines/ram/ram.hpp"

#include <gtest/gtest.h>

#include <set>
#include <thread>

#include "redblue/machines/counting.hpp"
#include "threads/pools.hpp"

namespace redblue::test {
namespace {

using machine::Ram;
using machine::SlowMemory;
using machine::Storage;
using machine::Team;

TEST(ThreadsRam, SharesALoopOutWhereNoTileIsHeldAndKeepsItWhereOneIs) {
  AllAtOnce pool;
  Team::run(pool, 3, [](Team& team) {
    Ram<float> ram(team, 10, {SlowMemory{}});
    EXPECT_EQ(ram.workers(), 3);
    std::atomic<int> begun{0};
    std::array<std::atomic<int>, 3> seen{};
    ram.each(3, [&](Ram<float>& w, index_t) {
      meet(begun, 3);
      ++seen[static_cast<std::size_t>(w.worker())];
      const auto tile = w.alloc(SlowArray::O, {2, 3});
      const auto self = std::this_thread::get_id();
      std::vector<index_t> order;
      w.each(4, [&](Ram<float>& inner, index_t i) {
        EXPECT_EQ(&inner, &w);
        EXPECT_EQ(std::this_thread::get_id(), self);
        order.push_back(i);
        const auto more = inner.alloc(SlowArray::O, {2, 2});  // 6 + 4 = M: beside the tile outside
        EXPECT_THROW(const auto x = inner.alloc(SlowArray::O, {1, 1}), CapacityError);
      });
      EXPECT_EQ(order, (std::vector<index_t>{0, 1, 2, 3}));
    });
    for (const auto& s : seen) EXPECT_EQ(s, 1);
    EXPECT_EQ(ram.padding_words(), 3 * 10);  // 6 words, then the rest of a line of 16
  });
}

TEST(ThreadsRam, WorkspaceFollowsTheItemOfTheOutermostLoop) {
  // Every instance stores its number in all rows of workspace S, by inner loops that any worker may help, and finds it.
  AllAtOnce pool;
  constexpr int kWorkers = 4;
  for (const index_t instances : {1, 3, 20}) {
    const auto sets = static_cast<std::size_t>(std::min<index_t>(kWorkers, instances));
    std::vector<std::vector<float>> workspace(sets, std::vector<float>(32));
    std::vector<float> numbers(static_cast<std::size_t>(instances)), out(numbers.size() * 32, -1);
    for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<float>(i);
    std::vector<SlowMemory> slow(sets);
    for (std::size_t i = 0; i < sets; ++i) {
      slow[i][index_of(SlowArray::Q)] = Storage::matrix(numbers.data(), {instances, 1});
      slow[i][index_of(SlowArray::O)] = Storage::matrix(out.data(), {instances * 32, 1});
      slow[i][index_of(SlowArray::S)] = Storage::matrix(workspace[i].data(), {32, 1});
    }
    for (int round = 0; round < 20; ++round)
      Team::run(pool, kWorkers, [&](Team& team) {
        Ram<float> ram(team, 1, slow);
        machine::Counted counted(ram);
        counted.each(instances, [&](auto& instance, index_t i) {
          instance.each(32, [&](auto& w, index_t row) {
            const auto t = w.load({SlowArray::Q, 0, i, 0, {1, 1}});
            w.store(t, {SlowArray::S, 0, row, 0, {1, 1}});
          });
          instance.each(32, [&](auto& w, index_t row) {
            const auto t = w.load({SlowArray::S, 0, 31 - row, 0, {1, 1}});
            w.store(t, {SlowArray::O, 0, i * 32 + row, 0, {1, 1}});
          });
        });
        EXPECT_EQ(counted.peak(), 1);
        EXPECT_EQ(counted.io().reads[index_of(SlowArray::Q)], Words(32 * instances));
        EXPECT_EQ(counted.io().writes[index_of(SlowArray::O)], Words(32 * instances));
        index_t words = 0;
        for (int w = 0; w < kWorkers; ++w) words += counted.of_worker(w).words();
        EXPECT_EQ(words, 128 * instances);
      });
    for (std::size_t k = 0; k < out.size(); ++k) ASSERT_EQ(out[k], static_cast<float>(k / 32));
  }
}

}  // namespace
}  // namespace redblue::test
