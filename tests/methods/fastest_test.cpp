#include "redblue/planner/fastest.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "redblue/methods/tolerance.hpp"
#include "support/cases.hpp"
#include "support/generators.hpp"
#include "support/paths.hpp"

/// Plans of least time, of approximations.
namespace redblue::test {
namespace {

using testing::HasSubstr;

Hardware invented() { return load_hardware(test::in_sources("/tests/data/hardware.json")); }

plan::Options with_M(index_t M, std::string schedule = "") {
  plan::Options o;
  o.M = M;
  o.schedule = std::move(schedule);
  return o;
}

Problem of(Operation op, index_t n, index_t d, index_t heads = 1) {
  Problem p = problem(n, n, d, d);
  p.op = op;
  p.heads = heads;
  return p;
}

/// A polynomial and exact attention are compared by what the plans were made for.
TEST(Fastest, ToleranceComparesTimeWherePlansAreOfLeastTime) {
  const double range = 1, tolerance = 1e-2;
  const auto decided = [&](index_t n, index_t d, double write_cost, bool by_time) {
    Problem exact = of(Operation::forward, n, d);
    plan::Options o = with_M(16384);
    o.write_cost = write_cost;
    const auto planned = [&](const Problem& p) {
      return by_time ? make_fastest_plan(p, o, {.hardware = invented()}) : plan::make_plan(p, o);
    };
    Problem approximate = exact;
    const Decision decision = decide(
        tolerance, range, least_polynomial(range, tolerance), [&] { return planned(exact); },
        [&](const std::shared_ptr<const Polynomial>& polynomial) {
          approximate.approximation = polynomial;
          return planned(approximate);
        });
    const plan::Row one = planned(exact).row(), other = planned(approximate).row();
    const bool less = by_time ? other.time->total_s < one.time->total_s : other.cost < one.cost;
    EXPECT_EQ(decision.polynomial != nullptr, less) << decision.reason;
    EXPECT_EQ(decision.exact_seconds.has_value(), by_time);
    EXPECT_THAT(decision.reason, HasSubstr(by_time ? "ms of modelled time" : write_cost != 1 ? "write cost" : "words"));
    return decision;
  };
  // Words alone would take the polynomial: the plan of least time moves more words than it must.
  const Decision by_time = decided(4096, 32, 1, true);
  EXPECT_EQ(by_time.polynomial, nullptr);
  EXPECT_LT(*by_time.polynomial_words, *by_time.exact_words);
  EXPECT_NE(decided(4096, 8, 1, true).polynomial, nullptr);
  const Decision priced = decided(25000, 64, 10, false);
  EXPECT_EQ(priced.polynomial, nullptr);
  EXPECT_LT(*priced.polynomial_words, *priced.exact_words);
}

/// States of monomials are tried with tiles of 16 and 64 features, too.
TEST(FastestPlan, OfApproximationsKeepsToTheMultiplesAskedFor) {
  Problem p = of(Operation::forward, 4096, 96);
  p.approximate("2:1");
  for (const index_t features : {3, 5, 24}) {
    plan::Options o = with_M(50'000, "polynomial_tiled");
    o.multiple.feature = features;
    const plan::Plan plan = make_fastest_plan(p, o, {invented()});
    for (const schedule::TileSize& k : plan.row().tiling) {
      const bool of_features = k.name == "s" || k.name == "values";
      EXPECT_TRUE(!of_features || k.value % features == 0 || k.value == 96) << k.name << " = " << k.value;
    }
  }
}

}  // namespace
}  // namespace redblue::test
