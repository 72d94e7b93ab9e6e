#include "redblue/files/tensor_file.hpp"

#include <cstdint>

#include "support.hpp"

namespace redblue::file {
namespace {

using Indices = std::vector<index_t>;

TEST(ElementCount, IsTheProductOfTheShape) {
  EXPECT_EQ(element_count(Indices{}, 8), 1);
  EXPECT_EQ(element_count(Indices{2, 3, 4}, 8), 24);
  EXPECT_EQ(element_count(Indices{2, 0, 4}, 8), 0);
}

TEST(ElementCount, RefusesNegativeAndOverflowingShapes) {
  EXPECT_FALSE(element_count(Indices{-1}, 1));
  EXPECT_FALSE(element_count(Indices{-1, 0}, 1));
  EXPECT_FALSE(element_count(Indices{index_t{1} << 32, index_t{1} << 31}, 1));
  EXPECT_TRUE(element_count(Indices{index_t{1} << 31, index_t{1} << 31}, 1));
  EXPECT_FALSE(element_count(Indices{index_t{1} << 31, index_t{1} << 31}, 2)) << "the bytes overflow";
  EXPECT_FALSE(element_count(Indices{0, index_t{1} << 32, index_t{1} << 32}, 1)) << "the strides overflow";
}

TEST(Strides, FollowTheOrder) {
  EXPECT_EQ(c_order_strides(Indices{2, 3, 4}), (Indices{12, 4, 1}));
  EXPECT_EQ(fortran_order_strides(Indices{2, 3, 4}), (Indices{1, 2, 6}));
  EXPECT_TRUE(c_order_strides(Indices{}).empty());
}

TEST(FileTensor, RefusesAShapeThatCannotBe) {
  EXPECT_CONTAINS(message_of<InvalidProblem>([] { c_order_tensor(DType::f32, {2, -3}, nullptr); }), "[2, -3]");
}

TEST(Tensor, LeavesAlignedNativeDataWhereItIs) {
  alignas(8) const float data[] = {1, 2, 3};
  const Tensor t(c_order_tensor(DType::f32, {3}, data), nullptr);
  EXPECT_EQ(t.as<float>(), data);
  EXPECT_FALSE(t.copied());
}

TEST(Tensor, CopiesMisalignedData) {
  for (const DType type : kAllTypes) {
    alignas(8) std::byte buffer[33];
    const auto data = noise(32);
    std::memcpy(buffer + 1, data.data(), 32);
    const auto n = static_cast<index_t>(32 / size_of(type));
    const Tensor t(c_order_tensor(type, {n}, buffer + 1), nullptr);
    EXPECT_TRUE(t.copied());
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(t.data()) % size_of(type), 0u);
    EXPECT_EQ(std::memcmp(t.data(), data.data(), 32), 0);
  }
}

TEST(Tensor, GivesSwappedDataInTheOrderOfTheMachine) {
  for (const DType type : kAllTypes) {
    const auto data = noise(32);
    const std::size_t width = size_of(type);
    FileTensor swapped = c_order_tensor(type, {static_cast<index_t>(32 / width)}, data.data());
    swapped.swap_bytes = true;
    const Tensor t(swapped, nullptr);
    for (std::size_t i = 0; i < 32; ++i) EXPECT_EQ(t.data()[i], data[i / width * width + width - 1 - i % width]);
    EXPECT_FALSE(t.view().swap_bytes);
  }
}

TEST(Tensor, CopiesShareTheDataAndKeepItAlive) {
  auto data = std::make_shared<std::vector<float>>(4, 2.5f);
  const std::weak_ptr<std::vector<float>> watch = data;
  {
    Tensor copy = [&] { return Tensor(c_order_tensor(DType::f32, {4}, data->data()), data); }();
    data.reset();
    const Tensor second = copy;
    EXPECT_EQ(second.as<float>()[3], 2.5f);
    EXPECT_FALSE(watch.expired());
  }
  EXPECT_TRUE(watch.expired());
}

TEST(Tensor, IsReadOnlyAsWhatItHolds) {
  const double data[] = {1, 2};
  const Tensor t(c_order_tensor(DType::f64, {2}, data), nullptr);
  EXPECT_EQ(t.as<double>()[1], 2);
  EXPECT_CONTAINS(message_of<Unsupported>([&] { t.as<float>(); }), "f64");
  EXPECT_THROW(t.as<std::uint16_t>(), Unsupported);
}

}  // namespace
}  // namespace redblue::file
