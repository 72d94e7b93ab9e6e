#include "redblue/levels/nest.hpp"

#include <gtest/gtest.h>

#include <random>

#include "redblue/language/error.hpp"

/// Plans for memories inside each other.
namespace redblue::test {
namespace {

using levels::Level;

Problem dense(index_t n_q, index_t n_k, index_t d, index_t d_v) { return {.n_q = n_q, .n_k = n_k, .d = d, .d_v = d_v}; }
levels::Nest nest(const Problem& p, std::vector<Level> memories, const plan::Options& outer = {}) {
  return levels::make_nest(p, {.levels = std::move(memories), .outer = outer});
}

TEST(Nest, OfOneFastMemoryIsThePlan) {
  for (const Operation op : {Operation::forward, Operation::backward}) {
    Problem p = dense(300, 280, 16, 8);
    p.op = op;
    const plan::Plan plan = plan::make_plan(p, {.M = 2048});
    const levels::Nest n = nest(p, {{.name = "disk"}, {.name = "8KiB", .bytes = 8192}});
    ASSERT_EQ(n.borders.size(), 1U);
    EXPECT_EQ(n.borders[0].io, plan.io());
    EXPECT_EQ(n.borders[0].bound.words, plan.bound.words);
    EXPECT_EQ(plan::text_of(n.outer.row()), plan::text_of(plan.row()));
    EXPECT_LE(n.borders[0].held, Words(2048));
  }
}

/// Words of flash inside flash, recounted from the sizes alone: each call of `keys` keys with `rows` queries moves Q
/// in, O, m and l in and out, and for each block of `kept` queries all keys and values in.
Words words_of_call(Words rows, Words keys, index_t d, index_t d_v, Words kept) {
  const Words blocks = (rows + kept - 1) / kept;
  return rows * d + 2 * rows * d_v + 4 * rows + blocks * keys * (d + d_v);
}

TEST(Nest, FlashInsideFlashMovesWhatItsFormulaSays) {
  constexpr index_t n = 1000, d = 24, d_v = 20;
  plan::Options outer;
  outer.schedule = "flash";
  outer.tiling = plan::Tiling{{"Br", 300}, {"Bc", 70}};
  const levels::Nest two = nest(
      dense(n, n, d, d_v), {{.name = "disk"}, {.name = "a", .bytes = 160000}, {.name = "b", .bytes = 16000}}, outer);
  const auto calls = std::ranges::find(two.calls, "online_attention", [](const auto& c) { return c.call.kernel; });
  ASSERT_NE(calls, two.calls.end());
  Words moved;
  for (const levels::Calls& c : two.calls)
    if (c.call.kernel == "online_attention") moved += c.words;
  Words wanted, others;
  for (const index_t rows : {300, 300, 300, 100}) {
    // A block of queries holds Q, O, m, l and a column of scores, beside one word that passes.
    const Words kept = std::min(Words(rows), (Words(4000) - 1) / (d + d_v + 2 + 1));
    wanted += 14 * words_of_call(rows, 70, d, d_v, kept) + words_of_call(rows, n - 14 * 70, d, d_v, kept);
    others += Words(rows) * (d_v + 2)               // softmax_init writes O, m, l
              + Words(rows) * (2 * (d_v + 1) + 1);  // softmax_finish reads and writes O and m, and reads l
  }
  EXPECT_EQ(moved, wanted);
  EXPECT_EQ(two.borders[1].io.total(), wanted + others);
}

TEST(Nest, MovesNoLessThanTheBoundOfAnyBorder) {
  std::mt19937 random(3);
  const auto draw = [&](index_t least, index_t most) { return std::uniform_int_distribution(least, most)(random); };
  int borders = 0;
  for (int i = 0; i < 60; ++i) {
    Problem p = dense(draw(20, 200), draw(20, 200), draw(1, 24), draw(1, 24));
    p.op = draw(0, 1) == 0 ? Operation::forward : Operation::backward;
    p.causal = draw(0, 2) == 0;
    p.heads = draw(1, 2);
    std::vector<Level> memories{{.name = "disk"}};
    for (index_t words = draw(2000, 8000); memories.size() < 4 && words > 300; words /= draw(2, 4))
      memories.push_back({.name = std::to_string(words), .bytes = Words(4 * words)});
    const levels::Nest n = nest(p, memories);
    for (const levels::Border& b : n.borders) {
      EXPECT_GE(b.io.total(), b.bound.words) << b.above << " to " << b.below;
      EXPECT_LE(b.held, b.M);
      borders += b.bound.words > 0 ? 1 : 0;
    }
    Words inner;
    for (const levels::Calls& c : n.calls) inner += c.words;
    Words counted;
    for (std::size_t k = 1; k < n.borders.size(); ++k) counted += n.borders[k].io.total();
    EXPECT_EQ(inner, counted);
  }
  EXPECT_GT(borders, 100);
}

TEST(Nest, IsNearTheBoundAtEveryBorder) {
  const levels::Nest n = nest(dense(8192, 8192, 32, 32), {{.name = "disk"},
                                                          {.name = "a", .bytes = 1 << 21},
                                                          {.name = "b", .bytes = 1 << 17},
                                                          {.name = "c", .bytes = 1 << 14}});
  for (const levels::Border& b : n.borders) EXPECT_LT(*b.ratio, 3) << b.below;
}

TEST(Nest, RefusesLevelsThatMakeNoSense) {
  const Problem p = dense(100, 100, 8, 8);
  EXPECT_THROW(nest(p, {{.name = "disk"}}), InvalidProblem);
  EXPECT_THROW(nest(p, {{.name = "disk"}, {.name = "none", .bytes = 3}}), InvalidProblem);
  EXPECT_THROW(nest(p, {{.name = "disk"}, {.name = "a", .bytes = 4000}, {.name = "b", .bytes = 4000}}), InvalidProblem);
  EXPECT_THROW(nest(p, {{.name = "disk"}, {.name = "a", .bytes = 4000}, {.name = "b", .bytes = 16}}), CapacityError);
}

TEST(Nest, OfLeastTimeTakesLongSteps) {
  const Problem p = dense(4096, 4096, 64, 64);
  levels::NestOptions options{.levels = {{.name = "disk", .bytes = 0, .bandwidth = 0},
                                         {.name = "4MiB", .bytes = 1 << 22, .bandwidth = 1e9},
                                         {.name = "256KiB", .bytes = 1 << 18, .bandwidth = 1e10}},
                              .macs_per_second = 4e10,
                              .grain = {48, 128, 1},
                              .by_time = true};
  const levels::Nest fast = levels::make_nest(p, options);
  ASSERT_TRUE(fast.seconds);
  for (const index_t step : {1, 16, 256, 4096}) {
    levels::NestOptions by_hand = options;
    by_hand.outer.schedule = "flash";
    by_hand.outer.tiling = plan::Tiling{{"Br", 4096}, {"Bc", step}};
    EXPECT_LE(*fast.seconds, *levels::make_nest(p, by_hand).seconds) << "Bc = " << step;
  }
  options.outer.schedule = "flash";
  options.outer.tiling = plan::Tiling{{"Br", 4096}, {"Bc", 1}};
  EXPECT_LT(2 * *fast.seconds, *levels::make_nest(p, options).seconds);
}

}  // namespace
}  // namespace redblue::test
