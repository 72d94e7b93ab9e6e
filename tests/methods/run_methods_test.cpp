#include <gtest/gtest.h>

#include "methods/runs.hpp"
#include "runtime/problems.hpp"
#include "support/cases.hpp"

namespace redblue::test {
namespace {

/// Every schedule, with the least memory, with some more, and with plenty.
void check(Problem p, std::string_view method, int threads) {
  p.approximate(method);
  std::vector<plan::Plan> plans = plans_of_every_schedule(p);
  ASSERT_FALSE(plans.empty());
  plans.push_back(plan::make_plan(p, {.M = 5000}));
  for (const plan::Plan& plan : plans)
    for (const DType type : in_turn<DType>({DType::f64, DType::f32, DType::bf16})) {
      SCOPED_TRACE(std::string(method) + ", " + text_of(plan) + ", " + std::string(name_of(type)));
      EXPECT_TRUE(verified_run(plan, type, threads).nearness);
    }
}

}  // namespace

TEST(MethodRuns, AreWhatTheirPlansSay) {
  for (const std::string_view method : {"linear", "performer:24,seed=3"})
    for (const Problem& p :
         cases<Problem>({problem(13, 13, 8, 8), problem(7, 29, 4, 9), problem(100, 300, 16, 16),
                         with_heads(problem(11, 14, 6, 5), 2, 6, 2), problem(1, 1, 1, 1), causal(problem(19, 17, 4, 3)),
                         causal(with_heads(problem(10, 12, 4, 6), 2, 4, 2), 1)}))
      check(p, method, 2);
  for (const std::string_view method :
       {"linformer:5", "linformer:9,signs,seed=2", "nystroem:5", "nystroem:4,iterations=3"})
    for (const Problem& p : cases<Problem>({problem(13, 13, 8, 8), problem(9, 29, 4, 9), problem(100, 300, 16, 16),
                                            with_heads(problem(11, 14, 2, 3), 2, 3, 3)}))
      check(p, method, 1);
  check(with_heads(problem(11, 14, 6, 5), 2, 6, 2), "linformer:7", 2);
  for (const std::string_view method :
       {"coreset:block=8,rank=3", "coreset:block=5,rank=5,tau=balanced,seed=2", "coreset:block=4,rank=6,carried",
        "coreset:block=6,rank=2,tau=balanced,carried"})
    for (const Problem& p : cases<Problem>({problem(13, 13, 8, 8), problem(9, 29, 4, 9), problem(40, 120, 16, 16),
                                            with_heads(problem(11, 14, 6, 5), 2, 6, 2)}))
      check(p, method, 2);
}

/// Rows are sorted alike in all arithmetic types.
TEST(MethodRuns, OfHashingAreWhatTheirPlansSay) {
  const Problem several = with_heads(problem(40, 40, 6, 5), 2, 2, 2);
  for (const auto& [shape, method] : {std::pair(several, "smyrf:rounds=3,cluster=9,seed=2"),
                                      {causal(problem(40, 44, 6, 5)), "smyrf:rounds=2,cluster=9"},
                                      {several, "hyper:block=9,samples=7,planes=3,seed=4"},
                                      {problem(30, 50, 6, 5), "hyper:block=7,samples=11,planes=4"},
                                      {several, "reformer:rounds=3,chunk=9,buckets=4,seed=2"},
                                      {causal(several), "reformer:rounds=2,chunk=8,buckets=4"}})
    check(shape, method, 2);
}

/// Rows that no rounding of f32 tells apart from their neighbours would fall into other clusters in f64.
TEST(MethodRuns, OfHashingSortAlikeInEveryArithmeticType) {
  Problem p = problem(300, 300, 16, 4);
  for (const std::string_view method : {"smyrf:rounds=2,cluster=7", "hyper:block=7,samples=9", "reformer:chunk=7"}) {
    p.approximate(method);
    Filled filled(p, DType::f32, Strides::bhsd);
    const Tensors t = filled.tensors();
    run(some_plan(p), t, {});
    EXPECT_TRUE(verify(p, t, DType::f32).ok()) << method;
  }
}

/// f32 states over many keys: the sums of verify() allow for the chain that the plan adds up.
TEST(MethodRuns, AreAccurateOverManyKeys) {
  for (const std::string_view method :
       {"2:1", "linear", "performer:24", "linformer:40", "nystroem:3", "coreset:block=16,rank=2,carried"}) {
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
