#include "redblue/machines/checked.hpp"

#include <gtest/gtest.h>

#include "redblue/kernels/registry.hpp"
#include "redblue/language/error.hpp"
#include "redblue/machines/counting.hpp"

/// The referee itself: each rule, broken once.
namespace redblue::test {

using machine::Checked;
using machine::Null;
using machine::Referee;

namespace {

constexpr SlowMatrix kIn{SlowArray::Q, {4, 3}};
constexpr SlowMatrix kOut{SlowArray::O, {4, 3}};

struct Game {
  Null null;
  Referee referee{20};
  Checked<Null> m{null, referee};
  Game() {
    referee.input(kIn);
    referee.output(kOut);
  }
};

}  // namespace

TEST(Referee, AcceptsALegalGame) {
  Game g;
  const auto t = g.m.load(kIn.all());
  g.m.store(t, kOut.all());
  SUCCEED();
}

TEST(Referee, WantsEveryOutputWritten) {
  Game g;
  {
    const auto t = g.m.load(kIn.rows(0, 3));
    g.m.store(t, kOut.rows(0, 3));
  }
  EXPECT_THROW(g.referee.finish(), RuleError);
}

TEST(Referee, WantsFastMemoryEmptyAtTheEnd) {
  Game g;
  const auto t = g.m.load(kIn.all());
  g.m.store(t, kOut.all());
  EXPECT_THROW(g.referee.finish(), RuleError);
}

TEST(Referee, WantsTilesEvictedInOrder) {
  Game g;
  const index_t below = g.m.open(SlowArray::O, {1, 1}, Layout::row_major);
  const index_t above = g.m.open(SlowArray::O, {1, 1}, Layout::row_major);
  g.m.close(below, SlowArray::O, {1, 1});
  g.m.close(above, SlowArray::O, {1, 1});
  EXPECT_THROW(g.referee.finish(), RuleError);
}

TEST(Referee, RefusesToReadWhatWasNeverWritten) {
  Game g;
  EXPECT_THROW((void)g.m.load(kOut.all()), RuleError);
}

TEST(Referee, RefusesToStoreWordsThatHoldNothing) {
  Game g;
  const auto t = g.m.alloc(kOut.all());
  EXPECT_THROW(g.m.store(t, kOut.all()), RuleError);
}

TEST(Referee, RefusesKernelsOnWordsThatHoldNothing) {
  Game g;
  const auto t = g.m.alloc(SlowArray::O, {2, 2});
  EXPECT_THROW(g.m.compute(kernel::Scale{2}, t), RuleError);
  g.m.compute(kernel::Zero{}, t);
  EXPECT_NO_THROW(g.m.compute(kernel::Scale{2}, t));
}

TEST(Referee, SeesSingleWordsOfATile) {
  Game g;
  const auto t = g.m.alloc(SlowArray::O, {2, 3});
  g.m.compute(kernel::Zero{}, t.cols(2));
  EXPECT_NO_THROW(g.m.compute(kernel::Scale{2}, t.cols(2)));
  EXPECT_THROW(g.m.compute(kernel::Scale{2}, t), RuleError);
}

TEST(Referee, RefusesToWriteInputs) {
  Game g;
  const auto t = g.m.load(kIn.all());
  EXPECT_THROW(g.m.store(t, kIn.all()), RuleError);
}

TEST(Referee, RefusesShapesThatDoNotGoTogether) {
  Game g;
  const auto t = g.m.alloc(SlowArray::O, {2, 2}), u = g.m.alloc(SlowArray::O, {3, 1});
  g.m.compute(kernel::Zero{}, t);
  g.m.compute(kernel::Zero{}, u);
  EXPECT_THROW(g.m.compute(kernel::ScaleRows{}, t, u), RuleError);
}

TEST(Referee, RefusesBlocksOutsideTheirMatrix) {
  Game g;
  EXPECT_THROW((void)g.m.load(kIn.rows(3, 2)), RuleError);
}

TEST(Referee, RefusesArraysThatAreNotOfTheProblem) {
  Game g;
  EXPECT_THROW((void)g.m.load(SlowMatrix{SlowArray::K, {1, 1}}.all()), RuleError);
}

TEST(Referee, RefusesKernelsThatWriteTilesThatAreOnlyRead) {
  for (const Layout layout : {Layout::read_only, Layout::key_panels}) {
    Game g;
    const auto t = g.m.load(kIn.rows(0, 2), layout);
    EXPECT_THROW(g.m.compute(kernel::Scale{2}, t), RuleError);        // updates
    EXPECT_THROW(g.m.compute(kernel::Zero{}, t.cols(1)), RuleError);  // writes
    EXPECT_THROW(g.m.compute(kernel::Zero{}, g.m.alloc(SlowArray::O, {2, 2}, layout)), RuleError);
    const auto sum = g.m.alloc(SlowArray::O, {2, 1});
    g.m.compute(kernel::Zero{}, sum);
    EXPECT_NO_THROW(g.m.compute(kernel::AddRowSums{}, sum, t));
    EXPECT_NO_THROW(g.m.store(t, kOut.rows(0, 2)));
  }
  Game g;
  const auto t = g.m.load(kIn.rows(0, 2), Layout::padded_rows);
  EXPECT_NO_THROW(g.m.compute(kernel::Scale{2}, t));
}

TEST(Referee, RefusesToLoadAPartOfATileThatIsOnlyRead) {
  for (const Layout layout : {Layout::read_only, Layout::key_panels}) {
    Game g;
    const auto t = g.m.load(kIn.rows(0, 2), layout);
    EXPECT_NO_THROW(g.m.load_into(t, kIn.rows(2, 2)));
    EXPECT_THROW(g.m.load_into(t.rows(0, 1), kIn.rows(2, 1)), RuleError);
  }
  Game g;
  const auto t = g.m.load(kIn.rows(0, 2));
  EXPECT_NO_THROW(g.m.load_into(t.rows(0, 1), kIn.rows(2, 1)));
}

TEST(Referee, CountsTheStreamWord) {
  Game g;
  const auto l = g.m.alloc(SlowArray::O, {4, 1});
  g.m.compute(kernel::Zero{}, l);
  EXPECT_NO_THROW(g.m.compute(kernel::AddRowSums{}, l, g.m.stream(kIn.all())));
  const auto rest = g.m.alloc(SlowArray::O, {16, 1});
  EXPECT_THROW(g.m.compute(kernel::AddRowSums{}, l, g.m.stream(kIn.all())), CapacityError);
}

TEST(Referee, LimitsResidentWords) {
  Game g;
  const auto t = g.m.alloc(SlowArray::O, {20, 1});
  EXPECT_THROW((void)g.m.alloc(SlowArray::O, {1, 1}), CapacityError);
}

}  // namespace redblue::test
