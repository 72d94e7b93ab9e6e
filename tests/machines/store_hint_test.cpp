#include <gtest/gtest.h>

#include <array>
#include <numeric>
#include <vector>

#include "redblue/kernels/attention.hpp"
#include "redblue/machines/ram/ram.hpp"

/// The hint where a tile may be stored. That it passes through machines: passing_test.cpp.
namespace redblue::test {
namespace {

using kernel::OnlineAttention;
using kernel::SoftmaxInit;
using machine::Ram;
using machine::SlowMemory;
using machine::Storage;

View<float> output;  ///< as the implementation below got it

/// Implementations that pack, with one that takes a packed O.
kernel::Implementations<float> packing_implementations() {
  kernel::Implementations<float> implementations = kernel::implementations<float>(Isa::portable);
  implementations.lanes = 16;
  implementations.panel = 64;
  implementations.set<SoftmaxInit>([](const SoftmaxInit&, std::span<const View<float>> x) {
    output = x[0];
    return true;
  });
  return implementations;
}

/// The O that an implementation gets for rows 5 and below of this matrix.
View<float> output_of(const Storage& O) {
  SlowMemory slow;
  slow[index_of(SlowArray::O)] = O;
  const kernel::Implementations<float> implementations = packing_implementations();
  Ram<float> ram(1000, slow, implementations);
  const auto tile = ram.alloc(Block{.array = SlowArray::O, .row = 5, .shape = {32, 4}}, OnlineAttention::O);
  const auto m = ram.alloc(SlowArray::lse, {32, 1}), l = ram.alloc(SlowArray::lse, {32, 1});
  ram.compute(SoftmaxInit{}, tile, m, l);
  return output;
}

TEST(StoreHint, ABodyIsToldWhereItsOutputPanelsMayBeStored) {
  std::vector<float> words(400);
  Storage O = Storage::matrix(words.data(), {40, 4});
  O.row_stride = 9;
  const View<float> known = output_of(O);
  EXPECT_EQ(known.other_form, words.data() + 5 * 9);
  EXPECT_EQ(known.row_stride, 9);
  O.col_stride = 2;
  EXPECT_EQ(output_of(O).other_form, nullptr) << "no rows that a kernel could write";
  Storage halved = Storage::matrix(words.data(), {40, 4});
  halved.dtype = DType::f16;
  EXPECT_EQ(output_of(halved).other_form, nullptr);
}

constexpr Shape kSides{32, 16};

TEST(StoreHint, WritesNothing) {
  std::vector<float> zeros(512), values(512), lse(32, 7.0F), out(512, 7.0F);
  std::iota(values.begin(), values.end(), 0.0F);
  const std::vector<float> out_before = out, lse_before = lse;
  SlowMemory slow;
  for (const SlowArray a : {SlowArray::Q, SlowArray::K}) slow[index_of(a)] = Storage::matrix(zeros.data(), kSides);
  slow[index_of(SlowArray::V)] = Storage::matrix(values.data(), kSides);
  slow[index_of(SlowArray::O)] = Storage::matrix(out.data(), kSides);
  slow[index_of(SlowArray::lse)] = Storage::matrix(lse.data(), {32, 1});
  const auto all = [](SlowArray a, Shape s = kSides) { return Block{.array = a, .shape = s}; };

  Ram<float> ram(10000, slow);
  const auto Q = ram.load(all(SlowArray::Q), OnlineAttention::Q);
  const auto O = ram.alloc(all(SlowArray::O), OnlineAttention::O);
  const auto m = ram.alloc(all(SlowArray::lse, {32, 1})), l = ram.alloc(all(SlowArray::lse, {32, 1}));
  const auto S = ram.alloc(SlowArray::S, {32, 32}, OnlineAttention::S);
  const Arg none{};
  ram.compute(SoftmaxInit{}, O, m, l);
  ram.compute(OnlineAttention{}, S, O, m, l, Q, ram.stream(all(SlowArray::K)), ram.stream(all(SlowArray::V)), none,
              none);
  ram.compute(kernel::SoftmaxFinish{}, O, m, l);
  EXPECT_EQ(out, out_before);
  EXPECT_EQ(lse, lse_before);
  ram.store(O, all(SlowArray::O));
  for (std::size_t i = 0; i < out.size(); ++i)  // the mean of a column: weights are equal
    EXPECT_FLOAT_EQ(out[i], 31.0F * 16 / 2 + static_cast<float>(i % 16));
}

TEST(StoreHint, ATileOfPaddedRowsLiesWhereItWillBeStoredIfRowsArePaddedAlike) {
  struct alignas(64) Words {
    std::array<float, 1024> of;
  } there;
  const kernel::Implementations<float> implementations = packing_implementations();
  const auto first_word = [&](index_t row_stride, index_t cols, index_t col) {
    there.of.fill(7);
    SlowMemory slow;
    slow[index_of(SlowArray::P)] = Storage::matrix(there.of.data(), {8, row_stride});
    Ram<float> ram(1000, slow, implementations);
    const Block b{.array = SlowArray::P, .row = 2, .col = col, .shape = {4, cols}};
    const auto tile = ram.alloc(b, Layout::padded_rows);
    ram.compute(kernel::Zero{}, tile);
    const float before = there.of[static_cast<std::size_t>(2 * row_stride + col)];
    ram.store(tile, b);
    for (std::size_t i = 0; i < 8; ++i)  // it is there in any case, and nothing beside it has changed
      for (index_t j = 0; j < row_stride; ++j)
        EXPECT_EQ(there.of[i * static_cast<std::size_t>(row_stride) + static_cast<std::size_t>(j)],
                  i >= 2 && i < 6 && j >= col && j < col + cols ? 0 : 7);
    return before;
  };
  EXPECT_EQ(first_word(48, 32, 16), 0);
  EXPECT_EQ(first_word(64, 32, 16), 7) << "rows begin in the same set of a cache";
  EXPECT_EQ(first_word(48, 24, 16), 7) << "the last vector would go past the block";
  EXPECT_EQ(first_word(48, 32, 8), 7) << "no vector starts there";
}

}  // namespace
}  // namespace redblue::test
