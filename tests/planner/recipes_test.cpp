#include "redblue/planner/recipes.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <random>

#include "redblue/language/error.hpp"
#include "redblue/masks/patterns.hpp"
#include "redblue/planner/classes.hpp"
#include "redblue/planner/downhill.hpp"
#include "redblue/planner/plan_here.hpp"
#include "redblue/threads/worth.hpp"
#include "support/cases.hpp"
#include "support/generators.hpp"
#include "support/many_cases.hpp"
#include "support/paths.hpp"

namespace redblue::test {
namespace {

TimeOptions on_one_core(int threads = 1) {
  return {.hardware = load_hardware(in_sources("/tests/data/hardware.json")), .threads = threads};
}

Problem of(index_t n_q, index_t n_k, index_t heads = 8) {
  Problem p = problem(n_q, n_k, 64, 64);
  p.heads = heads;
  return p;
}

/// A problem of a kind that models have, of any length.
Problem any_problem(std::mt19937& random) {
  const auto length = [&](double most) {
    return static_cast<index_t>(std::exp(std::uniform_real_distribution<double>(std::log(8), std::log(most))(random)));
  };
  const auto one_of = [&](std::initializer_list<index_t> list) { return std::data(list)[random() % list.size()]; };
  const index_t n = length(3000);
  Problem p = of(n, n, one_of({1, 8, 12}));
  p.d = p.d_v = one_of({32, 64, 128});
  switch (random() % 6) {
    case 0:
      p.causal = true;
      break;
    case 1:
      p.causal = true;
      p.window_left = 128;
      break;
    case 2:
      p.n_q = 1;
      break;
    case 3:  // the last queries
      p.causal = true;
      p.n_q = std::max<index_t>(1, n - 40);
      break;
    case 4:
      p.bias = std::array<index_t, 4>{1, p.heads, n, n};
      break;
    default:
      break;
  }
  if (p.n_q > 1 && random() % 3 == 0) p.op = Operation::backward;
  return p;
}

TEST(Recipes, TakeAboutTheLeastModelledTime) {
  std::mt19937 random(3);
  for (const int threads : {1, 4}) {
    const TimeOptions time = on_one_core(threads);
    Recipes recipes;
    std::vector<double> ratios;
    double logs = 0;
    for (int i = 0; i < cases(60); ++i) {
      const Problem p = any_problem(random);
      const plan::Plan least = make_fastest_plan(p, {}, time), quick = recipes.plan(p, {}, time);
      EXPECT_EQ(quick.rows.size(), 1);
      EXPECT_TRUE(quick.row().fits);
      EXPECT_EQ(quick.options.M, least.options.M);
      EXPECT_EQ(quick.row().io.total(),
                quick.row().algorithm->io(p.sizes(), quick.row().tiling).total() * p.instances());
      ratios.push_back(modelled_time(quick, time).total_s / modelled_time(least, time).total_s);
      logs += std::log(ratios.back());
    }
    std::ranges::sort(ratios);
    EXPECT_LE(std::exp(logs / static_cast<double>(ratios.size())), 1.01) << threads;
    EXPECT_LE(ratios[ratios.size() * 9 / 10], 1.03) << threads;
    EXPECT_LE(ratios.back(), 1.25) << threads;
  }
}

/// What a plan for lengths that nobody saw costs, in numbers that no machine changes.
TEST(Recipes, WalkFewTilingsAndOperationsForAnyLength) {
  const TimeOptions time = on_one_core();
  plan::Options options;
  options.M = fast_memory_of(time.hardware, time.dtype);
  std::mt19937 random(5);
  for (int i = 0; i < cases(200); ++i) {
    Problem p = any_problem(random);
    const index_t times = index_t{1} << random() % 9;  // up to 2^20 tokens
    for (index_t* n : {&p.n_q, &p.n_k})
      if (*n > 8) *n *= times;
    p.bias = std::nullopt;
    const Problem one = class_of(p, 1).value();
    const std::vector<LikelySchedule> usual = usual_contenders(one, options, time);
    ASSERT_LE(usual.size(), 2);
    const std::optional<Found> found = fastest_of(usual, one, options, time);
    ASSERT_TRUE(found);
    EXPECT_LE(found->tilings, 16) << p.n_q << ' ' << p.n_k;
    EXPECT_LE(found->operations, p.masked() ? 24'000 : 8'000) << p.n_q << ' ' << p.n_k;
  }
}

TEST(Recipes, CompareAllSchedulesWhereNoListOfUsualOnesWasMeasured) {
  TimeOptions time = on_one_core();
  plan::Options options;
  options.M = fast_memory_of(time.hardware, time.dtype);
  Problem p = of(300, 300);
  EXPECT_FALSE(usual_contenders(p, options, time).empty());
  p.score = Score::relu;
  EXPECT_TRUE(usual_contenders(p, options, time).empty());
  p.score = Score::softmax;
  options.M = 1000;
  EXPECT_TRUE(usual_contenders(p, options, time).empty());
  Recipes recipes;
  EXPECT_LE(recipes.plan(p, options, time).row().footprint, 1000);
  options.M = fast_memory_of(time.hardware, time.dtype);
  time.threads = 2;
  EXPECT_TRUE(usual_contenders(p, options, time).empty());
}

/// An array of booleans that is a mask has the plan of the mask.
TEST(Recipes, PatternsThatMakeMasksAreInTheClassOfTheMasks) {
  const TimeOptions time = on_one_core();
  constexpr index_t kLength = 200;
  const auto shown = [](index_t n_q, index_t n_k, const auto& sees) {
    std::vector<std::uint8_t> seen;
    for (index_t i = 0; i < n_q; ++i)
      for (index_t j = 0; j < n_k; ++j) seen.push_back(sees(i, j) ? 1 : 0);
    return Patterns{std::make_shared<const RunLists>(patterns::of_mask({.n_q = n_q, .n_k = n_k}, seen))};
  };
  const auto expect_same = [&](const Problem& masked, const auto& sees) {
    Problem p = of(masked.n_q, masked.n_k, masked.heads);
    p.op = masked.op;
    p.patterns = shown(p.n_q, p.n_k, sees);
    ASSERT_TRUE(class_of(p, 1));
    Recipes recipes;
    const plan::Plan by_pattern = recipes.plan(p, {}, time), by_mask = recipes.plan(masked, {}, time);
    EXPECT_EQ(recipes.size(), 1);
    EXPECT_EQ(by_pattern.row().schedule, by_mask.row().schedule);
    EXPECT_EQ(by_pattern.row().tiling, by_mask.row().tiling);
    EXPECT_EQ(by_pattern.row().io, by_mask.row().io);
  };
  for (const Operation op : {Operation::forward, Operation::backward}) {
    Problem p = of(kLength, kLength);
    p.op = op;
    expect_same(p, [](index_t, index_t) { return true; });
    p.causal = true;
    expect_same(p, [](index_t i, index_t j) { return j <= i; });
    p.window_left = 20;
    expect_same(p, [](index_t i, index_t j) { return j <= i && j >= i - 20; });
    p.causal = false;
    expect_same(p, [](index_t i, index_t j) { return j >= i - 20; });
    p.window_right = 30;
    expect_same(p, [](index_t i, index_t j) { return j >= i - 20 && j <= i + 30; });
    p = of(kLength / 2, kLength);
    p.op = op;
    p.causal = true;
    expect_same(p, [](index_t i, index_t j) { return j <= i + kLength / 2; });
    p.causal_offset = 0;
    p.window_left = 20;
    expect_same(p, [](index_t i, index_t j) { return j <= i && j >= i - 20; });
    p = of(kLength, kLength);
    p.op = op;
    p.cu_seqlens_q = p.cu_seqlens_k = {0, 120, kLength};
    expect_same(p, [](index_t i, index_t j) { return (i < 120) == (j < 120); });
  }
}

TEST(Recipes, OtherPatternsHaveNoClass) {
  Problem p = of(64, 64);
  p.patterns = {std::make_shared<const RunLists>(patterns::strided({.n_q = 64, .n_k = 64}, 8))};
  EXPECT_FALSE(class_of(p, 1));
  std::vector<std::uint8_t> prefix, interleaved;
  for (index_t i = 0; i < 64; ++i)
    for (index_t j = 0; j < 64; ++j) {
      prefix.push_back(j <= i || j < 20 ? 1 : 0);
      interleaved.push_back(i % 2 == j % 2 ? 1 : 0);
    }
  p.patterns = {std::make_shared<const RunLists>(patterns::of_mask({.n_q = 64, .n_k = 64}, prefix))};
  EXPECT_FALSE(class_of(p, 1));
  // In this order there are two blocks, which queries and keys are copied for.
  p.patterns = {std::make_shared<const RunLists>(patterns::of_mask({.n_q = 64, .n_k = 64}, interleaved))};
  p.order = PatternOrder::jaccard;
  EXPECT_FALSE(has_pattern(p.sizes()));
  EXPECT_FALSE(class_of(p, 1));
}

/// Plans of patterns try the tiles of one schedule, in each order of queries and keys that pays.
TEST(Recipes, PatternsTakeAboutTheLeastModelledTime) {
  const TimeOptions time = on_one_core();
  constexpr index_t kLength = 192;
  const patterns::Between between{.n_q = kLength, .n_k = kLength};
  std::mt19937 random(4);
  std::vector<std::uint8_t> scattered(kLength * kLength);
  for (std::uint8_t& sees : scattered) sees = random() % 20 == 0 ? 1 : 0;
  for (index_t i = 0; i < kLength; ++i) scattered[static_cast<std::size_t>(i * (kLength + 1))] = 1;
  const std::array lists{patterns::strided(between, 8), patterns::big_bird(between, {.block = 16, .randoms = 1}),
                         patterns::of_mask(between, scattered), patterns::window(between, 8, 8, 16)};
  for (const Operation op : {Operation::forward, Operation::backward})
    for (std::size_t k = 0; k < lists.size(); ++k) {
      Problem p = of(kLength, kLength, 4);
      p.op = op;
      p.forward_given = false;
      p.patterns = {std::make_shared<const RunLists>(lists[k])};
      Recipes recipes;
      const plan::Plan least = make_fastest_plan(p, {}, time), quick = recipes.plan(p, {}, time);
      EXPECT_EQ(quick.rows.size(), 1);
      EXPECT_FALSE(quick.row().time);
      EXPECT_TRUE(quick.options.reorder);
      EXPECT_EQ(quick.forward != nullptr, op == Operation::backward);
      EXPECT_EQ(quick.options.M, least.options.M);
      EXPECT_NE(quick.reason.find("that were tried"), std::string::npos) << quick.reason;
      EXPECT_LE(modelled_time(quick, time).total_s, 1.15 * modelled_time(least, time).total_s)
          << k << ": " << plan::text_of(quick.row()) << ", least " << plan::text_of(least.row());
    }
}

TEST(Recipes, DoNotDependOnWhatWasAskedBefore) {
  const TimeOptions time = on_one_core();
  Recipes up, down;
  std::vector<plan::Tiling> tilings;
  for (index_t n = 300; n < 500; n += 13) tilings.push_back(up.plan(of(n, n), {}, time).row().tiling);
  for (index_t n = 300 + 15 * 13; n >= 300; n -= 13) {
    EXPECT_EQ(down.plan(of(n, n), {}, time).row().tiling, tilings.back()) << n;
    tilings.pop_back();
  }
  EXPECT_TRUE(tilings.empty());
  EXPECT_EQ(up.size(), 2);  // 256 to 383, 384 to 511
}

/// Tiles that span 384 queries and keys fit, such that span 450 do not: they keep their sizes, and nothing is walked.
TEST(Recipes, KeepTilesWhereLongerOnesDoNotFit) {
  Problem p = of(450, 450, 12);
  p.d = p.d_v = 128;
  plan::Options o;
  o.M = 65536;
  Recipes recipes;
  EXPECT_NE(recipes.plan(p, o, on_one_core()).reason.find("which stand for these lengths"), std::string::npos);
}

TEST(Recipes, MaskedLengthsOfOneClassKeepWhichIsLonger) {
  for (const auto& [n_q, n_k] : {std::pair<index_t, index_t>{300, 310}, {310, 300}}) {
    Problem p = of(n_q, n_k);
    p.causal = true;
    const Problem one = class_of(p, 1).value();
    EXPECT_EQ(std::min(one.n_q, one.n_k), 256);
    EXPECT_EQ(std::max(one.n_q, one.n_k), 383);
    EXPECT_EQ(one.n_q < one.n_k, n_q < n_k);
  }
}

TEST(Recipes, ClassesHaveTheShortestLengthsAndNoNumbersThatCostNoTime) {
  Problem p = of(1000, 1000);
  p.batch = 7;
  p.scale = 3;
  p.softcap = 50;
  p.dropout = 0.1;
  p.seed = 9;
  p.bias = std::array<index_t, 4>{7, 1, 1, 1000};
  const Problem one = class_of(p, 1).value();
  EXPECT_EQ(one.n_q, 768);
  EXPECT_EQ(one.instances(), 16);  // of 56
  EXPECT_EQ(*one.bias, (std::array<index_t, 4>{1, 1, 1, 768}));
  one.validate();
  Problem other = p;
  other.n_q = other.n_k = 800;
  other.batch = 2;
  other.scale = std::nullopt;
  other.softcap = 3;
  other.dropout = 0.5;
  other.seed = 1;
  other.bias = std::array<index_t, 4>{2, 1, 1, 800};
  const TimeOptions time = on_one_core();
  Recipes recipes;
  recipes.plan(p, {}, time);
  recipes.plan(other, {}, time);
  EXPECT_EQ(recipes.size(), 1);
  other.softcap = 0;
  recipes.plan(other, {}, time);
  EXPECT_EQ(recipes.size(), 2);
}

/// Faces that take an alignment give an offset where none is needed: PyTorch's is_causal is aligned to the top left.
TEST(Recipes, OffsetsThatMoveNoDiagonalAreInTheClassOfNone) {
  Problem p = of(400, 400);
  p.causal_offset = 7;
  EXPECT_TRUE(class_of(p, 1)) << "nothing counts from it";
  p.causal = true;
  EXPECT_FALSE(class_of(p, 1));
  p.causal_offset = 0;
  const TimeOptions time = on_one_core();
  Recipes recipes;
  const plan::Tiling tiles = recipes.plan(p, {}, time).row().tiling;
  p.causal_offset.reset();
  EXPECT_EQ(recipes.plan(p, {}, time).row().tiling, tiles);
  EXPECT_EQ(recipes.size(), 1);
  p.n_q = 100;  // of the last queries
  p.causal_offset = 300;
  EXPECT_TRUE(class_of(p, 1));
  p.causal_offset = 0;  // of the first queries
  EXPECT_EQ(class_of(p, 1).value().causal_offset, 0);
  p.causal_offset = 300;
  p.seqused_q = {60};
  EXPECT_FALSE(class_of(p, 1)) << "without an offset the last query in use sees all keys";
}

TEST(Recipes, LeaveOtherProblemsAndOptionsToThePlanner) {
  const TimeOptions time = on_one_core();
  Recipes recipes;
  std::vector<Problem> list(4, of(64, 64));
  list[0].causal = true;
  list[0].prefix = 5;
  list[1].causal = true;
  list[1].causal_offset = 3;
  list[2].window_left = list[2].window_right = 4;
  list[2].dilation = 2;
  list[3].approximate("2:1.0");
  for (const Problem& p : list) EXPECT_TRUE(recipes.plan(p, {}, time).row().time) << class_of(p, 1).has_value();
  plan::Options o;
  o.multiple.query = 4;
  EXPECT_TRUE(recipes.plan(of(64, 64), o, time).row().time);
  Problem pattern = of(64, 64);
  pattern.patterns = {std::make_shared<const RunLists>(patterns::longformer({64, 64}, 4, 4, 2))};
  EXPECT_TRUE(recipes.plan(pattern, o, time).row().time);
  EXPECT_TRUE(recipes.plan(pattern, {}, on_one_core(2)).row().time);
  o = {};
  o.schedule = "key_outer";
  EXPECT_EQ(recipes.plan(of(64, 64), o, time).row().schedule, "key_outer");
  EXPECT_EQ(recipes.size(), 0);
}

TEST(Recipes, TakeTheLongestOfPackedSequences) {
  const TimeOptions time = on_one_core();
  Recipes recipes;
  std::mt19937 random(4);
  for (int i = 0; i < 8; ++i) {
    std::vector<index_t> ends{0};
    for (int s = 0; s < 6; ++s) ends.push_back(ends.back() + 20 + static_cast<index_t>(random() % 300));
    ends.push_back(ends.back() + 330);
    Problem p = of(ends.back(), ends.back(), 2);
    p.causal = true;
    p.cu_seqlens_q = ends;
    if (i % 2 == 0) p.op = Operation::backward;
    const plan::Plan quick = recipes.plan(p, {}, time), least = make_fastest_plan(p, {}, time);
    EXPECT_FALSE(quick.row().time);
    // The model takes a block as long as a sequence for faster than it is: docs/time-model.md.
    EXPECT_LE(modelled_time(quick, time).total_s, 1.2 * modelled_time(least, time).total_s)
        << plan::text_of(quick.row());
  }
  EXPECT_EQ(recipes.size(), 2);  // the longest has 256 to 383 tokens
}

TEST(Recipes, RefuseSizesThatMakeNoSense) {
  Recipes recipes;
  Problem p = of(64, 64);
  p.kv_heads = 0;
  p.cu_seqlens_q = {0, 30, 64};
  EXPECT_THROW(recipes.plan(p, {}, on_one_core()), InvalidProblem);
  p = of(64, 64);
  p.cu_seqlens_q = {0, 90, 64};
  EXPECT_THROW(recipes.plan(p, {}, on_one_core()), InvalidProblem);
}

TEST(Recipes, PlanTheForwardPassThatMustRunFirst) {
  Problem p = of(200, 200);
  p.op = Operation::backward;
  p.forward_given = false;
  Recipes recipes;
  const plan::Plan plan = recipes.plan(p, {}, on_one_core());
  ASSERT_NE(plan.forward, nullptr);
  EXPECT_EQ(plan.forward->problem.op, Operation::forward);
  EXPECT_EQ(recipes.size(), 2);
}

TEST(Recipes, LetGoOfTheOneThatWasNotUsedForLongest) {
  const TimeOptions time = on_one_core();
  Recipes recipes(2);
  for (const index_t n : {8, 9, 8, 10}) recipes.plan(of(n, n), {}, time);
  EXPECT_EQ(recipes.size(), 2);
}

/// A run takes no more threads of a pool than its work is worth, and its plan is made for those.
TEST(PlanHere, IsForTheThreadsThatTheRunTakes) {
  const auto plan = [](const Problem& p, int threads, bool at_most) {
    const RunHere run{.threads = threads, .hardware_file = in_sources("/tests/data/hardware.json"), .at_most = at_most};
    return make_plan_here(p, {}, run);
  };
  for (const Operation op : {Operation::forward, Operation::backward})
    for (const index_t n : {16, 64, 100, 130, 500}) {
      Problem p = of(n, n, 1);
      p.op = op;
      const plan::Plan some = plan(p, 8, true);
      const int worth = threads::worth(some.row().flops, 8);
      SCOPED_TRACE(text_of(some.row()) + " " + std::to_string(worth));
      const plan::Plan exactly = plan(p, worth, false);
      EXPECT_EQ(some.row().schedule, exactly.row().schedule);
      EXPECT_EQ(some.row().tiling, exactly.row().tiling);
      EXPECT_EQ(some.reason, exactly.reason);
    }
  EXPECT_EQ(threads::worth(0, 8), 1);
  EXPECT_EQ(threads::worth(10'000'000'000, 8), 8);
}

}  // namespace
}  // namespace redblue::test
