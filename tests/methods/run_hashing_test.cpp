#include <gtest/gtest.h>

#include "redblue/methods/approximations.hpp"
#include "redblue/runtime/run.hpp"
#include "redblue/verify/verify.hpp"
#include "runtime/filled.hpp"
#include "runtime/plans.hpp"
#include "runtime/problems.hpp"
#include "support/generators.hpp"

namespace redblue::test {
namespace {

/// Words as planned, numbers as the oracle says, in both arithmetic types: rows are sorted alike in all of them.
void check_hashing(Problem p, std::string_view method, index_t M) {
  p.approximate(method);
  const plan::Plan plan = plan::make_plan(p, {.M = M});
  for (const DType type : {DType::f64, DType::f32, DType::bf16}) {
    SCOPED_TRACE(std::string(method) + " " + std::string(name_of(type)));
    Filled filled(p, type, Strides::bhsd);
    RunOptions options;
    options.compute = type == DType::f64 ? DType::f64 : DType::f32;
    options.threads = 2;
    const Tensors t = filled.tensors();
    const Measured m = run(plan, t, options);
    EXPECT_EQ(m.io, plan.row().io);
    EXPECT_EQ(m.peak, plan.row().footprint);
    EXPECT_EQ(m.flops, plan.row().flops);
    const Verification v = verify(p, t, options.compute, roundings_of(plan));
    for (const Deviation& d : v.outputs)
      EXPECT_TRUE(d.ok()) << d.name << " errs by " << d.error << ", allowed " << d.tolerance;
    EXPECT_TRUE(v.ok());
  }
}

}  // namespace

TEST(HashingRuns, AreWhatTheirPlansSay) {
  const Problem several = with_heads(problem(40, 40, 6, 5), 2, 2, 2);
  for (const index_t M : {index_t{150}, index_t{5000}}) {  // keys pass, or are resident
    check_hashing(several, "smyrf:rounds=3,cluster=9,seed=2", M);
    check_hashing(causal(problem(40, 44, 6, 5)), "smyrf:rounds=2,cluster=9", M);
    check_hashing(several, "hyper:block=9,samples=7,planes=3,seed=4", M);
    check_hashing(problem(30, 50, 6, 5), "hyper:block=7,samples=11,planes=4", M);
    check_hashing(several, "reformer:rounds=3,chunk=9,buckets=4,seed=2", M);
    check_hashing(causal(several), "reformer:rounds=2,chunk=8,buckets=4", M);
  }
}

/// Rows that no rounding of f32 tells apart from their neighbours would fall into other clusters in f64.
TEST(HashingRuns, SortAlikeInEveryArithmeticType) {
  Problem p = problem(300, 300, 16, 4);
  for (const std::string_view method : {"smyrf:rounds=2,cluster=7", "hyper:block=7,samples=9", "reformer:chunk=7"}) {
    p.approximate(method);
    Filled filled(p, DType::f32, Strides::bhsd);
    const Tensors t = filled.tensors();
    run(some_plan(p), t, {});
    EXPECT_TRUE(verify(p, t, DType::f32).ok()) << method;
  }
}

}  // namespace redblue::test
