#include "mutants/mutants.hpp"

#include <gtest/gtest.h>

#include <random>

#include "redblue/schedule/parts/cores.hpp"
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

TEST(Mutants, OfRingAreCaught) {
  const schedule::RingForward::Tiling t{2, 1};
  for (int slip = 0; slip <= static_cast<int>(mutants::RingSlip::misses_the_last_key_of_all); ++slip) {
    const std::string found = test::verdict<schedule::RingForward>(
        Sizes{7, 9, 3, 2, {.lo = -2, .hi = 3}, true}, t,
        [&](auto& m, const ForwardOperands& x) { mutants::Ring::run(m, x, t, static_cast<mutants::RingSlip>(slip)); });
    EXPECT_EQ(found.empty(), slip == 0) << "slip number " << slip << ": " << found;
  }
}

TEST(Mutants, OfRingBackwardAreCaught) {
  const schedule::RingBackward::Tiling t{2, 1};
  for (int slip = 0; slip <= static_cast<int>(mutants::RingBackwardSlip::leaves_out_the_second_part); ++slip) {
    const std::string found = test::verdict<schedule::RingBackward>(
        Sizes{7, 9, 3, 2, {.lo = -2, .hi = 3}, true}, t, [&](auto& m, const schedule::BackwardOperands& x) {
          mutants::RingBackward::run(m, x, t, static_cast<mutants::RingBackwardSlip>(slip));
        });
    EXPECT_EQ(found.empty(), slip == 0) << "slip number " << slip << ": " << found;
  }
}

/// Closed form against block by block.
TEST(Ring, HasAPlaceForEachKeyThatTwoBlocksSee) {
  std::mt19937 random(7);
  const auto draw = [&](index_t least, index_t most) {
    return std::uniform_int_distribution<index_t>(least, most)(random);
  };
  for (int round = 0; round < 20000; ++round) {
    Sizes x{.n_q = draw(1, 30), .n_k = draw(1, 30)};
    x.mask.group = draw(1, 3);
    x.n_q *= x.mask.group;
    if (draw(0, 3) > 0) x.mask.lo = draw(-12, 12);
    if (draw(0, 3) > 0) x.mask.hi = std::max(draw(-12, 20), x.mask.lo == -Mask::kFar ? -99 : x.mask.lo + 1);
    if (x.mask.hi != Mask::kFar && draw(0, 2) == 0) x.mask.prefix = draw(0, x.n_k);
    const std::optional<Sizes> core = schedule::core_of(x);
    if (!core) continue;
    const index_t a = draw(1, core->n_q);
    const Pairs pairs = core->pairs();
    const Blocks blocks = pairs.row_blocks(a);
    index_t most = 0;
    for (index_t i = 0; i + 1 < blocks.count(); ++i)
      most = std::max(most, pairs.keys_of(blocks(i)).end - pairs.keys_of(blocks(i + 1)).begin);
    ASSERT_EQ(pairs.most_kept(a), most) << "n_q " << core->n_q << " n_k " << core->n_k << " lo " << core->mask.lo
                                        << " hi " << core->mask.hi << " prefix " << core->mask.prefix << " group "
                                        << core->mask.group << " a " << a;
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
