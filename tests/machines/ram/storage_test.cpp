#include "redblue/machines/ram/storage.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <random>
#include <vector>

/// Words of 16 bits as each instruction set converts them against the portable way, one at a time.
namespace redblue::machine {
namespace {

constexpr Shape kShape{255, 257};  // as many words as there are patterns of 16 bits, but one; no row fills its vectors
constexpr index_t kStrides[] = {kShape.cols, kShape.cols + 1};  // rows that follow each other are converted as one

template <class T>
Storage storage_of(std::vector<T>& words, DType dtype) {
  Storage s;
  s.data = reinterpret_cast<std::byte*>(words.data());
  s.dtype = dtype;
  s.row_stride = kShape.cols;
  return s;
}
constexpr Block kAll{SlowArray::Q, 0, 0, 0, kShape};

class RowConversionTest : public testing::TestWithParam<Isa> {
 protected:
  void SetUp() override {
    if (!is_available(GetParam())) GTEST_SKIP() << "this machine has no " << name_of(GetParam());
    row_conversion_ = kernel::implementations<float>(GetParam()).row_conversion;
    ASSERT_NE(row_conversion_.widen, nullptr);
  }
  kernel::RowConversion<float> row_conversion_;
};

TEST_P(RowConversionTest, WidenEveryPattern) {
  std::vector<std::uint16_t> halves(static_cast<std::size_t>(kShape.words()));
  for (std::size_t i = 0; i < halves.size(); ++i) halves[i] = static_cast<std::uint16_t>(i);
  for (const DType dtype : {DType::f16, DType::bf16})
    for (const index_t stride : kStrides) {
      const Storage s = storage_of(halves, dtype);
      std::vector<float> fast(static_cast<std::size_t>(kShape.rows * stride)), plain(fast.size());
      gather(s, kAll, fast.data(), stride, row_conversion_);
      gather(s, kAll, plain.data(), stride);
      for (std::size_t i = 0; i < fast.size(); ++i) {
        ASSERT_EQ(std::isnan(fast[i]), std::isnan(plain[i])) << name_of(dtype) << " " << i;
        if (!std::isnan(plain[i])) {
          ASSERT_EQ(std::bit_cast<std::uint32_t>(fast[i]), std::bit_cast<std::uint32_t>(plain[i]))
              << name_of(dtype) << " " << i;
        }
      }
    }
}

TEST_P(RowConversionTest, NarrowToTheNearestAndTiesToEven) {
  std::mt19937 random(1);
  std::vector<float> words(static_cast<std::size_t>(kShape.rows * kStrides[1]));
  for (std::size_t i = 0; i < words.size(); ++i) {
    auto bits = static_cast<std::uint32_t>(random());
    if (i % 3 == 0) bits &= 0xffff8000U;                        // on a tie for bf16, or exact
    if (i % 3 == 1) bits = (bits & 0x8ffff000U) | 0x38000000U;  // on a tie for f16, or exact
    words[i] = std::bit_cast<float>(bits);
  }
  for (const index_t stride : kStrides)
    for (const DType dtype : {DType::f16, DType::bf16}) {
      std::vector<std::uint16_t> fast(static_cast<std::size_t>(kShape.words())), plain(fast.size());
      scatter(storage_of(fast, dtype), kAll, words.data(), stride, 1, row_conversion_);
      scatter(storage_of(plain, dtype), kAll, words.data(), stride, 1);
      const int exponent = dtype == DType::f16 ? 0x7c00 : 0x7f80;
      const auto is_nan = [&](std::uint16_t x) { return (x & 0x7fff) > exponent; };
      int ties = 0;
      for (std::size_t i = 0; i < fast.size(); ++i) {
        const auto row = i / static_cast<std::size_t>(kShape.cols),
                   gap = static_cast<std::size_t>(stride - kShape.cols);
        const float word = words[i + row * gap];
        ASSERT_EQ(is_nan(fast[i]), std::isnan(word)) << name_of(dtype) << " " << word;
        if (!is_nan(fast[i])) {
          ASSERT_EQ(fast[i], plain[i]) << name_of(dtype) << " " << word;
        }
        if (dtype == DType::bf16 && (std::bit_cast<std::uint32_t>(word) & 0xffffU) == 0x8000U) ++ties;
      }
      if (dtype == DType::bf16) {
        EXPECT_GT(ties, 1000);
      }
    }
}

INSTANTIATE_TEST_SUITE_P(EveryIsa, RowConversionTest, testing::Values(Isa::avx2, Isa::avx512, Isa::avx512_bf16),
                         [](const auto& isa) { return std::string(name_of(isa.param)); });

}  // namespace
}  // namespace redblue::machine
