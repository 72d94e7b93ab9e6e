#include <gtest/gtest.h>

#include "redblue/hardware/isa.hpp"
#include "redblue/masks/patterns.hpp"
#include "runtime/arrays.hpp"
#include "runtime/plans.hpp"
#include "runtime/problems.hpp"
#include "support/cases.hpp"
#include "support/generators.hpp"
#include "support/tolerance.hpp"

/// The forward pass with compute type bf16: every schedule against the definition in fp64, on inputs as rounded. With
/// REDBLUE_ISA = avx512_bf16 K, V and the weights are multiplied as bf16, elsewhere as f32.
namespace redblue::test {
namespace {

Problem grouped(Problem p) {
  p.batch = 2;
  p.heads = 4;
  p.kv_heads = 2;
  return p;
}

/// Every schedule from the least M it can do with to one that holds everything.
std::vector<plan::Plan> bf16_plans(const Problem& p) {
  std::vector<plan::Plan> plans = plans_of_every_schedule(p);
  const std::size_t schedules = plans.size() / 2;
  for (std::size_t i = 0; i < schedules; ++i)
    for (const index_t M : {1000, 4096, 100000}) {
      plan::Options o;
      o.schedule = plans[2 * i].row().schedule;
      o.M = M;
      if (o.M > plans[2 * i].options.M) plans.push_back(plan::make_plan(p, o));
    }
  return plans;
}

struct Case {
  Arrays arrays;
  Result truth;
  double o_most = 0, lse_most = 0;

  Case(const Problem& p, Strides in, Strides out) : arrays(p, DType::bf16, DType::f32, in, out) {
    arrays.o = Array(DType::f32, {p.batch, p.heads, p.n_q, p.d_v}, out);
    const Data data = generate(p);
    arrays.q.set(data.q), arrays.k.set(data.k), arrays.v.set(data.v);
    const auto q = arrays.q.get(), k = arrays.k.get(), v = arrays.v.get();
    truth = truth_of(p, q, k, v);
    const Result naive = attend<float>(p, q, k, v);
    // Each weight is rounded to bf16, the sum of weights is not: but exp is off by up to 9e-5 (docs/kernels.md).
    o_most = tolerance(truth.o, naive.o, eps_of(DType::f32), largest(truth.lse)) + eps_of(DType::bf16) * largest(v);
    lse_most = tolerance(truth.lse, naive.lse, eps_of(DType::f32)) + 9e-5;
  }
};

void check(const Problem& p, Strides in = Strides::bhsd, Strides out = Strides::bhsd) {
  const Case wanted(p, in, out);
  for (const plan::Plan& plan : in_turn(bf16_plans(p))) {
    if (!plan.row().algorithm->traits.stable) continue;
    SCOPED_TRACE(text_of(plan) + ", " + std::string(name_of(in)) + " -> " + std::string(name_of(out)));
    Arrays a = wanted.arrays;
    RunOptions options;
    options.compute = DType::bf16;
    options.threads = 1;
    const Measured m = run(plan, a.inputs(), a.outputs(), options);
    EXPECT_EQ(m.io, plan.row().io);
    EXPECT_EQ(m.peak, plan.row().footprint);
    EXPECT_EQ(m.kernels, name_of(best_isa()));
    EXPECT_LE(max_error(a.o.get(), wanted.truth.o), wanted.o_most);
    EXPECT_LE(max_error(a.lse.get(), wanted.truth.lse), wanted.lse_most);
    EXPECT_TRUE(a.q.memory() == wanted.arrays.q.memory() && a.k.memory() == wanted.arrays.k.memory() &&
                a.v.memory() == wanted.arrays.v.memory());
    EXPECT_TRUE(a.o.surroundings_untouched());
    EXPECT_TRUE(a.lse.surroundings_untouched());
  }
}

TEST(Bf16, EveryScheduleSolvesEveryShape) {
  for (const Problem& p :
       cases<Problem>({problem(1, 1, 1, 1), problem(1, 130, 7, 5), problem(3, 97, 33, 20), problem(8, 5, 4, 4),
                       problem(9, 5, 2, 2), problem(33, 65, 8, 8), problem(64, 97, 16, 16), problem(50, 70, 19, 21),
                       problem(130, 97, 40, 24), grouped(problem(17, 31, 6, 5))}))
    check(with_lse(p));
}

TEST(Bf16, EveryScheduleMasks) {
  for (const Problem& p :
       {causal(problem(49, 49, 16, 16)), causal(problem(50, 70, 19, 21)), causal(problem(97, 33, 5, 6)),
        causal(problem(40, 61, 8, 3), 7), causal(problem(33, 33, 4, 4), -100), causal(grouped(problem(19, 23, 4, 5)))})
    check(with_lse(p));
}

TEST(Bf16, EveryScheduleTakesPatterns) {
  for (const index_t globals :
       {3, 24}) {  // in ring they are pinned; few and many queries have implementations of their own
    Problem p = with_lse(problem(96, 96, 16, 16));
    p.patterns = {std::make_shared<const RunLists>(patterns::longformer({96, 96}, 4, 4, globals))};
    check(p);
  }
}

TEST(Bf16, EveryScheduleTakesEveryStrideOfRowsThatAreContiguous) {
  for (const Strides in : {Strides::bshd, Strides::padded})
    for (const Strides out : first_of<Strides>({kAllStrides.rbegin(), kAllStrides.rend()}))
      for (const Problem& p : {grouped(problem(21, 35, 6, 5)), causal(grouped(problem(21, 35, 6, 5)))})
        check(with_lse(p), in, out);
}

}  // namespace
}  // namespace redblue::test
