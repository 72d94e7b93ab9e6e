#include <gtest/gtest.h>

#include "redblue/masks/patterns.hpp"
#include "redblue/schedules/backward/two_pass.hpp"
#include "schedules/mutants/mutants.hpp"
#include "schedules/mutants/pair_modifiers.hpp"
#include "schedules/mutants/rings.hpp"
#include "schedules/mutants/sparse.hpp"
#include "verdict.hpp"

namespace redblue::test {

namespace {

Sizes sizes_of(index_t n_q, index_t n_k, const std::vector<std::uint8_t>& seen) {
  Sizes x{.n_q = n_q, .n_k = n_k, .d = 3, .d_v = 2};
  x.pattern = std::make_shared<const Pattern>(patterns::of_mask({x.n_q, x.n_k}, seen), x.n_k);
  x.mask.pattern = x.pattern.get();
  return x;
}
/// Every query sees a key and every key is seen, so that the problem is its own core. Blocks of neighbours have gaps
/// between their keys, and between their queries.
Sizes sparse_sizes() {
  return sizes_of(7, 9,
                  {
                      1, 0, 1, 1, 0, 0, 0, 0, 1,  //
                      1, 0, 0, 1, 0, 0, 0, 0, 0,  //
                      0, 1, 0, 0, 0, 0, 1, 1, 0,  //
                      1, 1, 1, 0, 0, 1, 0, 1, 1,  //
                      0, 0, 0, 0, 1, 0, 0, 0, 0,  //
                      1, 0, 1, 0, 0, 1, 1, 0, 1,  //
                      0, 1, 0, 0, 1, 0, 0, 1, 1,
                  });
}
/// With a bias for each pair, slopes and sinks.
Sizes modified_sizes() {
  Sizes x = sparse_sizes();
  x.modifiers = {.bias = Modifiers::Bias::of_pairs, .slopes = true, .sinks = true};
  return x;
}
/// Two windows that take turns, a query that sees nothing and a key that nobody sees.
Sizes turns() {
  return sizes_of(6, 7,
                  {
                      1, 0, 1, 0, 0, 0, 0,  //
                      0, 1, 0, 0, 1, 0, 0,  //
                      1, 0, 0, 0, 0, 1, 0,  //
                      0, 0, 0, 0, 0, 0, 0,  //
                      0, 1, 0, 0, 0, 0, 1,  //
                      0, 0, 0, 0, 0, 1, 0,
                  });
}

/// Queries that take turns: each sees half of the keys that the ring holds.
Sizes halves() {
  return sizes_of(4, 6,
                  {
                      1, 1, 1, 0, 0, 0,  //
                      0, 0, 0, 1, 1, 1,  //
                      1, 1, 1, 0, 0, 0,  //
                      0, 0, 0, 1, 1, 1,
                  });
}
/// A window with a global token in its middle, and a query and a key that only it sees.
Sizes globals() {
  return sizes_of(6, 6,
                  {
                      1, 1, 0, 1, 0, 0,  //
                      1, 1, 0, 1, 0, 0,  //
                      0, 0, 0, 1, 0, 0,  //
                      1, 1, 1, 1, 1, 1,  //
                      0, 0, 0, 1, 1, 1,  //
                      0, 0, 0, 1, 0, 1,
                  });
}

/// `none` passes, every other slip up to `last` does not.
template <class S, class Mutant, class Slip>
void expect_caught_up_to(Slip last, const typename S::Tiling& t, const Sizes& sizes = sparse_sizes(),
                         Slip first = static_cast<Slip>(0)) {
  for (int slip = 0; slip <= static_cast<int>(last); slip = std::max(slip + 1, static_cast<int>(first))) {
    const std::string found = test::verdict<S>(
        sizes, t, [&](auto& m, const typename S::Operands& x) { Mutant::run(m, x, t, static_cast<Slip>(slip)); });
    EXPECT_EQ(found.empty(), slip == 0) << "slip number " << slip << ": " << found;
  }
}

}  // namespace

TEST(SparseMutants, OfSparseAreCaught) {
  expect_caught_up_to<schedule::SparseForward, mutants::Sparse>(mutants::SparseSlip::forgets_to_store_lse,
                                                                {{3, 9}, {3, 1}});
}

TEST(SparseMutants, OfSparseBackwardAreCaught) {
  expect_caught_up_to<schedule::SparseBackward, mutants::SparsePhases>(mutants::SparsePhaseSlip::stores_dK_into_dV,
                                                                       {{3, 9}, {2, 7}, {2, 2}, {3, 2}, {4, 1}});
}

/// Each time the panels with slips take the most room.
TEST(SparseMutants, OfPanelsAreCaught) {
  using schedule::Panel;
  using enum mutants::PanelSlip;
  const schedule::PairTiling rows{3, 2, index_t(Panel::rows)}, row{1, 2, index_t(Panel::rows)},
      keys{1, 2, index_t(Panel::keys), 7}, key{1, 2, index_t(Panel::keys), 1};
  expect_caught_up_to<schedule::SparseBackward, mutants::SparsePanels>(misses_the_last_key,
                                                                       {rows, key, {2, 2}, {3, 2}, {4, 1}});
  expect_caught_up_to<schedule::SparseBackward, mutants::SparsePanels>(
      forgets_to_store_dS_of_the_last_query, {row, keys, {2, 2}, {3, 2}, {4, 1}}, sparse_sizes(),
      loads_queries_instead_of_streaming);
}

TEST(SparseMutants, OfSparseValuesAreCaught) {
  expect_caught_up_to<schedule::SparseValuesBackward, mutants::SparseValues>(
      mutants::ValuesSlip::stores_dV_for_every_query, {{3, 9}, 4, {3, 2}, {4, 1}});
}

TEST(SparseMutants, OfSparseSpilledAreCaught) {
  expect_caught_up_to<schedule::SparseSpilledBackward, mutants::SparseSpilled>(
      mutants::SparseSpillSlip::stores_dV_into_V, {4, {3, 2}});
}

TEST(SparseMutants, OfModifiersAreCaught) {
  expect_caught_up_to<schedule::SparseForward, mutants::ModifiedSparse>(
      mutants::ModifiedSparseSlip::streams_the_bias_of_a_tile_at_once, {{3, 9}, {3, 1}}, modified_sizes());
}

/// A core's text leaves dBias as 0 to parts/cores.hpp: here its formula has that, too.
TEST(SparseMutants, OfTheGradientOfABiasAreCaught) {
  Sizes x = sparse_sizes();
  x.modifiers = {.bias = Modifiers::Bias::of_pairs, .bias_gradient = true};
  using S = schedule::SparseBackward;
  struct WithZeros : S {
    static Io io(const Sizes& sizes, const Tiling& t) {
      return S::io(sizes, t) + Io().write(SlowArray::dBias, Words(sizes.n_q) * sizes.n_k);
    }
  };
  expect_caught_up_to<WithZeros, mutants::BiasOfPairs>(mutants::BiasGradientSlip::begins_at_0_for_every_run,
                                                       {{3, 9}, {2, 7}, {2, 2}, {3, 2}, {4, 1}}, x);
}

/// The copy of flash in mutants.hpp goes from the first key to the last, as it may under a mask.
TEST(SparseMutants, FlashThatVisitsTheKeysBetweenRunsIsCaught) {
  using S = schedule::FlashForward;
  const S::Tiling t{3, 1};
  EXPECT_EQ(test::verdict<S>(sparse_sizes(), t, [&](auto& m, const schedule::ForwardOperands& x) { S::run(m, x, t); }),
            "");
  EXPECT_EQ(test::verdict<S>(sparse_sizes(), t,
                             [&](auto& m, const schedule::ForwardOperands& x) {
                               mutants::Flash::run(m, x, t, mutants::FlashSlip::none);
                             }),
            "words differ from the formula");
}

TEST(SparseMutants, KeyOuterThatTakesFirstVisitsForAnIntervalIsCaught) {
  using S = schedule::FusedKeyOuterBackward;
  const S::Tiling t{4, 2};
  const auto verdict = [&](const auto& run) {
    return test::verdict<S>(sparse_sizes(), t, [&](auto& m, const schedule::BackwardOperands& x) { run(m, x); });
  };
  EXPECT_EQ(verdict([&](auto& m, const auto& x) { S::run(m, x, t); }), "");
  EXPECT_NE(verdict([&](auto& m, const auto& x) { mutants::KeyOuterOfMasks::run(m, x, t); }), "");
}

TEST(SparseMutants, OfRingsThatPinGlobalTokensAreCaught) {
  expect_caught_up_to<schedule::RingForward, mutants::PinnedRing>(mutants::PinnedRingSlip::lets_pinned_queries_pass_too,
                                                                  {1, 1, 1}, globals());
  using enum mutants::RingQueriesSlip;
  expect_caught_up_to<schedule::RingQueriesBackward, mutants::RingQueries>(
      forgets_to_store_pinned_gradients, {1, 1, 1}, globals(), meets_pinned_keys_with_every_block);
}

TEST(SparseMutants, OfRingsAreCaught) {
  expect_caught_up_to<schedule::RingBackward, mutants::RingBackward>(
      mutants::RingBackwardSlip::forgets_keys_that_nobody_sees, {1, 1}, turns());
  expect_caught_up_to<schedule::RingQueriesBackward, mutants::RingQueries>(
      mutants::RingQueriesSlip::forgets_queries_that_see_nothing, {1, 1}, turns());
  using enum mutants::RingTwoPassSlip;
  expect_caught_up_to<schedule::RingTwoPassBackward, mutants::RingTwoPass>(forgets_to_store_D, {1, 1}, turns());
  expect_caught_up_to<schedule::RingTwoPassBackward, mutants::RingTwoPass>(
      leaves_room_for_all_that_the_ring_holds, {1, 1}, halves(), leaves_room_for_all_that_the_ring_holds);
}

}  // namespace redblue::test
