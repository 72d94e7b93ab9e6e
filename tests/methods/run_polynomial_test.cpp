#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "methods/runs.hpp"
#include "redblue/language/error.hpp"
#include "redblue/methods/certificate.hpp"
#include "redblue/methods/maths/approximations.hpp"
#include "runtime/problems.hpp"

namespace redblue::test {
namespace {

Problem approximate(Problem p, index_t degree = 2, double range = 1) {
  p.approximation = approximate_exp(degree, range);
  return p;
}

/// Every schedule in both arithmetic types, near exact attention.
void check(const Problem& p, int threads) {
  const std::vector<plan::Plan> plans = plans_of_every_schedule(p);
  EXPECT_FALSE(plans.empty());
  for (const plan::Plan& plan : plans)
    for (const DType type : {DType::f64, DType::f32, DType::bf16}) {
      SCOPED_TRACE(text_of(plan) + ", " + std::string(name_of(type)));
      EXPECT_EQ(plan.row().algorithm->traits.method, methods::kPolynomial);
      const Verification v = verified_run(plan, type, threads);
      ASSERT_TRUE(v.nearness);
      EXPECT_TRUE(v.nearness->in_range()) << v.nearness->largest_score;
      if (is_forward(p.op)) {
        EXPECT_LE(v.nearness->distance, v.nearness->proved + v.nearness->rounding);
      }
    }
}

}  // namespace

TEST(PolynomialRuns, AreWhatTheirPlansSay) {
  for (const Operation op : {Operation::forward, Operation::backward})
    for (Problem p : cases<Problem>({problem(13, 13, 8, 8), problem(7, 29, 4, 9),
                                     with_heads(problem(11, 14, 6, 5), 2, 6, 2), causal(problem(19, 17, 4, 3)),
                                     problem(1, 1, 1, 1), causal(with_heads(problem(10, 12, 4, 6), 2, 4, 2), 1)})) {
      p.op = op;
      check(approximate(p), 1);
      check(approximate(p, 3), 2);
    }
}

/// Each row with its polynomial: words as decided, numbers as the oracle says, the error as proved.
TEST(PolynomialRuns, ByRowsAreAsProved) {
  for (const Problem& shape : {problem(40, 50, 8, 6), problem(1, 9, 4, 4), with_heads(problem(30, 21, 6, 5), 2, 4, 2),
                               causal(problem(40, 50, 8, 6)), causal(problem(40, 30, 4, 3)),
                               causal(problem(9, 20, 4, 3), 5), causal(with_heads(problem(17, 21, 6, 5), 2, 4, 2))})
    for (const RowOptions& how :
         {RowOptions{}, RowOptions{true, 3, true}, RowOptions{true, 0, false},
          RowOptions{.centred = true, .fit = Fit::gaussian}, RowOptions{true, 3, false, Fit::gaussian}})
      for (const DType type : {DType::f64, DType::f32}) {
        Problem p = shape;
        if (p.causal && how.fit == Fit::gaussian) continue;  // RefuseAGaussianFitUnderAMask
        p.approximation = polynomials_of_rows(2, 2, how);
        const plan::Plan plan = plan::make_plan(p, {.M = 450});
        EXPECT_EQ(plan.row().schedule, "polynomial_rows");
        const Measured most = count(plan);
        EXPECT_EQ(most.io, plan.row().io);
        EXPECT_EQ(most.decisions.worst, most.decisions.asked);
        const index_t blind = p.causal ? std::max<index_t>(0, -p.causal_offset.value_or(p.n_k - p.n_q)) : 0;
        EXPECT_EQ(most.decisions.asked, how.exact_rows ? p.batch * p.heads * (p.n_q - blind) : 0);
        Filled filled(p, type, Strides::bhsd);
        const Tensors t = filled.tensors();
        for (const int threads : {1, 3}) {
          const Measured m = run(plan, t, {.compute = type, .threads = threads});
          EXPECT_EQ(m.decisions.asked, most.decisions.asked);
          EXPECT_LE(m.io.total(), plan.row().io.total());
          EXPECT_LE(m.peak, plan.row().footprint);
          if (p.instances() == 1) {
            const schedule::Costs costs = plan.row().algorithm->costs(p.sizes(), plan.row().tiling, m.decisions);
            EXPECT_EQ(m.io, costs.io);
            EXPECT_EQ(m.peak, costs.footprint);
          }
          const Verification v = verify(p, t, type, roundings_of(plan));
          EXPECT_TRUE(v.ok());
          ASSERT_TRUE(v.nearness);
          EXPECT_EQ(v.nearness->by_rows, how.exact_rows && how.fit != Fit::gaussian);
        }
      }
}

/// The scores of the keys that a row sees, less the mean of all keys, have a mean of their own: the fit takes it to be
/// 0.
TEST(PolynomialRuns, RefuseAGaussianFitUnderAMask) {
  Problem p = causal(problem(20, 20, 4, 3));
  p.approximate("2:1,gaussian");
  EXPECT_THAT([&] { (void)plan::make_plan(p, {.M = 1000}); },
              testing::ThrowsMessage<Unsupported>(testing::HasSubstr("a gaussian fit without a mask only")));
  p.causal_offset = 20;  // which hides nothing
  EXPECT_EQ(plan::make_plan(p, {.M = 1000}).row().schedule, "polynomial_rows");
}

/// The first rows see exact keys only, whose scores are far below 0: they are exact attention.
TEST(PolynomialRuns, WhereARowSeesExactKeysAloneItIsExactAttention) {
  Problem p = causal(problem(3, 3, 1, 1));
  p.scale = 1;
  p.approximate("2:1,exact-keys=2,no-exact-rows");
  const std::vector<double> q(3, 1), k{-500, -499, 0.5}, v{1, 2, 3};
  std::vector<double> o(3);
  const auto tensor = [](const std::vector<double>& x) { return Tensor(x, {1, 1, std::ssize(x), 1}); };
  run(plan::make_plan(p, {.M = 400}), {tensor(q), tensor(k), tensor(v)}, {Tensor(o, {1, 1, 3, 1}), {}},
      {.compute = DType::f64});
  EXPECT_NEAR(o[0], 1, 1e-12);
  EXPECT_NEAR(o[1], (1 + 2 * std::exp(1.0)) / (1 + std::exp(1.0)), 1e-12);
  EXPECT_NEAR(o[2], 3, 1e-12);
}

/// Pairs of a cluster have exact weights: words as decided, numbers as the oracle says, for any number of threads.
TEST(PolynomialRuns, ByClustersAreAsTheOracleSays) {
  for (const Problem& shape : {problem(40, 50, 8, 6), problem(1, 9, 4, 4), with_heads(problem(30, 21, 6, 5), 2, 2, 2)})
    for (const char* text : {"2:2,cluster=8", "2:0.6,gaussian,cluster=7,seed=3",
                             "3:0.6,gaussian,cluster=5,no-exact-rows", "2:2,centred,cluster=6,no-exact-rows"})
      for (const DType type : {DType::f64, DType::f32}) {
        Problem p = shape;
        p.approximate(text);
        const plan::Plan plan = plan::make_plan(p, {.M = 1500});
        EXPECT_EQ(plan.row().schedule, "polynomial_clusters");
        EXPECT_EQ(count(plan).io, plan.row().io);
        Filled filled(p, type, Strides::bhsd);
        const Tensors t = filled.tensors();
        for (const int threads : {1, 3}) {
          const Measured m = run(plan, t, {.compute = type, .threads = threads});
          if (p.instances() == 1) {
            const schedule::Costs costs = plan.row().algorithm->costs(p.sizes(), plan.row().tiling, m.decisions);
            EXPECT_EQ(m.io, costs.io) << text;
            EXPECT_EQ(m.peak, costs.footprint) << text;
          }
          const Verification v = verify(p, t, type, roundings_of(plan));
          EXPECT_TRUE(v.ok()) << text;
          ASSERT_TRUE(v.nearness);
          EXPECT_EQ(v.nearness->by_rows, std::string_view(text) == "2:2,cluster=8");
        }
      }
}

/// Where every key is exact and scores are far below 0, no weight vanishes: the maximum is that of the scores.
TEST(PolynomialRuns, OfExactKeysAloneAreExactAttention) {
  for (const char* schedule : {"polynomial_rows", "polynomial_pairs"}) {
    Problem p = problem(3, 4, 2, 2);
    p.scale = 1;
    p.approximate("2:1,exact-keys=4");
    const std::vector<double> q(6, 1), k{-500, -500, -510, -490, -600, -600, -505, -495}, v{1, 2, 3, 4, 5, 6, 7, 8};
    std::vector<double> o(6);
    const auto tensor = [](const std::vector<double>& x) { return Tensor(x, {1, 1, std::ssize(x) / 2, 2}); };
    plan::Options options{.M = 400};
    options.schedule = schedule;
    run(plan::make_plan(p, options), {tensor(q), tensor(k), tensor(v)}, {Tensor(o, {1, 1, 3, 2}), {}},
        {.compute = DType::f64});
    for (index_t i = 0; i < 3; ++i) {  // three scores of -1000
      EXPECT_NEAR(o[static_cast<std::size_t>(2 * i)], 11.0 / 3, 1e-12) << schedule;
      EXPECT_NEAR(o[static_cast<std::size_t>(2 * i + 1)], 14.0 / 3, 1e-12) << schedule;
    }
  }
}

/// There are none where nothing is proved, or roundings are not bounded: said, not left out.
TEST(PolynomialRuns, WithoutCertificatesSaySo) {
  for (const auto& [text, why] : {std::pair("2:1,gaussian", "nothing is proved of a gaussian fit"),
                                  std::pair("2:1,cluster=4", "roundings are not bounded")}) {
    Problem p = problem(20, 20, 4, 3);
    p.approximate(text);
    Filled filled(p, DType::f64, Strides::bhsd);
    const Tensors t = filled.tensors();
    try {
      (void)certify(p, Inputs{t[SlowArray::Q], t[SlowArray::K], t[SlowArray::V]}, DType::f64);
      ADD_FAILURE() << text;
    } catch (const Unsupported& e) {
      EXPECT_NE(std::string(e.what()).find(why), std::string::npos) << e.what();
    }
  }
}

/// Scores beyond the range: the run does what it says, and verify() says that nothing is proved.
TEST(PolynomialRuns, SayWhereScoresLeaveTheRange) {
  Problem p = approximate(problem(20, 20, 4, 3), 2, 0.05);
  Filled filled(p, DType::f64, Strides::bhsd);
  const Tensors t = filled.tensors();
  run(some_plan(p), t, {.compute = DType::f64});
  const Verification v = verify(p, t, DType::f64);
  ASSERT_TRUE(v.nearness);
  EXPECT_FALSE(v.nearness->in_range());
  EXPECT_TRUE(v.ok());
}

/// An answer that is not near exact attention is found out, even where the oracle of the polynomial agrees with it.
TEST(PolynomialRuns, AreHeldAgainstExactAttention) {
  Problem p = problem(12, 12, 4, 3);
  Polynomial wrong = near_exp(Fit::taylor, 2, 1);
  wrong.c[1] = -0.5;
  wrong.error = 0.01;  // it is not
  p.approximation = std::make_shared<const Polynomial>(wrong);
  Filled filled(p, DType::f64, Strides::bhsd);
  const Tensors t = filled.tensors();
  run(some_plan(p), t, {.compute = DType::f64});
  const Verification v = verify(p, t, DType::f64);
  EXPECT_TRUE(v.outputs.front().ok());
  ASSERT_TRUE(v.nearness);
  EXPECT_FALSE(v.nearness->ok());
  EXPECT_FALSE(v.ok());
}

}  // namespace redblue::test
