#include "redblue/planner/call_memo.hpp"

#include <gtest/gtest.h>

#include <array>

#include "redblue/kernels/attention.hpp"
#include "redblue/kernels/kinds.hpp"

namespace redblue::model {
namespace {

constexpr index_t kRows = 4, kKeys = 8, kFeatures = 3;

/// A step of attention to a tile of scores at (row, col) under this mask.
class CallMemoTest : public testing::Test {
 protected:
  static kernel::OnlineAttention step(Mask mask, index_t row, index_t col) {
    kernel::OnlineAttention k{};
    k.scores.place = {mask, row, col};
    return k;
  }
  static std::array<Arg, 9> operands(index_t rows = kRows) {
    const auto tile = [](index_t depth, SlowArray a, Shape s) {
      return Arg{Arg::Kind::tile, depth, {.array = a, .shape = s}};
    };
    return {tile(3, SlowArray::S, {rows, kKeys}),
            tile(1, SlowArray::O, {rows, kFeatures}),
            tile(2, SlowArray::lse, {rows, 1}),
            tile(2, SlowArray::lse, {rows, 1}),
            tile(0, SlowArray::Q, {rows, kFeatures}),
            Arg::streaming({.array = SlowArray::K, .shape = {kKeys, kFeatures}}),
            Arg::streaming({.array = SlowArray::V, .shape = {kKeys, kFeatures}}),
            kNoWords,
            kNoWords};
  }
  const Work* find(const kernel::OnlineAttention& k, index_t rows = kRows) {
    return memo_.find(kernel::AnyKernel(k), operands(rows), tiles_);
  }
  void keep(const kernel::OnlineAttention& k, bool hides, double seconds) {
    memo_.keep(kernel::AnyKernel(k), operands(), tiles_, {kRows, kKeys}, hides, {.compute_s = seconds});
  }

  CallMemo memo_;
  std::array<HeldTile, 4> tiles_{};
};

constexpr Mask kCausal{.hi = 1};

TEST_F(CallMemoTest, CallsAsFarFromTheDiagonalAreAlike) {
  keep(step(kCausal, 16, 12), true, 3);
  ASSERT_NE(find(step(kCausal, 16, 12)), nullptr);
  EXPECT_EQ(find(step(kCausal, 116, 112))->compute_s, 3);
  EXPECT_EQ(find(step(kCausal, 117, 112)), nullptr);
  EXPECT_EQ(find(step(kCausal, 116, 0)), nullptr);  // it sees all
  EXPECT_EQ(find(step({}, 16, 12)), nullptr);
}

TEST_F(CallMemoTest, CallsThatSeeAllAreAlikeWhereverTheyAre) {
  keep(step(kCausal, 16, 0), false, 2);
  for (const index_t row : {8, 9, 1000}) {
    ASSERT_NE(find(step(kCausal, row, 0)), nullptr) << row;
    EXPECT_EQ(find(step(kCausal, row, 0))->compute_s, 2);
  }
  EXPECT_NE(find(step({}, 0, 5)), nullptr);
  EXPECT_EQ(find(step(kCausal, 6, 0)), nullptr);  // its first row does not see the last column
}

TEST_F(CallMemoTest, CallsBetweenTwoThatSeeAllDoSoToo) {
  keep(step(kCausal, 16, 0), false, 2);
  ASSERT_NE(find(step(kCausal, 1000, 0)), nullptr);
  ASSERT_NE(find(step(kCausal, 8, 0)), nullptr);
  for (index_t row = 7; row < 1002; ++row) EXPECT_NE(find(step(kCausal, row, 0)), nullptr) << row;
  EXPECT_EQ(find(step(kCausal, 6, 0)), nullptr);  // its first row does not see the last column
}

/// A block of 2048 queries by 64 keys a step meets 32 places on the diagonal, and the next block others.
TEST_F(CallMemoTest, EveryPlaceOnTheDiagonalIsKept) {
  constexpr index_t kPlaces = 200;
  for (index_t row = 0; row < kPlaces; ++row) keep(step(kCausal, row, 2 * kPlaces), true, static_cast<double>(row));
  for (index_t row = 0; row < kPlaces; ++row) {
    const Work* known = find(step(kCausal, row, 2 * kPlaces));
    ASSERT_NE(known, nullptr) << row;
    EXPECT_EQ(known->compute_s, static_cast<double>(row));
  }
}

/// Vectors of two rows: from (row, 0) on the tile has 4 row + 12 scores up to the last that a row of a vector sees.
TEST_F(CallMemoTest, WorkGrowsEvenlyWithTheScoresThatVectorsSee) {
  memo_ = CallMemo(2);
  keep(step(kCausal, 0, 0), true, 12);
  EXPECT_EQ(find(step(kCausal, 1, 0)), nullptr);
  EXPECT_EQ(find(step(kCausal, 100, 100))->compute_s, 12);
  keep(step(kCausal, 2, 0), true, 20);
  EXPECT_DOUBLE_EQ(find(step(kCausal, 1, 0))->compute_s, 16);
  EXPECT_DOUBLE_EQ(find(step(kCausal, 3, 0))->compute_s, 24);
  EXPECT_EQ(find(step(kCausal, 8, 0)), nullptr);  // it sees all: another kind of call
}

TEST_F(CallMemoTest, ACallThatSeesAllIsOneOfTheTwo) {
  memo_ = CallMemo(2);
  keep(step(kCausal, 7, 0), false, 32);
  keep(step(kCausal, 0, 0), true, 12);
  EXPECT_DOUBLE_EQ(find(step(kCausal, 2, 0))->compute_s, 20);
  memo_ = CallMemo(2);
  keep(step(kCausal, 7, 0), false, 32);
  keep(step(kCausal, 6, 0), true, 32);  // the vectors see all, but not all rows of them
  EXPECT_EQ(find(step(kCausal, 2, 0)), nullptr);
}

TEST_F(CallMemoTest, OtherShapesAndTilesAreOtherCalls) {
  keep(step({}, 0, 0), false, 1);
  EXPECT_NE(find(step({}, 0, 0)), nullptr);
  EXPECT_EQ(find(step({}, 0, 0), kRows + 1), nullptr);
  tiles_[0].layout = Layout::query_panels;
  EXPECT_EQ(find(step({}, 0, 0)), nullptr);
}

TEST_F(CallMemoTest, PrefixesDependOnMoreThanTheDiagonal) {
  constexpr Mask kPrefix{.hi = 1, .prefix = 20};
  keep(step(kPrefix, 16, 18), true, 1);
  EXPECT_EQ(find(step(kPrefix, 16, 18)), nullptr);
}

}  // namespace
}  // namespace redblue::model
