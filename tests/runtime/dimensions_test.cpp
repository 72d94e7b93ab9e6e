#include <gmock/gmock.h>

#include "redblue/attention.hpp"

/// Names of an order of dimensions.
namespace redblue::test {
namespace {

TEST(Dimensions, StridesAreThoseOfADenseArray) {
  using Sizes = std::array<index_t, 4>;
  const Sizes shape{2, 3, 5, 7};
  EXPECT_EQ(Dimensions("bhsd").strides(shape), (Sizes{105, 35, 7, 1}));
  EXPECT_EQ(Dimensions("bhnd").strides(shape), Dimensions("bhsd").strides(shape));
  EXPECT_EQ(Dimensions("bshd").strides(shape), (Sizes{105, 7, 21, 1}));
  EXPECT_EQ(Dimensions("shd").strides({1, 3, 5, 7}), (Sizes{105, 7, 21, 1}));
  EXPECT_EQ(Dimensions("nd").strides({1, 1, 5, 7}), (Sizes{35, 35, 7, 1}));
  EXPECT_EQ(Dimensions("bshd").strides({2, 3, 5, 1}), (Sizes{15, 1, 3, 1})) << "lse";
}

TEST(Dimensions, EveryNameSaysWhereHeadsAre) {
  for (const std::string& name : Dimensions::names()) {
    const Dimensions d(name);
    EXPECT_EQ(d.tokens_first(), name == "bshd" || name == "bnhd" || name == "shd" || name == "nhd") << name;
    EXPECT_EQ(d.has_heads(), name.size() > 2) << name;
    EXPECT_EQ(Dimensions::from_name(name)->letters(), d.letters());
  }
  EXPECT_FALSE(Dimensions::from_name("sbhd"));
  EXPECT_THROW(Dimensions("sbhd"), InvalidProblem);
  EXPECT_THROW(Dimensions("hnd").strides({2, 1, 1, 1}), InvalidProblem);
}

}  // namespace
}  // namespace redblue::test
