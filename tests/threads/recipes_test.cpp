#include "redblue/planner/recipes.hpp"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "support/generators.hpp"
#include "support/paths.hpp"

namespace redblue::test {
namespace {

TEST(RecipesThreads, ChooseOnceAndAlike) {
  const TimeOptions time{.hardware = load_hardware(in_sources("/tests/data/hardware.json"))};
  constexpr index_t kLengths = 12;
  const auto plan_at = [&](Recipes& recipes, index_t k) {
    return recipes.plan(problem(40 + 3 * k, 40 + 3 * k, 16, 16), {}, time).row().tiling;
  };
  Recipes alone, shared;
  std::vector<plan::Tiling> want;
  want.reserve(kLengths);
  for (index_t k = 0; k < kLengths; ++k) want.push_back(plan_at(alone, k));
  std::vector<std::thread> threads;
  threads.reserve(4);
  for (index_t t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      for (index_t i = 0; i < kLengths; ++i) {
        const index_t k = (i + 3 * t) % kLengths;
        EXPECT_EQ(plan_at(shared, k), want[static_cast<std::size_t>(k)]);
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(shared.size(), alone.size());
}

}  // namespace
}  // namespace redblue::test
