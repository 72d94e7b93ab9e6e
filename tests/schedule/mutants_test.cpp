#include "mutants/mutants.hpp"

#include <gtest/gtest.h>

#include "verdict.hpp"

namespace redblue::test {

using mutants::FlashSlip;
using schedule::ForwardOperands;

namespace {

Sizes masked() { return {7, 9, 3, 2, {.hi = 3}, true}; }
Sizes plain() { return {7, 9, 3, 2, {}, true}; }

std::string verdict(FlashSlip slip) {
  const schedule::FlashForward::Tiling t{3, 1};
  return test::verdict<schedule::FlashForward>(
      masked(), t, [&](auto& m, const ForwardOperands& x) { mutants::Flash::run(m, x, t, slip); });
}

}  // namespace

TEST(Mutants, TheUnchangedCopyOfFlashPasses) { EXPECT_EQ(verdict(FlashSlip::none), ""); }

class FlashMutants : public ::testing::TestWithParam<FlashSlip> {};

TEST_P(FlashMutants, AreCaught) { EXPECT_NE(verdict(GetParam()), ""); }

INSTANTIATE_TEST_SUITE_P(EverySlip, FlashMutants,
                         ::testing::Values(FlashSlip::loads_keys_instead_of_streaming,
                                           FlashSlip::reloads_queries_for_every_key, FlashSlip::forgets_to_store_lse,
                                           FlashSlip::forgets_to_store_the_last_block,
                                           FlashSlip::allocates_scores_too_early,
                                           FlashSlip::keeps_scores_as_a_square_tile, FlashSlip::streams_values_twice,
                                           FlashSlip::skips_the_initialisation, FlashSlip::stores_into_an_input,
                                           FlashSlip::visits_invisible_keys, FlashSlip::misses_the_last_key));

TEST(Mutants, KeyOuterThatForgetsWhatWasIsCaught) {
  using S = schedule::KeyOuterForward;
  const S::Tiling t{4, 1};
  EXPECT_EQ(verdict<S>(plain(), t, [&](auto& m, const ForwardOperands& x) { S::run(m, x, t); }), "");
  EXPECT_EQ(
      verdict<S>(plain(), t, [&](auto& m, const ForwardOperands& x) { mutants::KeyOuterForgetsWhatWas::run(m, x, t); }),
      "words differ from the formula");
}

TEST(Mutants, OfSplitKeysAreCaught) {
  const schedule::SplitKeysForward::Tiling t{3, 1, 5};
  for (int slip = 0; slip <= static_cast<int>(mutants::SplitSlip::keeps_lse_of_all_groups); ++slip) {
    const std::string found =
        test::verdict<schedule::SplitKeysForward>(masked(), t, [&](auto& m, const ForwardOperands& x) {
          mutants::SplitKeys::run(m, x, t, static_cast<mutants::SplitSlip>(slip));
        });
    EXPECT_EQ(found.empty(), slip == 0) << "slip number " << slip << ": " << found;
  }
}

TEST(Mutants, SmallCacheWithSwappedPhasesIsCaught) {
  using S = schedule::SmallCacheForward;
  const S::Tiling t{{0, 3, 2}, {2, 2}};
  EXPECT_EQ(verdict<S>(plain(), t, [&](auto& m, const ForwardOperands& x) { S::run(m, x, t); }), "");
  EXPECT_NE(verdict<S>(plain(), t,
                       [&](auto& m, const ForwardOperands& x) { mutants::SmallCachePhasesSwapped::run(m, x, t); }),
            "");
}

}  // namespace redblue::test
