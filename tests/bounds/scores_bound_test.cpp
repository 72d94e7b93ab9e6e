#include <gtest/gtest.h>

#include <cmath>

#include "redblue/planner/planner.hpp"

/// Bounds for the matrix of scores against sddmm: docs/proofs/scores.md.
namespace redblue::test::of_scores {
namespace {

plan::Plan plan_of(Operation op, index_t n, index_t d, index_t M, bool causal = false) {
  Problem p{.op = op, .n_q = n, .n_k = n, .d = d, .d_v = d, .causal = causal};
  plan::Options o;
  o.M = M;
  return plan::make_plan(p, o);
}
Words bound_of(const plan::Plan& plan, std::string_view name) {
  for (const bound::Bound& b : plan.bounds)
    if (b.name == name) return b.words;
  throw std::runtime_error("no such bound");
}
double ratio(const plan::Plan& plan, std::string_view name) {
  return plan.io().total().to_double() / bound_of(plan, name).to_double();
}

}  // namespace

TEST(ScoresBounds, AreTheirFormulas) {
  const index_t n = 4096, d = 64, M = 1024;
  const double N = 4096.0 * 4096, x = 2;
  for (const Operation op : {Operation::scores, Operation::weights}) {
    const plan::Plan plan = plan_of(op, n, d, M);
    EXPECT_EQ(bound_of(plan, "trivial"), Words(n) * n + 2 * n * d + (op == Operation::weights ? n : 0));
    EXPECT_EQ(bound_of(plan, "GEMM").to_double(), 2 * x * N - M);
    EXPECT_EQ(bound_of(plan, "S'").to_double(), std::ceil((1 - 1 / (2.0 * M)) * 2 * x * N - M));
    EXPECT_EQ(plan.bound.name, "GEMM");
  }
  // Hidden pairs cost one write each.
  const plan::Plan causal = plan_of(Operation::scores, n, d, M, true);
  const double seen = 4096.0 * 4097 / 2;
  EXPECT_EQ(bound_of(causal, "GEMM").to_double(), 2 * x * seen - M + (N - seen));
}

/// From M = d^2 on sddmm meets S' to leading order, below it is at most 5/4 above.
TEST(ScoresBounds, AreMetByTheSchedule) {
  const index_t n = index_t{1} << 20, d = 64;
  EXPECT_LT(ratio(plan_of(Operation::scores, n, d, 4 * d * d), "S'"), 1.01);
  EXPECT_LT(ratio(plan_of(Operation::scores, n, d, d * d), "S'"), 1.03);
  for (const index_t M : {2000, 1500, 1024, 700, 512, 256, 128})
    EXPECT_LT(ratio(plan_of(Operation::scores, n, d, M), "S'"), 1.33) << M;
  EXPECT_GT(ratio(plan_of(Operation::scores, n, d, 1024), "S'"), 1.2);
}

}  // namespace redblue::test::of_scores
