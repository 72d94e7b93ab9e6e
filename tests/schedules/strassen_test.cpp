#include "examples/strassen.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "redblue/machines/passing.hpp"
#include "redblue/planner/planner.hpp"
#include "redblue/runtime/run.hpp"
#include "redblue/verify/claims.hpp"

namespace redblue::test {

using schedule::StrassenForward;

namespace {

/// Adds where a sum has a minus.
template <class Base>
struct WithoutMinus : machine::Passing<WithoutMinus<Base>, Base> {
  using Passes = machine::Passing<WithoutMinus<Base>, Base>;
  explicit WithoutMinus(Base& base) : Passes(base) {}
  template <class K>
  void run(const K& k, std::span<const Arg> args) {
    if constexpr (std::same_as<K, kernel::Scale>)
      if (k.factor == -1) return;
    Passes::run(k, args);
  }
};
struct StrassenWithoutMinus : StrassenForward {
  template <Machine M>
  static void run(M& m, const Operands& x, Tiling t) {
    WithoutMinus<M> adds(m);
    StrassenForward::run(adds, x, t);
  }
};
/// Its formula takes a ragged half for as long as the other.
struct StrassenForEvenSizes : StrassenForward {
  static Io io(const Sizes& x, Tiling t) {
    return StrassenForward::io(x, t).write(SlowArray::S, Words(x.n_q % 2) * x.n_k);
  }
};
struct StrassenInOneWordLess : StrassenForward {
  static Words footprint(const Sizes& x, Tiling t) { return StrassenForward::footprint(x, t) - 1; }
};

std::string strassen_slip(const plan::Schedule& s) {
  try {
    claims::check(s, 10);
  } catch (const claims::Broken& broken) {
    return broken.what();
  }
  return "";
}

plan::Plan strassen_plan(const Problem& problem, index_t M, std::string_view schedule) {
  plan::Registry registry = plan::Registry::built_in();
  registry.add(describe<StrassenForward>());
  return plan::make_plan(problem, {.M = M, .schedule = std::string(schedule), .registry = &registry});
}

}  // namespace

TEST(Strassen, KeepsEveryClaim) { EXPECT_EQ(strassen_slip(describe<StrassenForward>()), ""); }

TEST(Strassen, MutantsAreCaught) {
  EXPECT_THAT(strassen_slip(describe<StrassenWithoutMinus>()), testing::HasSubstr("EqualsDenseAttention"));
  EXPECT_THAT(strassen_slip(describe<StrassenForEvenSizes>()), testing::HasSubstr("writes of S"));
  EXPECT_THAT(strassen_slip(describe<StrassenInOneWordLess>()), testing::HasSubstr("footprint"));
}

TEST(Strassen, IsChosenOnlyByName) {
  const Problem problem{.n_q = 8192, .n_k = 8192, .d = 1024, .d_v = 1024};
  const plan::Plan plan = strassen_plan(problem, 64, ""), named = strassen_plan(problem, 64, "strassen");
  EXPECT_NE(plan.row().schedule, "strassen");
  EXPECT_LT(named.row().io.total(), plan.bound.words);  // of class PA, which it is not in
  EXPECT_LE(named.row().footprint, Words(64));
}

TEST(Strassen, EachLevelIsSevenProductsOfHalves) {
  const Sizes x{.n_q = 64, .n_k = 32, .d = 16, .d_v = 16};
  for (index_t levels = 1; levels <= 4; ++levels) {
    Words seven = 1, eight = 1;
    for (index_t i = 0; i < levels; ++i) seven = 7 * seven, eight = 8 * eight;
    EXPECT_EQ(StrassenForward::macs(x, {.levels = levels}) * eight, seven * x.nnz() * 32) << levels;
  }
}

TEST(Strassen, CountsWhatItPlansOnRaggedSizes) {
  for (const index_t n : {33, 57}) {
    const plan::Plan plan = strassen_plan({.n_q = n, .n_k = n + 6, .d = 11, .d_v = 7}, 40, "strassen");
    const Measured counted = count(plan);
    EXPECT_EQ(counted.io, plan.row().io);
    EXPECT_LE(Words(counted.peak), Words(40));
  }
}

}  // namespace redblue::test
