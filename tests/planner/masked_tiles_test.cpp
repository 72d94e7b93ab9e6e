#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <span>

#include "redblue/masks/patterns.hpp"
#include "redblue/planner/planner.hpp"
#include "redblue/schedules/parts/limits.hpp"
#include "support/cases.hpp"

/// Tiles that a mask or a pattern makes hard to choose.
namespace redblue::test {
namespace {

plan::Row plan_row(const Problem& p, Words M, const schedule::Multiples& multiple = {}, std::string schedule = {}) {
  plan::Options o;
  o.M = M;
  o.multiple = multiple;
  o.schedule = std::move(schedule);
  return plan::make_plan(p, o).row();
}

TEST(LeastOf, IsTheLargestOfTheCheapest) {
  for (unsigned seed = 1; seed <= 100; ++seed) {
    std::mt19937 random(seed);
    std::vector<Words> costs(1 + random() % 40);
    for (Words& c : costs) c = static_cast<index_t>(random() % 10);
    const auto part = [&](index_t first, index_t last) {
      return *std::ranges::min_element(
          std::span(costs).subspan(static_cast<std::size_t>(first - 1), static_cast<std::size_t>(last - first + 1)));
    };
    const index_t n = std::ssize(costs), found = schedule::least_of(n, part);
    EXPECT_EQ(part(found, found), part(1, n)) << seed;
    EXPECT_TRUE(found == n || part(found + 1, n) > part(1, n)) << seed;
  }
}

TEST(FlashPinned, PinsKeysUnderAWindowWhateverTheMultiples) {
  Problem p{.n_q = 56, .n_k = 56, .d = 8, .d_v = 4};
  const Words without = plan_row(p, 250, {2, 2, 1}).io.total();
  p.window_left = 38;
  EXPECT_EQ(without, 3344);
  EXPECT_LE(plan_row(p, 250, {2, 2, 1}).io.total(), without);
}

/// With no keys that stay it is flash, whatever else is read.
TEST(FlashPinned, NeverMovesMoreThanFlash) {
  std::mt19937 random(5);
  const auto draw = [&](index_t least, index_t most) {
    return std::uniform_int_distribution<index_t>(least, most)(random);
  };
  for (int round = 0; round < 200; ++round) {
    Problem p{.heads = draw(1, 3), .kv_heads = 1};
    p.n_q = draw(1, 1) == draw(1, 4) ? draw(1100, 2000) : draw(5, 80), p.n_k = draw(5, 80);
    p.d = draw(1, 4), p.d_v = draw(1, 4);
    if (draw(0, 3) == 0)
      p.causal = true;
    else
      p.window_left = draw(0, 40), p.window_right = draw(0, 3);
    if (draw(0, 2) > 0) p.bias = {{1, 1, draw(0, 1) == 0 ? 1 : p.n_q, p.n_k}};
    p.alibi = draw(0, 1) == 1;
    const Words M = draw(60, 900);
    EXPECT_LE(plan_row(p, M, {}, "flash_pinned").io.total(), plan_row(p, M, {}, "flash").io.total()) << round;
  }
}

/// Sequences of 7 and 8 queries: a block of 7 is the whole of one, and no multiple of 2 for the other.
TEST(Blocks, KeepToMultiplesInEachSequence) {
  Problem p{.n_q = 15, .n_k = 24, .d = 1, .d_v = 1, .causal = true};
  p.cu_seqlens_q = {0, 7, 15}, p.cu_seqlens_k = {0, 16, 24};
  const plan::Row row = plan_row(p, 38, {2, 1, 1}, "flash");
  const auto Br = std::ranges::find(row.tiling, "Br", &schedule::TileSize::name);
  EXPECT_EQ(Br->value, 7);
  ASSERT_EQ(Br->own.size(), 1);
  EXPECT_EQ(Br->own[0].value % 2, 0);
}

TEST(FlashPinned, HasTheBestOfAllBlocksWhereAllSeeTheFirstKey) {
  Problem p{.n_q = 4096, .n_k = 4096, .d = 64, .d_v = 64, .causal = true};
  EXPECT_EQ(plan_row(p, 288358, {}, "flash_pinned").io.total(), 1294336);
  p.n_q = p.n_k = 150;
  p.d = p.d_v = 4;
  for (const index_t prefix : {0, 60})
    for (const Words M : {400, 700, 1000, 1150}) {
      p.prefix = prefix;
      const plan::Row chosen = plan_row(p, M, {}, "flash_pinned");
      Words least = chosen.io.total();
      for (index_t Br = 1; Br <= p.n_q; ++Br)
        for (index_t rho = 0; rho < p.n_k; ++rho) {
          const plan::Tiling t{{"Br", Br}, {"rho", rho}, {"Bc", 1}};
          if (chosen.algorithm->footprint(p.sizes(), t) > M) break;
          least = std::min(least, chosen.algorithm->io(p.sizes(), t).total());
        }
      EXPECT_EQ(chosen.io.total(), least) << "M " << M.str() << " prefix " << prefix;
    }
}

/// Slopes and sinks are words that each block reads: blocks are chosen for these, too.
TEST(Blocks, AreChosenForSlopesAndSinksToo) {
  std::mt19937 random(3);
  const auto draw = [&](index_t least, index_t most) {
    return std::uniform_int_distribution<index_t>(least, most)(random);
  };
  for (int round = 0; round < cases(60); ++round) {
    const bool backward = round % 2 == 1;
    Problem p{.op = backward ? Operation::backward : Operation::forward, .heads = draw(1, 4), .kv_heads = 1};
    p.n_q = draw(5, 60), p.n_k = draw(5, 60), p.d = draw(1, 4), p.d_v = draw(2, 4);
    p.alibi = true, p.sinks = draw(0, 1) == 1;
    if (draw(0, 2) == 0)
      p.causal = true;
    else
      p.window_left = draw(0, 40), p.window_right = draw(0, 3);
    const auto schedules = backward ? std::vector<std::string>{"two_pass", "fused_key_outer", "fused_query_outer"}
                                    : std::vector<std::string>{"flash", "flash_pinned", "flash_tiled", "column_split"};
    for (const std::string& schedule : schedules) {
      Words before = Words(index_t{1} << 60);
      for (index_t M = 80; M < 600; M += draw(1, 40)) {
        const Words words = plan_row(p, M, {}, schedule).io.total();
        EXPECT_LE(words, before) << schedule << " M " << M << " round " << round;
        before = words;
      }
    }
  }
}

TEST(Sddmm, ReadsNoMoreOfABiasUnderAPatternThanUnderTheMaskAroundIt) {
  for (const Operation op : {Operation::scores, Operation::weights})
    for (const index_t step : {1, 3}) {
      Problem p{.op = op, .n_q = 64, .n_k = 64, .d = 4, .d_v = 4, .bias = {{1, 1, 64, 64}}};
      Problem causal = p;
      causal.causal = true;
      p.patterns = {std::make_shared<const RunLists>(patterns::strided({64, 64}, 4))};
      EXPECT_LE(plan_row(p, 400, {step, step, 1}).io.total(), plan_row(causal, 400, {step, step, 1}).io.total());
    }
}

}  // namespace
}  // namespace redblue::test
