#include "redblue/machines/ram/arena.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace redblue::test {
namespace {

using machine::Arena;

template <class T>
void fill(const View<T>& v, T value) {
  for (index_t i = 0; i < v.rows(); ++i)
    for (index_t j = 0; j < v.cols(); ++j) v(i, j) = value;
}

TEST(Arena, HoldsExactlyMWordsHoweverTheyAreDivided) {
  Arena<float> a(100);
  for (index_t i = 0; i < 100; ++i) EXPECT_EQ(a.open({1, 1}), i);  // 1500 words of padding
  EXPECT_EQ(a.used(), 100);
  EXPECT_EQ(a.most_skipped(), 99 * 15);
  EXPECT_THROW(a.open({1, 1}), CapacityError);
  EXPECT_THROW(a.require(1), CapacityError);
  for (index_t i = 99; i >= 0; --i) a.close(i, {1, 1});
  EXPECT_EQ(a.used(), 0);
  EXPECT_EQ(a.open({4, 25}), 0);
  EXPECT_THROW(a.open({1, 1}), CapacityError);
}

TEST(Arena, EveryTileBeginsOnACacheLine) {
  Arena<double> a(200);
  for (const Shape s : {Shape{3, 3}, Shape{1, 1}, Shape{8, 2}, Shape{0, 5}, Shape{7, 5}}) {
    const auto address = reinterpret_cast<std::uintptr_t>(a.tile(a.open(s)).data);
    EXPECT_EQ(address % 64, 0U);
  }
}

TEST(Arena, TilesKeepTheirNumbersWhenTheMemoryGrows) {
  Arena<float> a(1000);
  for (index_t i = 0; i < 200; ++i) fill(a.tile(a.open({1, 5})), static_cast<float>(i));  // 3200 words with padding
  for (index_t i = 0; i < 200; ++i)
    for (index_t j = 0; j < 5; ++j) EXPECT_EQ(a.tile(i)(0, j), static_cast<float>(i));
}

TEST(Arena, ATileTakesThePlaceOfTheOneClosedBefore) {
  Arena<float> a(50);
  a.open({2, 3});
  const float* const place = a.tile(a.open({4, 4})).data;
  a.close(1, {4, 4});
  EXPECT_EQ(a.tile(a.open({2, 2})).data, place);
}

TEST(Arena, RunsInGivenMemoryAndTakesNoOther) {
  const auto use = [](Arena<float>& a) {
    a.open({3, 5});
    a.open({1, 1});
    a.stage(2, {4, 4});
    a.stage(2, {2, 3});
    a.close(1, {1, 1});
    a.open({2, 9});
  };
  std::vector<float> tiles(16 + 18), staging(16);
  machine::ArenaMemory<float> memory{tiles, {}};
  memory.staging[2] = staging;
  Arena<float> given(40, memory);
  use(given);
  EXPECT_EQ(given.tile(1).data, tiles.data() + 16);
  EXPECT_EQ(given.stage(2, {4, 4}).data, staging.data());
  EXPECT_THROW(given.stage(2, {1, 17}), Error);

  memory.tiles = memory.tiles.first(16 + 17);
  Arena<float> too_small(40, memory);
  EXPECT_THROW(use(too_small), Error);
}

/// It lies in its own memory all the same.
TEST(Arena, ATileOfOutputPanelsKnowsWhereItMayBeStored) {
  constexpr Shape kShape{3, 4};
  const kernel::Placement panels{16 * 4, 0, Layout::output_panels};
  std::vector<float> rows(40);
  Arena<float> a(100);
  a.open(kShape, panels);
  EXPECT_EQ(a.tile(0).other_form, nullptr);
  const float* const own = a.tile(0).data;
  a.set_elsewhere(0, {rows.data(), kShape, 9});
  EXPECT_EQ(a.tile(0).data, own);
  EXPECT_EQ(a.tile(0).other_form, rows.data());
  EXPECT_EQ(a.tile(0).row_stride, 9);
  a.close(0, kShape);
  a.open(kShape, panels);
  EXPECT_EQ(a.tile(0).other_form, nullptr);
}

}  // namespace
}  // namespace redblue::test
