#include <gtest/gtest.h>

#include <numeric>

#include "redblue/kernels/backward.hpp"
#include "redblue/machines/ram/ram.hpp"

/// Ram lets a tile that kernels only read lie where its words do; nobody may write it then.
namespace redblue::test {
namespace {

using machine::Ram;
using machine::SlowMemory;
using machine::Storage;

class ReadOnlyTiles : public testing::TestWithParam<Layout> {
 protected:
  ReadOnlyTiles() {
    std::iota(words_.begin(), words_.end(), 0.0F);
    std::iota(others_.begin(), others_.end(), 1000.0F);
    slow_[index_of(SlowArray::K)] = Storage::matrix(words_.data(), {20, 4});
    slow_[index_of(SlowArray::V)] = Storage::matrix(others_.data(), {20, 4});
    slow_[index_of(SlowArray::O)] = Storage::matrix(out_.data(), {20, 4});
  }
  void expect_inputs_untouched() const {
    for (std::size_t i = 0; i < words_.size(); ++i) {
      ASSERT_EQ(words_[i], static_cast<float>(i));
      ASSERT_EQ(others_[i], static_cast<float>(1000 + i));
    }
  }
  static Block rows(SlowArray a, index_t first, index_t n) { return {a, 0, first, 0, {n, 4}}; }

  std::vector<float> words_ = std::vector<float>(80), others_ = words_, out_ = words_;
  SlowMemory slow_;
};

TEST_P(ReadOnlyTiles, NoKernelMayWriteOne) {
  if (best_isa() == Isa::portable) GTEST_SKIP() << "the portable implementations copy every tile";
  Ram<float> ram(1000, slow_);
  const auto tile = ram.load(rows(SlowArray::K, 0, 20), GetParam());
  EXPECT_THROW(ram.compute(kernel::Zero{}, tile), std::logic_error);
  EXPECT_THROW(ram.compute(kernel::Zero{}, tile.rows(3, 2)), std::logic_error);
  EXPECT_THROW(ram.compute(kernel::Scale{2}, tile), std::logic_error);
  const auto sum = ram.alloc(SlowArray::O, {20, 20});
  ram.compute(kernel::Gemm{false, true}, sum, tile, tile);  // read, it may be
  expect_inputs_untouched();
}

TEST_P(ReadOnlyTiles, NoneIsLoadedInPart) {
  if (best_isa() == Isa::portable) GTEST_SKIP() << "the portable implementations copy every tile";
  Ram<float> ram(1000, slow_);
  const auto tile = ram.load(rows(SlowArray::K, 0, 20), GetParam());
  EXPECT_THROW(ram.load_into(tile.rows(0, 3), rows(SlowArray::V, 0, 3)), std::logic_error);
  expect_inputs_untouched();
}

TEST_P(ReadOnlyTiles, ATileIsLoadedAnewFromWordsOfAnyType) {
  std::vector<double> wide(80, 7);
  slow_[index_of(SlowArray::Q)] = Storage::matrix(wide.data(), {20, 4});
  Ram<float> ram(1000, slow_);
  const auto tile = ram.load(rows(SlowArray::K, 0, 20), GetParam());
  ram.load_into(tile, rows(SlowArray::Q, 0, 20));
  ram.store(tile, rows(SlowArray::O, 0, 20));
  EXPECT_EQ(out_, std::vector<float>(80, 7));
  ram.load_into(tile, rows(SlowArray::V, 0, 20));
  ram.store(tile, rows(SlowArray::O, 0, 20));
  EXPECT_EQ(out_, others_);
  expect_inputs_untouched();
}

INSTANTIATE_TEST_SUITE_P(EveryLayout, ReadOnlyTiles, testing::Values(Layout::read_only, Layout::key_panels),
                         [](const auto& layout) {
                           return std::string(kLayoutNames[static_cast<std::size_t>(layout.param)]);
                         });

}  // namespace
}  // namespace redblue::test
