#include "schedules/mutants/mutants.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <random>

#include "redblue/masks/patterns.hpp"
#include "redblue/schedules/describe.hpp"
#include "redblue/schedules/parts/cores.hpp"
#include "redblue/verify/claims.hpp"
#include "schedules/mutants/hiding.hpp"
#include "schedules/mutants/scores.hpp"
#include "schedules/mutants/strips.hpp"
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

TEST(Mutants, OfSddmmAreCaught) {
  using S = schedule::Masked<schedule::WeightMatrix>;
  const Sizes window{7, 9, 3, 2, {.lo = -2, .hi = 3}, true};
  for (const schedule::ScoreTiling t : {schedule::ScoreTiling{0, 3, 2}, schedule::ScoreTiling{1, 3, 2}})
    for (int slip = 0; slip <= static_cast<int>(mutants::SddmmSlip::streams_keys_of_the_whole_block); ++slip) {
      const std::string found = test::verdict<S>(window, S::One{t}, [&](auto& m, const schedule::WeightsOperands& x) {
        mutants::Sddmm::run(m, x, t, static_cast<mutants::SddmmSlip>(slip));
      });
      EXPECT_EQ(found.empty(), slip == 0) << "slip number " << slip << ": " << found;
    }
}

TEST(Mutants, OfKeysThatStayUnderAWindowAreCaught) {
  const schedule::FlashPinnedForward::Tiling t{2, 3, 1};
  for (int slip = 0; slip <= static_cast<int>(mutants::PinnedSlip::keeps_one_key_more); ++slip) {
    const std::string found = test::verdict<schedule::FlashPinnedForward>(
        Sizes{7, 9, 3, 2, {.lo = -2, .hi = 3}, true}, t, [&](auto& m, const ForwardOperands& x) {
          mutants::FlashPinned::run(m, x, t, static_cast<mutants::PinnedSlip>(slip));
        });
    EXPECT_EQ(found.empty(), slip == 0) << "slip number " << slip << ": " << found;
  }
}

TEST(Mutants, OfHiddenPairsThatAreFormedAreCaught) {
  const std::vector<std::uint8_t> seen{1, 0, 1, 0, 0, 1, 0, 1, 1, 0, 1, 0};
  Sizes x{.n_q = 3, .n_k = 4, .d = 3, .d_v = 2};
  x.hiding = std::make_shared<const Pattern>(patterns::of_mask({x.n_q, x.n_k}, seen), x.n_k);
  const schedule::ScoreTiling t{0, 2, 2};
  for (const bool slip : {false, true}) {
    const std::string found =
        test::verdict<schedule::WeightMatrix>(x, {t}, [&](auto& m, const schedule::WeightsOperands& operands) {
          mutants::SddmmStoresPairsOnly::run(m, operands, t, slip);
        });
    EXPECT_EQ(found.empty(), !slip) << found;
  }
  EXPECT_NO_THROW(claims::check(describe<schedule::KeyOuterForward>()));
  EXPECT_ANY_THROW(claims::check(describe<mutants::KeyOuterHidesNothing>()));
}

TEST(Mutants, ThatLoadSlopesForEverySequenceAreCaught) {
  Sequences sequences;
  sequences.list = {{0, {0, 3}, {0, 4}}, {0, {3, 7}, {4, 9}}};
  Sizes x{.n_q = 7, .n_k = 9, .d = 3, .d_v = 2, .modifiers = {.slopes = true}};
  x.sequences = std::make_shared<const Sequences>(sequences);
  const schedule::FlashForward::Tiling t{2, 1};
  for (const bool slip : {false, true}) {
    const std::string found =
        test::verdict<schedule::Masked<schedule::FlashForward>>(x, t, [&](auto& m, const ForwardOperands& operands) {
          mutants::LoadsSlopesForEverySequence::run(m, operands, t, slip);
        });
    EXPECT_EQ(found.empty(), !slip) << found;
  }
}

TEST(Mutants, OfStripsAreCaught) {
  const schedule::StripsForward::Tiling t{3};
  for (int slip = 0; slip <= static_cast<int>(mutants::StripsSlip::stores_outputs_for_every_key); ++slip) {
    const std::string found = test::verdict<schedule::StripsForward>(
        {10, 11, 3, 2, {.lo = -1, .hi = 3}, true}, t,
        [&](auto& m, const auto& x) { mutants::Strips::run(m, x, t, static_cast<mutants::StripsSlip>(slip)); });
    EXPECT_EQ(found.empty(), slip == 0) << "slip number " << slip << ": " << found;
  }
}

TEST(Mutants, OfStripsBackwardAreCaught) {
  const schedule::StripsBackward::Tiling t{3, 4};
  for (int slip = 0; slip <= static_cast<int>(mutants::StripsBackwardSlip::takes_dO_for_Q); ++slip) {
    const std::string found =
        test::verdict<schedule::StripsBackward>({10, 11, 3, 2, {.lo = -1, .hi = 3}}, t, [&](auto& m, const auto& x) {
          mutants::StripsBackwards::run(m, x, t, static_cast<mutants::StripsBackwardSlip>(slip));
        });
    EXPECT_EQ(found.empty(), slip == 0) << "slip number " << slip << ": " << found;
  }
}

