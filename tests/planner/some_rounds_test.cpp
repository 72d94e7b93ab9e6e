#include <gtest/gtest.h>

#include <cmath>

#include "planner/with_M.hpp"
#include "redblue/machines/any.hpp"
#include "redblue/planner/fastest.hpp"
#include "redblue/planner/run_on.hpp"
#include "redblue/planner/timed.hpp"
#include "support/generators.hpp"
#include "support/paths.hpp"

namespace redblue::test {
namespace {

/// Work grows evenly from one block of queries to the next, so that the middle of each third is its mean.
TEST(SomeRounds, StandForAllBlocksOfQueries) {
  const Hardware here = load_hardware(in_sources("/tests/data/hardware.json"));
  const model::Rates rates = model::rates_of(here, model::largest_isa(here), DType::f32);
  for (const bool causal : {false, true}) {
    Problem p = problem(27 * 16, 27 * 16, 8, 8);
    p.causal = causal;
    plan::Options o = with_M(4096, "flash");
    o.tiling = plan::Tiling{{"Br", 16}, {"Bc", 16}};
    const plan::Plan plan = plan::make_plan(p, o);
    const auto walk = [&](bool some_rounds) {
      model::Timed timed(rates, 1'000'000, false, HUGE_VAL, some_rounds);
      redblue::machine::Any any(timed);
      run_on(any, plan);
      return timed;
    };
    const model::Timed all = walk(false), some = walk(true);
    EXPECT_LT(6 * some.operations(), all.operations());
    EXPECT_NEAR(some.macs() / all.macs(), 1, 1e-12) << causal;
    EXPECT_NEAR(some.time().work_s() / all.time().work_s(), 1, 1e-12) << causal;
    EXPECT_NEAR(some.touched() / all.touched(), 1, 1e-12) << causal;
    EXPECT_NEAR(some.copied_share() / all.copied_share(), 1, 1e-12) << causal;
  }
}

}  // namespace
}  // namespace redblue::test
