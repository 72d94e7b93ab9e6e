#include "redblue/verify/verify.hpp"

#include <gtest/gtest.h>

#include <limits>

#include "runtime/arrays.hpp"
#include "runtime/matrices.hpp"
#include "support/generators.hpp"

/// What --verify allows, and what it must not excuse.
namespace redblue::test {
namespace {

plan::Plan plan_of(const Problem& p, std::string_view schedule, index_t M, schedule::Multiples multiple = {}) {
  plan::Options o;
  o.schedule = schedule;
  o.M = M;
  o.multiple = multiple;
  return plan::make_plan(p, o);
}

TEST(Roundings, CountTheAdditionsIntoOneWord) {
  const Problem p = problem(40, 700, 8, 8);
  const auto additions = [&](const plan::Plan& plan) { return roundings_of(plan).additions; };
  const auto expect = [&](index_t steps, const plan::Plan& plan) {
    EXPECT_GE(additions(plan), steps) << plan.row().schedule;
    EXPECT_LE(additions(plan), steps + 1) << plan.row().schedule;  // and a division at the end
  };
  schedule::Multiples hundred;
  hundred.key = 100;
  expect(700, plan_of(p, "flash", 400));
  expect(7, plan_of(p, "flash", 8000, hundred));
  expect(700, plan_of(p, "small_cache", 400));
  expect(700, plan_of(p, "naive", 400));
  Problem back = p;
  back.op = Operation::backward;
  EXPECT_GE(additions(plan_of(back, "two_pass", 400)), 700);
  Problem first = back;
  first.forward_given = false;
  EXPECT_GE(additions(plan_of(first, "two_pass", 400)), additions(plan_of(back, "two_pass", 400)));
  Problem batched = p;
  batched.batch = 3;
  batched.heads = 4;
  EXPECT_EQ(additions(plan_of(batched, "flash", 400)), additions(plan_of(p, "flash", 400)));
}

TEST(Roundings, CountTheRoundedStatisticsThatWeightsAreMadeOf) {
  const Problem p = problem(40, 700, 8, 8);
  for (const char* schedule : {"flash", "flash_pinned", "small_cache", "score_tiles", "naive"})
    EXPECT_EQ(roundings_of(plan_of(p, schedule, 400)).lse, 0) << schedule;
  const plan::Plan plan = plan_of(p, "key_outer", 400);
  index_t Bc = 0;
  for (const schedule::TileSize& k : plan.row().tiling)
    if (k.name == "Bc") Bc = k.value;
  EXPECT_EQ(roundings_of(plan).lse, (p.n_k + Bc - 1) / Bc - 1);  // not at the first visit
  EXPECT_EQ(roundings_of(plan_of(problem(40, 3, 8, 8), "key_outer", 400)).lse, 0);
  EXPECT_EQ(roundings_of(plan_of(p, "saha_ye", 400)).lse, 1);
}

/// Sums in one chain over all keys, or queries, where the plan makes a few additions only: accuracy that a plan with so
/// large tiles should not lose.
template <class Fill>
void expect_only_a_chain_is_allowed_a_chain(const Problem& p, const Fill& tensors_of_chain) {
  const Tensors tensors = tensors_of_chain();
  EXPECT_FALSE(verify(p, tensors, DType::f32).ok());
  EXPECT_FALSE(verify(p, tensors, DType::f32, {160, 0}).ok());
  EXPECT_TRUE(verify(p, tensors, DType::f32, {std::max(p.n_q, p.n_k), 0}).ok());
}

TEST(Verify, SeesAccuracyThatIsLostWithTheLengthOfSums) {
  using enum SlowArray;
  const Problem forward = problem(8, 100003, 8, 8);
  oracle::Matrices<float> x = random_matrices({{Q, {8, 8}}, {K, {100003, 8}}, {V, {100003, 8}}});
  const oracle::Matrices<float> outputs = oracle::Dense<float>(forward, x, forward.n_k).forward();
  x.insert(outputs.begin(), outputs.end());
  expect_only_a_chain_is_allowed_a_chain(forward, [&] { return tensors_of(x); });

  Problem backward = problem(20003, 8, 8, 8);
  backward.op = Operation::backward;
  oracle::Matrices<float> y = random_matrices({{Q, {20003, 8}}, {K, {8, 8}}, {V, {8, 8}}, {dO, {20003, 8}}});
  const oracle::Matrices<float> given = oracle::Dense<float>(backward, y).forward();
  y.insert(given.begin(), given.end());
  const oracle::Matrices<float> gradients = oracle::Dense<float>(backward, y, backward.n_q).gradients();
  y.insert(gradients.begin(), gradients.end());
  expect_only_a_chain_is_allowed_a_chain(backward, [&] { return tensors_of(y); });
}

TEST(Verify, PassesPlansOfFewestWordsOverManyKeys) {
  Problem p = problem(8, 20003, 8, 8);
  p.lse_required = true;
  Arrays a(p, DType::f32, DType::f32);
  const Data x = generate(p);
  a.q.set(x.q), a.k.set(x.k), a.v.set(x.v);
  for (const char* schedule : {"flash", "small_cache", "naive", "key_outer"}) {
    const plan::Plan plan = plan_of(p, schedule, 200);
    run(plan, a.inputs(), a.outputs());
    EXPECT_TRUE(verify(p, a.inputs(), a.outputs(), DType::f32, roundings_of(plan)).ok()) << schedule;
  }
}

/// Weights that carry a rounding of lse: scores of 10^6, which are exact here, do not excuse it.
TEST(Verify, SeesWeightsThatDoNotSumToOne) {
  Problem p = problem(5, 61, 4, 3);
  p.scale = 1;
  p.lse_required = true;
  Arrays a(p, DType::f32, DType::f32);
  Data x = generate(p);
  std::fill(x.q.begin(), x.q.end(), 500);
  std::fill(x.k.begin(), x.k.end(), 500);
  a.q.set(x.q), a.k.set(x.k), a.v.set(x.v);
  for (const char* schedule : {"flash", "small_cache", "score_tiles", "naive"}) {
    const plan::Plan plan = plan_of(p, schedule, 400);
    run(plan, a.inputs(), a.outputs());
    EXPECT_TRUE(verify(p, a.inputs(), a.outputs(), DType::f32, roundings_of(plan)).ok()) << schedule;
    std::vector<double> o = a.o.get();
    for (double& w : o) w *= 1.0001;
    a.o.set(o);
    EXPECT_FALSE(verify(p, a.inputs(), a.outputs(), DType::f32, roundings_of(plan)).ok()) << schedule;
  }
}

/// A run on these inputs passes, and does not where the first word of o is off by this much.
void expect_judged(const plan::Plan& plan, DType type, const Data& data, double off) {
  const Problem& p = plan.problem;
  Arrays a(p, type, type);
  a.q.set(data.q), a.k.set(data.k), a.v.set(data.v);
  run(plan, a.inputs(), a.outputs());
  const Verification v = verify(p, a.inputs(), a.outputs(), DType::f32, roundings_of(plan));
  for (const Deviation& d : v.outputs) EXPECT_TRUE(d.ok()) << d.name << ' ' << d.error << " of " << d.tolerance;
  EXPECT_TRUE(v.ok());
  std::vector<double> o = a.o.get();
  o[0] += off;
  a.o.set(o);
  EXPECT_FALSE(verify(p, a.inputs(), a.outputs(), DType::f32, roundings_of(plan)).ok());
}

/// Keys that are all alike: o is the mean of values, most of which cancel, and naive sums may err by nothing.
TEST(Verify, AllowsTheRoundingsOfTermsOfOThatCancel) {
  const Problem p = problem(1, 2050, 5, 3);
  const plan::Plan plan = plan_of(p, "flash", 3000);
  for (std::uint64_t seed = 0; seed < 30; ++seed) {
    Data data = generate(p, Kind::normal, seed);
    std::ranges::fill(data.k, 0.5);
    for (std::size_t i = 0; i < data.v.size() / 2; ++i) data.v[data.v.size() / 2 + i] = -data.v[i];
    SCOPED_TRACE(seed);
    expect_judged(plan, DType::f32, data, 1e-5);
  }
}

/// An infinite value that few rows see does not excuse others.
TEST(Verify, JudgesRowsThatSeeNoInfiniteValue) {
  Problem p = problem(20, 20, 8, 4);
  p.causal = true;
  oracle::Matrices<float> x =
      random_matrices({{SlowArray::Q, {20, 8}}, {SlowArray::K, {20, 8}}, {SlowArray::V, {20, 4}}});
  x.at(SlowArray::V).words.back() = std::numeric_limits<float>::infinity();
  const oracle::Matrices<float> outputs = oracle::Dense<float>(p, x).forward();
  x.insert(outputs.begin(), outputs.end());
  EXPECT_TRUE(verify(p, tensors_of(x), DType::f32).ok());
  x.at(SlowArray::O).words.front() += 0.05F;
  EXPECT_FALSE(verify(p, tensors_of(x), DType::f32).ok());
}

/// Numbers of f16 next to 0 are 6e-8 apart.
TEST(Verify, AllowsOutputsTheStepsOfTheirType) {
  const Problem p = problem(20, 50, 8, 4);
  const plan::Plan plan = plan_of(p, "flash", 3000);
  for (const double size : {1e-7, 1e-6, 1e-5}) {
    SCOPED_TRACE(size);
    Data data = generate(p);
    for (double& x : data.v) x *= size;
    expect_judged(plan, DType::f16, data, 3e-7);
  }
}

/// ALiBi takes off nearly all of large scores, so lse is small beside their roundings.
TEST(Verify, AllowsLseTheRoundingsOfScoresThatAlibiTakesOff) {
  Problem p = problem(2, 3, 16, 2);
  p.alibi = p.lse_required = true;
  p.causal_offset = 10;  // all keys are 8 to 11 away
  const plan::Plan plan = plan_of(p, "flash", 3000);
  const std::vector<double> slopes{0.6};
  for (std::uint64_t seed = 0; seed < 1000; ++seed) {
    Data data = generate(p, Kind::normal, seed);
    for (double& x : data.q) x *= 4;
    std::vector<double> o(4), lse(2);
    const Inputs in{.q = {data.q, {1, 1, 2, 16}},
                    .k = {data.k, {1, 1, 3, 16}},
                    .v = {data.v, {1, 1, 3, 2}},
                    .slopes = {slopes, {1, 1, 1, 1}}};
    const Outputs out{{o, {1, 1, 2, 2}}, {lse, {1, 1, 2, 1}}};
    run(plan, in, out, {.compute = DType::f64});
    const Verification v = verify(p, in, out, DType::f64, roundings_of(plan));
    for (const Deviation& d : v.outputs)
      EXPECT_TRUE(d.ok()) << seed << ' ' << d.name << ' ' << d.error << " of " << d.tolerance;
    lse[0] += 1e-13;
    EXPECT_FALSE(verify(p, in, out, DType::f64, roundings_of(plan)).ok()) << seed;
  }
}

}  // namespace
}  // namespace redblue::test
