#include "redblue/planner/time.hpp"

#include <gmock/gmock.h>
#include <rapidcheck/gtest.h>

#include <numeric>

#include "redblue/language/error.hpp"
#include "support/paths.hpp"

namespace redblue::model {
namespace {

Hardware invented() { return load_hardware(test::in_sources("/tests/data/hardware.json")); }
Rates rates() { return rates_of(invented(), Isa::avx512, DType::f32); }

Traffic any_traffic() {
  const double distinct = static_cast<double>(*rc::gen::inRange<std::int64_t>(1, std::int64_t{1} << 36));
  const double fast = *rc::gen::inRange(1, 1 << 24);
  return {distinct * *rc::gen::inRange(1, 1000), distinct,
          distinct / *rc::gen::inRange(1, 64),   fast,
          fast * *rc::gen::inRange(1, 3),        distinct * *rc::gen::inRange(0, 10)};
}

TEST(TimeModel, RatesAreThoseOfTheLargestSetThatHasThem) {
  const Hardware h = invented();
  EXPECT_EQ(largest_isa(h), Isa::avx512);
  EXPECT_EQ(rates_of(h, Isa::avx512_bf16, DType::f32).macs, 95e9);
  EXPECT_EQ(rates_of(h, Isa::avx512_bf16, DType::bf16).macs, 95e9) << "computed as f32";
  EXPECT_EQ(rates_of(h, Isa::avx512_bf16, DType::bf16).word_bytes, 4);
  EXPECT_EQ(rates_of(h, Isa::avx2, DType::f64).isa, Isa::portable);
}

TEST(TimeModel, MatrixTilesHaveTheirOwnRatesAndKernelsWithoutThemThoseOfF32) {
  Hardware h = invented();
  h.peaks.push_back({Isa::amx_bf16, DType::bf16, 2e12, 8192, 0.0625});
  const Rates tiles = rates_of(h, Isa::amx_bf16, DType::bf16), f32 = tiles.without_bf16();
  EXPECT_EQ(tiles.macs, kTileShare * 1e12);
  EXPECT_EQ(tiles.lanes, 16);
  EXPECT_TRUE(tiles.multiplies_bf16);
  EXPECT_EQ(register_share(tiles, 16, 64), 3 / 3.25) << "three tiles of sums at a time, of latency 52 / 16";
  EXPECT_EQ(register_share(tiles, 8, 64), register_share(tiles, 16, 64) / 2) << "half of each tile";
  EXPECT_EQ(product_seconds(tiles, 16, 64, 33, 0), product_seconds(tiles, 16, 64, 64, 0)) << "pairs fill a tile";
  EXPECT_LT(product_seconds(tiles, 16, 64, 32, 0, Lanes::better, 0.25), product_seconds(tiles, 16, 64, 8, 0))
      << "what a mask hides makes no tile less deep";
  EXPECT_FALSE(f32.multiplies_bf16);
  for (const auto& [rows, cols] : {std::pair<index_t, index_t>{16, 64}, {5, 7}})
    EXPECT_EQ(product_seconds(f32, rows, cols, 33, 1000), product_seconds(rates(), rows, cols, 33, 1000));
  EXPECT_EQ(rates_of(h, Isa::amx_bf16, DType::f32).macs, 95e9);
}

TEST(TimeModel, PlainKernelsReachAFifthOfThePortablePeak) { EXPECT_EQ(rates().portable_macs, 0.2 * 20e9); }

TEST(TimeModel, ACacheKeepsAllOfWhatIsSmallAndNothingOfWhatIsLarge) {
  const Rates r = rates();
  constexpr double KiB = 1024;
  EXPECT_EQ(r.private_level(), 1U);
  EXPECT_EQ(r.missing(1, 640 * KiB), 0);
  EXPECT_EQ(r.missing(1, 960 * KiB), 0.5);
  EXPECT_EQ(r.missing(1, 1280 * KiB), 1);
  EXPECT_EQ(r.missing(2, 8192 * KiB), 0) << "a quarter of what others use too";
  EXPECT_EQ(r.missing(2, 16384 * KiB), 1);
  EXPECT_EQ(r.missing(3, 1e15), 0) << "main memory holds everything";
}

RC_GTEST_PROP(TimeModel, MoreBytesAreReadNoFaster, ()) {
  const Rates r = rates();
  const double few = static_cast<double>(*rc::gen::inRange<std::int64_t>(1, std::int64_t{1} << 26));
  const std::size_t first = *rc::gen::inRange(0, 4);
  const double seconds = r.seconds_per_byte(few, first);
  RC_ASSERT(seconds >= 1 / r.levels[first].read_bandwidth);
  RC_ASSERT(seconds <= (1 + 1e-12) / r.levels.back().read_bandwidth);
  RC_ASSERT(r.seconds_per_byte(1.1 * few, first) >= seconds * (1 - 1e-12));
}

TEST(TimeModel, TilesBeyondThePrivateCacheCostTheirWords) {
  const Rates r = rates();
  Traffic t{.bytes = 1e6, .distinct_bytes = 1e6, .instance_bytes = 1e6, .fast_bytes = 1e6, .held_bytes = 600e3};
  const double without = transfer_seconds(r, t, 1);
  t.touched_bytes = 1e9;
  EXPECT_EQ(transfer_seconds(r, t, 1), without) << "they fit";
  t.held_bytes = 2e6;
  EXPECT_NEAR(transfer_seconds(r, t, 1), without + 1e9 / 80e9, 1e-9) << "they come from L3";
}

TEST(TimeModel, MissingRatesAreNamed) {
  Hardware h = invented();
  std::erase_if(h.peaks, [](const Peak& p) { return p.dtype == DType::f64; });
  try {
    rates_of(h, Isa::avx512, DType::f64);
    FAIL();
  } catch (const InvalidProblem& e) {
    EXPECT_THAT(e.what(), testing::HasSubstr("no peak of f64 for avx512"));
  }
}

TEST(TimeModel, RegisterShareIsFullForWholeTilesOnly) {
  const Rates r = rates();
  EXPECT_EQ(register_share(r, 48, 64), 1);
  EXPECT_EQ(register_share(r, 64, 48), register_share(r, 48, 64));
  EXPECT_EQ(register_share(r, 8, 16), 1);
  EXPECT_LT(register_share(r, 1, 16), 0.2) << "one sum, of the eight that hide the latency";
  EXPECT_LT(register_share(r, 17, 17), 0.6) << "one lane of the second vector";
}

TEST(TimeModel, AColumnOfResultsHasOneLaneInARowMajorTile) {
  const Rates r = rates();
  EXPECT_EQ(register_share(r, 64, 1), register_share(r, 1, 64));
  EXPECT_LT(4 * register_share(r, 64, 1, Lanes::rows), register_share(r, 1, 64, Lanes::rows));
}

RC_GTEST_PROP(TimeModel, RegisterShareIsAShare, ()) {
  const double share = register_share(rates(), *rc::gen::inRange(1, 400), *rc::gen::inRange(1, 400));
  RC_ASSERT(share > 0 && share <= 1);
}

RC_GTEST_PROP(TimeModel, ProductsTakeNoLessThanTheirMultiplyAddsAtThePeak, ()) {
  const Rates r = rates();
  const index_t m = *rc::gen::inRange(1, 400), n = *rc::gen::inRange(1, 400), k = *rc::gen::inRange(1, 400);
  const double depth = static_cast<double>(k), held = 4.0 * static_cast<double>(m * n);
  const double t = product_seconds(r, m, n, depth, held);
  RC_ASSERT(t >= static_cast<double>(m * n) * depth / r.macs);
  RC_ASSERT(product_seconds(r, m, n, depth + 1, held) > t);
  Rates slower = r;
  slower.macs /= 2;
  RC_ASSERT(product_seconds(slower, m, n, depth, held) > t);
}

TEST(TimeModel, RankOneUpdatesAreFarFromThePeak) {
  const Rates r = rates();
  const double flat = product_seconds(r, 96, 128, 1, 96 * 128 * 4),
               deep = product_seconds(r, 96, 128, 64, 96 * 128 * 4);
  EXPECT_GT(64 * flat, 4 * deep);
}

RC_GTEST_PROP(TimeModel, MoreWordsTakeLonger, ()) {
  const Rates r = rates();
  Traffic t = any_traffic();
  const double cores = *rc::gen::inRange(1, 17);
  const double before = transfer_seconds(r, t, cores);
  RC_ASSERT(before >= t.bytes / (cores * r.levels.front().read_bandwidth));
  t.bytes *= 1.5;
  RC_ASSERT(transfer_seconds(r, t, cores) > before);
}

RC_GTEST_PROP(TimeModel, MoreCoresMoveWordsNoSlower, ()) {
  const Traffic t = any_traffic();
  const int cores = *rc::gen::inRange(1, 16);
  RC_ASSERT(transfer_seconds(rates(), t, cores + 1) <= transfer_seconds(rates(), t, cores));
}

RC_GTEST_PROP(TimeModel, TotalLiesBetweenTheLargerAndTheSum, ()) {
  Time t;
  t.compute_s = *rc::gen::inRange(0, 1000);
  t.exp_s = *rc::gen::inRange(0, 1000);
  t.pass_s = *rc::gen::inRange(0, 1000);
  t.transfer_s = *rc::gen::inRange(0, 3000);
  const Time c = combined(t);
  RC_ASSERT(c.total_s >= std::max(t.work_s(), t.transfer_s));
  RC_ASSERT(c.total_s <= t.work_s() + t.transfer_s);
  t.transfer_s += 1;
  RC_ASSERT(combined(t).total_s > c.total_s);
  t.transfer_s -= 1;
  t.exp_s += 1;
  RC_ASSERT(combined(t).total_s > c.total_s);
}

RC_GTEST_PROP(TimeModel, MakespanIsBounded, (int workers)) {
  workers = 1 + std::abs(workers % 20);
  const auto items = *rc::gen::nonEmpty(rc::gen::container<std::vector<double>>(
      rc::gen::map(rc::gen::inRange(1, 100), [](int x) { return static_cast<double>(x); })));
  const index_t copies = *rc::gen::inRange(1, 5);
  const double all = static_cast<double>(copies) * std::accumulate(items.begin(), items.end(), 0.0);
  const double span = makespan(items, copies, workers);
  RC_ASSERT(span >= all / workers * (1 - 1e-12));
  RC_ASSERT(span <= all * (1 + 1e-12));
  RC_ASSERT(span <= all / workers + 100);
}

/// The same, one item and one worker at a time.
double packed(std::vector<double> items, index_t copies, int workers) {
  const std::vector<double> once = items;
  for (index_t c = 1; c < copies; ++c) items.insert(items.end(), once.begin(), once.end());
  std::sort(items.begin(), items.end(), std::greater());
  std::vector<double> free_at(static_cast<std::size_t>(workers));
  for (const double item : items) *std::min_element(free_at.begin(), free_at.end()) += item;
  return *std::max_element(free_at.begin(), free_at.end());
}

RC_GTEST_PROP(TimeModel, MakespanPacksTheLongestFirst, (int workers)) {
  workers = 2 + std::abs(workers % 20);
  const auto items = *rc::gen::nonEmpty(rc::gen::container<std::vector<double>>(
      rc::gen::map(rc::gen::inRange(1, 10), [](int x) { return static_cast<double>(x); })));
  const index_t copies = *rc::gen::inRange(1, 9);
  if (static_cast<index_t>(items.size()) * copies < 32 * workers)
    RC_ASSERT(makespan(items, copies, workers) == packed(items, copies, workers));
}

TEST(TimeModel, MakespanTakesNoMemoryForWorkersOrCopies) {
  const std::vector<double> items{3.0, 2.0};
  EXPECT_EQ(makespan(items, 1, std::numeric_limits<int>::max()), 3);
  EXPECT_EQ(makespan(items, index_t{1} << 30, 1 << 30), 5);
  EXPECT_EQ(makespan(items, index_t{1} << 62, 2), 5 * 0x1p61);
}

TEST(TimeModel, MakespanOfThreeEqualItemsOnTwoWorkersIsTwo) {
  const std::vector<double> items(3, 1.0);
  EXPECT_EQ(makespan(items, 1, 2), 2);
  EXPECT_EQ(makespan(items, 2, 2), 3);
}

}  // namespace
}  // namespace redblue::model
