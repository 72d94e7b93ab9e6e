#include "mutants/mutants.hpp"

#include <gtest/gtest.h>

#include "cases.hpp"
#include "redblue/machine/checked.hpp"
#include "redblue/machine/counting.hpp"
#include "redblue/schedule/parts/workspace.hpp"
#include "sabotage.hpp"

namespace redblue::test {

using machine::Checked;
using machine::Counted;
using machine::Null;
using machine::Referee;
using mutants::FlashSlip;

namespace {

Sizes small_problem() { return {7, 9, 3, 2, {true, 2, 1}, true}; }

/// What the data-free checks say of a run: empty if they find nothing.
template <class Run>
std::string verdict(const Sizes& shape, const Io& io, Words footprint, std::span<const SlowMatrix> workspace,
                    const Run& run) {
  const schedule::ForwardOperands x(shape, 1);
  Null null;
  Counted<Null> counted(null);
  Referee referee(1'000'000);
  for (const SlowMatrix& m : {x.Q, x.K, x.V}) referee.input(m);
  for (const SlowMatrix& m : {x.O, x.lse}) referee.output(m);
  for (const SlowMatrix& m : workspace) referee.workspace(m);
  Checked<Counted<Null>> checked(counted, referee);
  try {
    run(checked, x);
    referee.finish();
  } catch (const RuleError& e) {
    return e.what();
  }
  if (!(counted.io() == io)) return "words differ from the formula";
  if (counted.peak() != footprint) return "peak differs from the footprint";
  return "";
}

std::string verdict(FlashSlip slip) {
  const auto shape = small_problem();
  const schedule::FlashForward::Tiling t{3, 1};
  return verdict(shape, schedule::FlashForward::io(shape, t), schedule::FlashForward::footprint(shape, t), {},
                 [&](auto& m, const schedule::ForwardOperands& x) { mutants::Flash::run(m, x, t, slip); });
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
  Sizes shape = small_problem();
  shape.mask = {};
  const schedule::KeyOuterForward::Tiling t{4, 1};
  EXPECT_EQ(verdict(shape, schedule::KeyOuterForward::io(shape, t), schedule::KeyOuterForward::footprint(shape, t), {},
                    [&](auto& m, const schedule::ForwardOperands& x) { schedule::KeyOuterForward::run(m, x, t); }),
            "");
  EXPECT_EQ(
      verdict(shape, schedule::KeyOuterForward::io(shape, t), schedule::KeyOuterForward::footprint(shape, t), {},
              [&](auto& m, const schedule::ForwardOperands& x) { mutants::KeyOuterForgetsWhatWas::run(m, x, t); }),
      "words differ from the formula");
}

TEST(Mutants, OfSplitKeysAreCaught) {
  using S = schedule::SplitKeysForward;
  const auto shape = small_problem();
  const S::Tiling t{3, 1, 5};
  const auto workspace = schedule::workspace_of<S>(schedule::ForwardOperands(shape, 1), t);
  for (int slip = 0; slip <= static_cast<int>(mutants::SplitSlip::keeps_lse_of_all_groups); ++slip) {
    const std::string found = verdict(shape, S::io(shape, t), S::footprint(shape, t), workspace,
                                      [&](auto& m, const schedule::ForwardOperands& x) {
                                        mutants::SplitKeys::run(m, x, t, static_cast<mutants::SplitSlip>(slip));
                                      });
    EXPECT_EQ(found.empty(), slip == 0) << "slip number " << slip << ": " << found;
  }
}

TEST(Mutants, SmallCacheWithSwappedPhasesIsCaught) {
  Sizes shape = small_problem();
  shape.mask = {};
  const schedule::SmallCacheForward::Tiling t{{false, 3, 2}, {2, 2}};
  const auto io = schedule::SmallCacheForward::io(shape, t);
  const auto footprint = schedule::SmallCacheForward::footprint(shape, t);
  const std::array workspace{schedule::ForwardOperands(shape, 1).S};
  EXPECT_EQ(verdict(shape, io, footprint, workspace,
                    [&](auto& m, const schedule::ForwardOperands& x) { schedule::SmallCacheForward::run(m, x, t); }),
            "");
  EXPECT_NE(
      verdict(shape, io, footprint, workspace,
              [&](auto& m, const schedule::ForwardOperands& x) { mutants::SmallCachePhasesSwapped::run(m, x, t); }),
      "");
}

/// Every load and every store of every schedule, left out or done twice.
TEST(Mutants, NoLoadOrStoreOfAnyScheduleCanBeSkippedOrRepeated) {
  Case c;
  c.shape = {5, 7, 3, 4, {}, true};
  c.sizes = {2, 3, 2, 3};
  for_each_schedule(c, [&]<class S>(plan::Choice<S> choice) {
    const auto play = [&](Slip slip, index_t target, index_t* loads, index_t* stores) {
      return verdict(c.shape, S::io(c.shape, choice.tiling), S::footprint(c.shape, choice.tiling),
                     schedule::workspace_of<S>(schedule::ForwardOperands(c.shape, 1), choice.tiling),
                     [&](auto& m, const schedule::ForwardOperands& x) {
                       Sabotaged<std::decay_t<decltype(m)>> sabotaged(m, slip, target);
                       S::run(sabotaged, x, choice.tiling);
                       if (loads != nullptr) *loads = sabotaged.loads();
                       if (stores != nullptr) *stores = sabotaged.stores();
                     });
    };
    index_t loads = 0, stores = 0;
    EXPECT_EQ(play(Slip::none, 0, &loads, &stores), "") << S::name;
    EXPECT_GT(loads + stores, 0) << S::name;
    for (index_t k = 0; k < loads; ++k)
      for (Slip slip : {Slip::skips_a_load, Slip::loads_twice})
        EXPECT_NE(play(slip, k, nullptr, nullptr), "") << S::name << ": load " << k;
    for (index_t k = 0; k < stores; ++k)
      for (Slip slip : {Slip::skips_a_store, Slip::stores_twice})
        EXPECT_NE(play(slip, k, nullptr, nullptr), "") << S::name << ": store " << k;
  });
}

}  // namespace redblue::test
