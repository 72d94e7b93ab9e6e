#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <string>
#include <string_view>

#include "planner/with_M.hpp"
#include "redblue/kernels/dense.hpp"
#include "redblue/machines/any.hpp"
#include "redblue/planner/fastest.hpp"
#include "redblue/planner/run_on.hpp"
#include "redblue/planner/timed.hpp"
#include "support/generators.hpp"
#include "support/paths.hpp"

namespace redblue::test {
namespace {

/// Walks all of a causal or dense problem of 27 x 27 tiles with this schedule, and some rounds of it; both walks.
std::array<model::Timed, 2> walks(Operation op, std::string_view schedule, const plan::Tiling& tiling, bool causal) {
  static const Hardware here = load_hardware(in_sources("/tests/data/hardware.json"));
  static const model::Rates rates = model::rates_of(here, model::largest_isa(here), DType::f32);
  constexpr index_t n = index_t{27} * 16;
  Problem p = problem(n, n, 8, 8);
  p.op = op;
  p.causal = causal;
  p.forward_given = true;
  plan::Options o = with_M(4096, std::string(schedule));
  o.tiling = tiling;
  const plan::Plan plan = plan::make_plan(p, o);
  const auto walk = [&](const model::SomeRounds& some) {
    model::Timed timed(rates, 1'000'000, false, HUGE_VAL, some);
    redblue::machine::Any any(timed);
    run_on(any, plan);
    return timed;
  };
  return {walk({}), walk({.each = 3, .in_turn = 3, .ends = causal})};
}

/// Work grows evenly from one block of queries to the next, so that the middle of each third is its mean; only the last
/// step of a block is on the diagonal.
TEST(SomeRounds, StandForAllBlocksOfQueries) {
  for (const bool causal : {false, true}) {
    const auto [all, some] = walks(Operation::forward, "flash", {{"Br", 16}, {"Bc", 16}}, causal);
    EXPECT_LT(12 * some.operations(), all.operations());
    EXPECT_NEAR(some.macs() / all.macs(), 1, 1e-12) << causal;
    EXPECT_NEAR(some.time().work_s() / all.time().work_s(), 1, 1e-12) << causal;
    EXPECT_NEAR(some.touched() / all.touched(), 1, 1e-12) << causal;
    EXPECT_NEAR(some.copied_share() / all.copied_share(), 1, 1e-12) << causal;
    EXPECT_EQ(some.held(), all.held()) << causal;
  }
}

/// The first block of keys alone writes dQ without reading it, and no round stands for that. D is formed by other, and
/// ragged, blocks of queries, in any order.
TEST(SomeRounds, StandForAllBlocksOfKeysInTurn) {
  for (const bool causal : {false, true}) {
    const auto [all, some] = walks(Operation::backward, "fused_key_outer", {{"Bc", 16}, {"br", 16}}, causal);
    EXPECT_LT(12 * some.operations(), all.operations());
    EXPECT_NEAR(some.macs() / all.macs(), 1, 1e-12) << causal;
    EXPECT_NEAR(some.time().work_s() / all.time().work_s(), 1, 1e-4) << causal;
    EXPECT_NEAR(some.span() / all.span(), 1, 0.01) << causal;
    EXPECT_NEAR(some.touched() / all.touched(), 1, 1e-4) << causal;
    EXPECT_NEAR(some.copied_share() / all.copied_share(), 1, 0.02) << causal;
  }
}

/// Any number of rounds, also where lengths do not divide it: each stands for as many as there are.
TEST(SomeRounds, WeighAsManyAsThereAre) {
  const model::Rates rates = [] {
    const Hardware here = load_hardware(in_sources("/tests/data/hardware.json"));
    return model::rates_of(here, model::largest_isa(here), DType::f32);
  }();
  for (const bool ends : {false, true})
    for (index_t n = 0; n < 90; ++n) {
      model::Timed timed(rates, 1'000'000, false, HUGE_VAL, {.each = 3, .in_turn = 3, .ends = ends});
      const auto tile = timed.alloc(SlowArray::Q, {4, 4});
      timed.in_turn(n, [&](index_t i) {
        for (index_t k = 0; k <= i; ++k) timed.compute(kernel::Gemm{}, tile, tile, tile);
      });
      EXPECT_NEAR(timed.macs(), 32 * static_cast<double>(n * (n + 1)), 1e-6) << n;
    }
}

}  // namespace
}  // namespace redblue::test
