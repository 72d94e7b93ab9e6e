#include <gtest/gtest.h>

#include "schedules/mutants/hashing.hpp"
#include "verdict.hpp"

namespace redblue::test {

using schedule::ForwardOperands;

namespace {

/// Mutant::run with each slip, as if it were S: the first is none and passes, the others are caught.
template <class S, class Mutant, class Slip>
void expect_hashing_slips_caught(const Method& method, Sizes x, const typename S::Tiling& t, Slip last) {
  x.method = method;
  for (int slip = 0; slip <= static_cast<int>(last); ++slip) {
    const std::string found = test::verdict<S>(
        x, t, [&](auto& m, const ForwardOperands& o) { Mutant::run(m, o, t, static_cast<Slip>(slip)); });
    EXPECT_EQ(found.empty(), slip == 0) << "slip number " << slip << ": " << found;
  }
}

}  // namespace

TEST(HashingMutants, OfSmyrfAreCaught) {
  for (const index_t keep : {0, 1})
    expect_hashing_slips_caught<schedule::SmyrfForward, mutants::SmyrfRounds>(
        Smyrf{2, 4, 3}, {7, 9, 5, 3}, {2, 2, keep, 3, 2}, mutants::SmyrfSlip::forgets_the_last_cluster);
}

TEST(HashingMutants, OfHyperAttentionAreCaught) {
  expect_hashing_slips_caught<schedule::HyperAttentionForward, mutants::HyperAttentionBlocks>(
      HyperAttention{4, 5, 3, 1}, {7, 9, 5, 3}, {2, 1, 0, 0}, mutants::HyperAttentionSlip::forgets_the_samples);
}

TEST(HashingMutants, OfReformerAreCaught) {
  expect_hashing_slips_caught<schedule::ReformerForward, mutants::ReformerRounds>(
      Reformer{2, 3, 4, 1}, {8, 8, 5, 3}, {2, 2, 1}, mutants::ReformerSlip::begins_every_round_anew);
}

}  // namespace redblue::test