/// The core of a problem of any sizes under any interval mask; nothing where no query sees a key. draw(least, most).
template <class Draw>
std::optional<Sizes> any_core(const Draw& draw) {
  Sizes x{.n_q = draw(1, 30), .n_k = draw(1, 30)};
  x.mask.group = draw(1, 3);
  x.n_q *= x.mask.group;
  if (draw(0, 3) == 0) {
    x.sequences = claims::uneven_intervals(x, draw);
    const std::vector<Sizes> parts = sequences_of(with_envelopes(x));
    return parts.empty() || parts.front().hiding != nullptr ? std::nullopt : core_of(parts.front());
  }
  if (draw(0, 3) > 0) x.mask.lo = draw(-12, 12);
  if (draw(0, 3) > 0) x.mask.hi = std::max(draw(-12, 20), x.mask.lo == -Mask::kFar ? -99 : x.mask.lo + 1);
  if (x.mask.hi != Mask::kFar && draw(0, 2) == 0) x.mask.prefix = draw(0, x.n_k);
  return core_of(x);
}

/// Closed forms against block by block, on random cores.
TEST(Ring, HasAPlaceForEachKeyThatTwoBlocksSee) {
  std::mt19937 random(7);
  const auto draw = [&](index_t least, index_t most) {
    return std::uniform_int_distribution<index_t>(least, most)(random);
  };
  for (int round = 0; round < 20000; ++round) {
    const std::optional<Sizes> core = any_core(draw);
    if (!core) continue;
    const index_t a = draw(1, core->n_q), b = draw(1, core->n_k);
    const Pairs pairs = core->pairs();
    const Blocks rows = pairs.row_blocks(a), keys = pairs.key_blocks(b);
    const std::string what = fmt::format("n_q {} n_k {} lo {} hi {} prefix {} group {} a {} b {}", core->n_q, core->n_k,
                                         core->mask.lo, core->mask.hi, core->mask.prefix, core->mask.group, a, b);
    index_t kept_keys = 0, kept_rows = 0, seen = 0, seeing = 0;
    for (index_t i = 0; i < rows.count(); ++i) {
      const Range I = rows(i), J = pairs.keys_of(I);
      if (i + 1 < rows.count()) kept_keys = std::max(kept_keys, J.end - pairs.keys_of(rows(i + 1)).begin);
      seen = std::max(seen, J.size());
    }
    for (index_t j = 0; j < keys.count(); ++j) {
      const Range J = keys(j), I = pairs.rows_of(J);
      if (j + 1 < keys.count()) kept_rows = std::max(kept_rows, I.end - pairs.rows_of(keys(j + 1)).begin);
      seeing = std::max(seeing, I.size());
    }
    ASSERT_EQ(pairs.most_kept(a), kept_keys) << what;
    ASSERT_EQ(pairs.most_kept_rows(b), kept_rows) << what;
    ASSERT_EQ(schedule::most_seen_keys(*core, a), seen) << what;
    ASSERT_EQ(schedule::most_seeing_rows(*core, b), seeing) << what;
  }
}

TEST(KeptKeys, AreReadOnce) {
  std::mt19937 random(9);
  const auto draw = [&](index_t least, index_t most) {
    return std::uniform_int_distribution<index_t>(least, most)(random);
  };
  for (int round = 0; round < 20000; ++round) {
    const std::optional<Sizes> core = any_core(draw);
    if (!core || core->mask.from_first_key()) continue;
    const index_t a = draw(1, core->n_q), most = draw(0, core->n_k);
    const Pairs pairs = core->pairs();
    const Blocks blocks = pairs.row_blocks(a);
    index_t visits = 0;
    bool streams = false;
    Range kept;
    for (index_t i = 0; i < blocks.count(); ++i) {
      const Range keys = pairs.keys_of(blocks(i)), keep{std::max(keys.begin, keys.end - most), keys.end};
      for (index_t j = keys.begin; j < keys.end; ++j) {
        visits += kept.holds(j) ? 0 : 1;
        streams = streams || (!kept.holds(j) && !keep.holds(j) && blocks(i).size() == a);
      }
      kept = keep;
    }
    const schedule::KeptKeys closed(pairs, a, most);
    const std::string what =
        fmt::format("n_q {} n_k {} lo {} hi {} prefix {} group {} a {} most {}", core->n_q, core->n_k, core->mask.lo,
                    core->mask.hi, core->mask.prefix, core->mask.group, a, most);
    ASSERT_EQ(closed.visits(), visits) << what;
    ASSERT_EQ(closed.streams(), streams) << what;
  }
}

/// Closed form against row by row.
TEST(Strips, KnowTheirPairs) {
  std::mt19937 random(8);
  const auto draw = [&](index_t least, index_t most) {
    return std::uniform_int_distribution<index_t>(least, most)(random);
  };
  for (int round = 0; round < 20000; ++round) {
    const std::optional<Sizes> core = any_core(draw);
    if (!core) continue;
    const Pairs pairs = core->pairs();
    const auto pairs_in = [&](Range rows, Range keys) {
      Words sum;
      for (index_t i = rows.begin; i < rows.end; ++i) sum += intersection(pairs.keys_of({i, i + 1}), keys).size();
      return sum;
    };
    const index_t a = draw(1, core->n_q), b = draw(1, core->n_k);
    Words of_rows, of_keys;
    for (index_t i = core->n_q % a; i < core->n_q; i += a)
      of_rows = std::max(of_rows, pairs_in({i, i + a}, {0, core->n_k}));
    for (index_t j = 0; j + b <= core->n_k; j += b) of_keys = std::max(of_keys, pairs_in({0, core->n_q}, {j, j + b}));
    const std::string which =
        fmt::format("n_q {} n_k {} lo {} hi {} prefix {} group {} a {} b {}", core->n_q, core->n_k, core->mask.lo,
                    core->mask.hi, core->mask.prefix, core->mask.group, a, b);
    ASSERT_EQ(pairs.most_pairs_of_rows(a), of_rows) << which;
    ASSERT_EQ(pairs.most_pairs_of_keys(b), of_keys) << which;
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
