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

/// Words as planned, numbers as the oracle says, in both arithmetic types.
void check(Problem p, std::string_view method, int threads) {
  p.approximate(method);
  index_t ran = 0;
  for (const auto& s : plan::Registry::built_in().of(p.op))
    for (const plan::Plan& plan : plans_of(p, s->name))
      for (const DType type : {DType::f64, DType::f32, DType::bf16}) {
        SCOPED_TRACE(std::string(method) + " " + std::string(name_of(type)));
        Filled filled(p, type, Strides::bhsd);
        RunOptions options;
        options.compute = type == DType::f64 ? DType::f64 : DType::f32;
        options.threads = threads;
        const Tensors t = filled.tensors();
        const Measured m = run(plan, t, options);
        EXPECT_EQ(m.io, plan.row().io);
        EXPECT_EQ(m.peak, plan.row().footprint);
        EXPECT_EQ(m.flops, plan.row().flops);
        const Verification v = verify(p, t, options.compute, roundings_of(plan));
        EXPECT_TRUE(v.ok());
        for (const Deviation& d : v.outputs)
          EXPECT_TRUE(d.ok()) << d.name << " errs by " << d.error << ", allowed " << d.tolerance;
        ASSERT_TRUE(v.nearness);
        ++ran;
      }
  EXPECT_GT(ran, 0);
}

}  // namespace

TEST(MethodRuns, AreWhatTheirPlansSay) {
  for (const std::string_view method : {"linear", "performer:24,seed=3"})
    for (const Problem& p : {problem(13, 13, 8, 8), problem(7, 29, 4, 9), problem(1, 1, 1, 1),
                             with_heads(problem(11, 14, 6, 5), 2, 6, 2), causal(problem(19, 17, 4, 3)),
                             causal(with_heads(problem(10, 12, 4, 6), 2, 4, 2), 1), problem(100, 300, 16, 16)})
      check(p, method, 2);
  for (const std::string_view method :
       {"linformer:5", "linformer:9,signs,seed=2", "nystroem:5", "nystroem:4,iterations=3"})
    for (const Problem& p : {problem(13, 13, 8, 8), problem(9, 29, 4, 9), problem(100, 300, 16, 16),
                             with_heads(problem(11, 14, 2, 3), 2, 3, 3)})
      check(p, method, 1);
  check(with_heads(problem(11, 14, 6, 5), 2, 6, 2), "linformer:7", 2);
  for (const std::string_view method :
       {"coreset:block=8,rank=3", "coreset:block=5,rank=5,tau=balanced,seed=2", "coreset:block=4,rank=6,carried",
        "coreset:block=6,rank=2,tau=balanced,carried"})
    for (const Problem& p : {problem(13, 13, 8, 8), problem(9, 29, 4, 9), problem(40, 120, 16, 16),
                             with_heads(problem(11, 14, 6, 5), 2, 6, 2)})
      check(p, method, 2);
}

/// f32 states over many keys: the sums of verify() allow for the chain that the plan adds up.
TEST(MethodRuns, AreAccurateOverManyKeys) {
  for (const std::string_view method :
       {"linear", "performer:24", "linformer:40", "nystroem:3", "coreset:block=16,rank=2,carried"}) {
    Problem p = problem(3, 6000, 4, 3);
    p.approximate(method);
    Filled filled(p, DType::f32, Strides::bhsd);
    const Tensors t = filled.tensors();
    const plan::Plan plan = some_plan(p);
    run(plan, t, {});
    EXPECT_TRUE(verify(p, t, DType::f32, roundings_of(plan)).ok()) << method;
  }
}

/// Large keys: without the running maximum e^x would overflow, or every feature be 0.
TEST(MethodRuns, PerformerIsStable) {
  Problem p = problem(5, 40, 8, 3);
  p.approximate("performer:32,seed=1");
  p.scale = 40;
  Filled filled(p, DType::f64, Strides::bhsd);
  const Tensors t = filled.tensors();
  run(some_plan(p), t, {.compute = DType::f64});
  EXPECT_TRUE(verify(p, t, DType::f64).ok());
}

}  // namespace redblue::test
