#include <gtest/gtest.h>

#include "schedules/mutants/methods.hpp"
#include "verdict.hpp"

namespace redblue::test {

using schedule::ForwardOperands;

namespace {

Sizes sizes_for(const Method& method) {
  Sizes x{7, 9, 5, 3};
  x.method = method;
  return x;
}

/// Mutant::run with each slip, as if it were S: the first is none and passes, the others are caught.
template <class S, class Mutant, class Slip>
void expect_caught(const Sizes& x, const typename S::Tiling& t, Slip last) {
  for (int slip = 0; slip <= static_cast<int>(last); ++slip) {
    const std::string found =
        test::verdict<S>(x, t, [&](auto& m, const ForwardOperands& o) { Mutant::run(m, o, static_cast<Slip>(slip)); });
    EXPECT_EQ(found.empty(), slip == 0) << "slip number " << slip << ": " << found;
  }
}

}  // namespace

TEST(MethodMutants, OfLinearAttentionAreCaught) {
  expect_caught<schedule::LinearAttentionForward, mutants::LinearAttentionRows>(
      sizes_for(LinearAttention{}), {}, mutants::LinearAttentionSlip::forgets_the_row_sums);
}

TEST(MethodMutants, OfPerformerAreCaught) {
  expect_caught<schedule::PerformerForward, mutants::PerformerRows>(sizes_for(Performer{4, 3}), {1, 1, 4},
                                                                    mutants::PerformerSlip::never_begins_the_maximum);
}

TEST(MethodMutants, OfPerformerInTilesAreCaught) {
  expect_caught<schedule::PerformerTiledForward, mutants::TiledPerformerRows>(
      sizes_for(Performer{4, 3}), {.gs = 2, .values = 3}, mutants::TiledPerformerSlip::reads_the_sums_twice);
}

TEST(MethodMutants, OfLinformerAreCaught) {
  expect_caught<schedule::LinformerForward, mutants::LinformerRows>(sizes_for(Linformer{4, false, 0}), {},
                                                                    mutants::LinformerSlip::forgets_the_last_query);
}

TEST(MethodMutants, OfUniformSamplesAreCaught) {
  expect_caught<schedule::UniformSampleForward, mutants::SampleRows>(sizes_for(UniformSample{4, 3}), {},
                                                                     mutants::SampleSlip::forgets_the_last_query);
}

TEST(MethodMutants, OfNystroemformerAreCaught) {
  expect_caught<schedule::NystroemformerForward, mutants::NystroemformerRows>(
      sizes_for(Nystroemformer{4, 3}), {}, mutants::NystroemformerSlip::takes_means_of_the_values);
}

TEST(MethodMutants, OfCoresetsAreCaught) {
  expect_caught<schedule::CoresetForward, mutants::CoresetRows>(sizes_for(Coreset{.block = 4, .rank = 2, .seed = 3}),
                                                                {}, mutants::CoresetSlip::never_begins_the_bounds);
}

}  // namespace redblue::test
