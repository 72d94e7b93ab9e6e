#include <gtest/gtest.h>

#include "redblue/machines/ram/ram.hpp"
#include "redblue/schedules/describe.hpp"
#include "redblue/verify/arrays.hpp"
#include "schedules/mutants/backward.hpp"
#include "schedules/mutants/rings.hpp"
#include "verdict.hpp"

namespace redblue::test {

using mutants::BlindSlip;
using mutants::GradientSlip;
using mutants::GroupSlip;
using mutants::KeySlip;
using mutants::PhaseSlip;
using mutants::QuerySlip;

namespace {

Mask causal(index_t offset) { return {.hi = offset + 1}; }
Sizes masked_gradient() { return {7, 9, 3, 2, causal(2), false}; }
Sizes plain_gradient() { return {7, 9, 3, 2, {}, false}; }

std::string verdict(KeySlip slip) {
  const schedule::FusedKeyOuterBackward::Tiling t{2, 2};
  return test::verdict<schedule::FusedKeyOuterBackward>(
      masked_gradient(), t,
      [&](auto& m, const schedule::BackwardOperands& x) { mutants::FusedKeys::run(m, x, t, slip); });
}
/// Groups of 1, 1 and 3 blocks.
std::string verdict(GroupSlip slip) {
  const Sizes shape{9, 9, 3, 2, causal(0), false};
  const schedule::GroupedKeyOuterBackward::Tiling t{{2, 2}, 3};
  return test::verdict<schedule::GroupedKeyOuterBackward>(
      shape, t, [&](auto& m, const schedule::BackwardOperands& x) { mutants::GroupedKeys::run(m, x, t, slip); });
}
std::string verdict(QuerySlip slip) {
  const schedule::FusedQueryOuterBackward::Tiling t{3, 1};
  return test::verdict<schedule::FusedQueryOuterBackward>(
      masked_gradient(), t,
      [&](auto& m, const schedule::BackwardOperands& x) { mutants::FusedQueries::run(m, x, t, slip); });
}
const schedule::MaterialisedBackward::Tiling kPhases{{0, 3, 2}, {1, 2, 1}, {2, 2}, {3, 2}, {4, 1}};
std::string verdict(PhaseSlip slip) {
  return test::verdict<schedule::MaterialisedBackward>(
      plain_gradient(), kPhases,
      [&](auto& m, const schedule::BackwardOperands& x) { mutants::Materialised::run(m, x, kPhases, slip); });
}
std::string verdict(BlindSlip slip) {
  return test::verdict<schedule::MaterialisedBackward>(
      plain_gradient(), kPhases,
      [&](auto& m, const schedule::BackwardOperands& x) { mutants::BlindMaterialised::run(m, x, kPhases, slip); });
}
std::string verdict(GradientSlip slip) {
  const mutants::GradientRows::S::Tiling t{{3, 2}, {2, 2}, {3, 1}, {}};
  return test::verdict<mutants::GradientRows::S>(
      masked_gradient(), t,
      [&](auto& m, const schedule::GradientXOperands& x) { mutants::GradientRows::run(m, x, t, slip); });
}

/// `none` passes, every other slip up to `last` does not.
template <class Slip>
void expect_caught_up_to(Slip last) {
  EXPECT_EQ(verdict(Slip::none), "");
  for (int slip = 1; slip <= static_cast<int>(last); ++slip)
    EXPECT_NE(verdict(static_cast<Slip>(slip)), "") << "slip number " << slip;
}

}  // namespace

TEST(BackwardMutants, OfFusedKeyOuterAreCaught) { expect_caught_up_to(KeySlip::stores_dV_for_every_query); }

TEST(BackwardMutants, OfGroupedKeyOuterAreCaught) {
  expect_caught_up_to(GroupSlip::sums_rows_of_the_first_group_alone);
}

TEST(BackwardMutants, OfFusedQueryOuterAreCaught) { expect_caught_up_to(QuerySlip::forgets_the_last_dQ); }

TEST(BackwardMutants, OfMaterialisedAreCaught) { expect_caught_up_to(PhaseSlip::stores_dK_into_dV); }

TEST(BackwardMutants, OfTheQueryOuterGradientAreCaught) {
  expect_caught_up_to(GradientSlip::streams_A1_word_by_word_twice);
}

/// What no check without data can see, the dense reference does.
TEST(BackwardMutants, ThatOnlyNumbersCanTellAreCaughtByNumbers) {
  using enum BlindSlip;
  for (const BlindSlip slip : {none, forms_dS_before_dV, forgets_D_in_dS, forgets_the_scale}) {
    EXPECT_EQ(verdict(slip), "") << static_cast<int>(slip);
    const plan::Schedule right = describe<schedule::MaterialisedBackward>();
    claims::Arrays<double> a(right, plain_gradient(), schedule::tile_sizes_of(kPhases));
    machine::Ram<double> ram(schedule::MaterialisedBackward::footprint(plain_gradient(), kPhases).to_index(), a.slow());
    const schedule::BackwardOperands x(plain_gradient(), *a.problem.scale);
    mutants::BlindMaterialised::run(ram, x, kPhases, slip);
    const auto wanted = a.wanted();
    double gap = 0;
    for (const SlowArray output : schedule::BackwardOperands::outputs)
      gap = std::max(gap, claims::largest_gap(a.words.at(output), wanted.at(output).words));
    if (slip == none)
      EXPECT_LT(gap, 1e-13);
    else
      EXPECT_GT(gap, 1e-2) << static_cast<int>(slip);
  }
}

/// Windows in which queries leave before others enter, and rings that wrap.
TEST(BackwardMutants, OfRingQueriesAreCaught) {
  const schedule::RingQueriesBackward::Tiling t{1, 1};
  for (int slip = 0; slip <= static_cast<int>(mutants::RingQueriesSlip::lets_queries_enter_with_the_next_keys);
       ++slip) {
    const std::string found = test::verdict<schedule::RingQueriesBackward>(
        Sizes{9, 9, 3, 2, {.lo = -2, .hi = 3}, true}, t, [&](auto& m, const schedule::BackwardOperands& x) {
          mutants::RingQueries::run(m, x, t, static_cast<mutants::RingQueriesSlip>(slip));
        });
    EXPECT_EQ(found.empty(), slip == 0) << "slip number " << slip << ": " << found;
  }
}

TEST(BackwardMutants, OfRingTwoPassAreCaught) {
  const schedule::RingTwoPassBackward::Tiling t{2, 1};
  for (int slip = 0; slip <= static_cast<int>(mutants::RingTwoPassSlip::keeps_dQ_resident); ++slip) {
    const std::string found = test::verdict<schedule::RingTwoPassBackward>(
        Sizes{9, 9, 3, 2, {.lo = -2, .hi = 3}, true}, t, [&](auto& m, const schedule::BackwardOperands& x) {
          mutants::RingTwoPass::run(m, x, t, static_cast<mutants::RingTwoPassSlip>(slip));
        });
    EXPECT_EQ(found.empty(), slip == 0) << "slip number " << slip << ": " << found;
  }
}

}  // namespace redblue::test
