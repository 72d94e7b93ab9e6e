#include <gtest/gtest.h>

#include "redblue/verify/verify.hpp"
#include "runtime/arrays.hpp"
#include "runtime/filled.hpp"
#include "runtime/plans.hpp"
#include "runtime/problems.hpp"
#include "support/cases.hpp"
#include "support/generators.hpp"

/// Scores of any size that the arithmetic type can hold: each row has one key whose score is far above the others.
namespace redblue::test {
namespace {

/// Scores size a b / 2, exact in every order of summation: a of the query, b of the key, no two alike.
struct Huge {
  Problem p;
  double size;
  Data data;

  Huge(const Problem& shape, double scores) : p(shape), size(scores), data(generate(shape)) {
    p.scale = 0.5;
    p.lse_required = true;
    std::fill(data.q.begin(), data.q.end(), 0.0);
    std::fill(data.k.begin(), data.k.end(), 0.0);
    for (index_t i = 0; i < p.n_q; ++i) data.q[static_cast<std::size_t>(i * p.d)] = size * a(i);
    for (index_t j = 0; j < p.n_k; ++j) data.k[static_cast<std::size_t>(j * p.d)] = b(j);
  }
  static double a(index_t i) { return std::array{-2.0, -1.0, 1.0, 2.0}[static_cast<std::size_t>(i % 4)]; }
  static double b(index_t j) { return static_cast<double>(j * 37 % 4201) - 2100; }
  index_t seen(index_t i) const { return p.causal ? std::min(p.n_k, i + 1 + p.n_k - p.n_q) : p.n_k; }
  double score(index_t i, index_t j) const { return 0.5 * size * a(i) * b(j); }
  index_t largest(index_t i) const {
    index_t best = 0;
    for (index_t j = 1; j < seen(i); ++j)
      if (score(i, j) > score(i, best)) best = j;
    return best;
  }
};

std::vector<double> sizes(DType compute) {
  std::vector<double> list = {0x1p10, 0x1p15, 0x1p19, 0x1p21, 0x1p24, 0x1p27, 0x1p30, 0x1p40, 0x1p100};
  if (compute == DType::f64)
    for (const double size : {0x1p48, 0x1p52, 0x1p60, 0x1p200}) list.push_back(size);
  return cases(list);
}
Problem masked(Problem p) {
  p.causal = true;
  return p;
}

TEST(HugeScores, TheLargestHasAllTheWeightInEverySchedule) {
  for (const Problem& shape : cases<Problem>(
           {masked(problem(101, 101, 7, 9)), problem(3, 75, 19, 5), problem(101, 101, 7, 9), problem(2, 4200, 3, 2)}))
    for (const DType compute : {DType::f32, DType::f64})
      for (const double size : sizes(compute)) {
        const Huge x(shape, size);
        for (const plan::Plan& plan : plans_in_turn(x.p)) {
          if (!plan.row().algorithm->traits.stable || (shape.n_k > 1000 && plan.row().schedule != "split_keys"))
            continue;
          SCOPED_TRACE(text_of(plan) + ", scores of " + std::to_string(size) + " in " + std::string(name_of(compute)));
          Arrays a(x.p, compute, compute);
          a.q.set(x.data.q), a.k.set(x.data.k), a.v.set(x.data.v);
          RunOptions options;
          options.compute = compute;
          run(plan, a.inputs(), a.outputs(), options);
          const auto o = a.o.get(), lse = a.lse.get();
          const double eps = compute == DType::f32 ? 0x1p-22 : 0x1p-51;
          for (index_t i = 0; i < x.p.n_q; ++i) {
            const index_t key = x.largest(i);
            const double score = x.score(i, key);
            ASSERT_NEAR(lse[static_cast<std::size_t>(i)], score, eps * std::abs(score)) << "row " << i;
            for (index_t t = 0; t < x.p.d_v; ++t) {
              const double v = x.data.v[static_cast<std::size_t>(key * x.p.d_v + t)];
              ASSERT_NEAR(o[static_cast<std::size_t>(i * x.p.d_v + t)], v, 4 * eps * std::abs(v)) << "row " << i;
            }
          }
        }
      }
}

/// The arrays of a backward pass whose forward pass comes first; dO is all ones.
Filled backward_of(const plan::Plan& plan, DType type, const Data& x) {
  Filled a(plan.problem, type, Strides::bhsd);
  a.arrays.at(SlowArray::Q).set(x.q), a.arrays.at(SlowArray::K).set(x.k), a.arrays.at(SlowArray::V).set(x.v);
  a.arrays.at(SlowArray::dO).set(std::vector<double>(static_cast<std::size_t>(a.p.n_q * a.p.d_v), 1.0));
  return a;
}

std::vector<plan::Plan> backward_plans(Problem p) {
  p.op = Operation::backward;
  p.forward_given = false;
  std::vector<plan::Plan> plans;
  for (const std::string_view name : plan::Registry::built_in().names(Operation::backward)) {
    plan::Options o;
    o.schedule = name;
    o.M = name.starts_with("ring") ? 20'000 : 4096;  // without a left edge rings hold all keys, or all queries
    try {
      plans.push_back(plan::make_plan(p, o));
    } catch (const Unsupported&) {  // a mask or a score function it does not know
    }
  }
  return plans;
}

TEST(HugeScores, GradientsAreThoseOfTheLargest) {
  for (const Problem& shape : {problem(101, 101, 7, 9), masked(problem(101, 101, 7, 9))})
    for (const DType compute : {DType::f32, DType::f64})
      for (const double size : sizes(compute)) {
        const Huge x(shape, size);
        const double eps = compute == DType::f32 ? 0x1p-22 : 0x1p-51, far = compute == DType::f32 ? 0x1p21 : 0x1p50;
        std::vector<double> rows(static_cast<std::size_t>(x.p.n_k)), most(rows.size());
        for (index_t i = 0; i < x.p.n_q; ++i) {
          const auto key = static_cast<std::size_t>(x.largest(i));
          const double score = std::abs(x.score(i, x.largest(i)));
          rows[key] += 1;
          most[key] += eps * (4 + (score < far ? 2 * score : 0));  // lse is rounded, and exp(score - lse) with it
        }
        for (const plan::Plan& plan : backward_plans(x.p)) {
          SCOPED_TRACE(text_of(plan) + ", scores of " + std::to_string(size) + " in " + std::string(name_of(compute)));
          Filled a = backward_of(plan, compute, x.data);
          RunOptions options;
          options.compute = compute;
          run(plan, a.tensors(), options);
          const auto dQ = a.arrays.at(SlowArray::dQ).get(), dK = a.arrays.at(SlowArray::dK).get(),
                     dV = a.arrays.at(SlowArray::dV).get();
          for (std::size_t i = 0; i < dV.size(); ++i) {
            const std::size_t key = i / static_cast<std::size_t>(x.p.d_v);
            ASSERT_NEAR(dV[i], rows[key], most[key]) << "dV of key " << key;
          }
          // dP - D is what rounding left of O.
          for (const double g : dQ) ASSERT_LE(std::abs(g), 0x1p18 * eps);
          for (const double g : dK) ASSERT_LE(std::abs(g), 0x1p12 * eps * size);
        }
      }
}

/// Scores that are all alike: O is the mean of the values, whatever lse is rounded to; where a plan hands on lse in one
/// word, with the error that this costs (docs/numerics.md).
TEST(HugeScores, EqualOnesGiveTheMeanOfTheValues) {
  for (Problem p : {problem(3, 75, 4, 5), problem(40, 61, 4, 9), problem(2, 5000, 4, 3)})
    for (const DType compute : {DType::f32, DType::f64})
      for (const double size : cases<double>({1e3, 1e4, 1e6, 3e7, 1e9, 1e12})) {
        p.lse_required = true;
        p.scale = 1;
        Data x = generate(p);
        std::fill(x.q.begin(), x.q.end(), 0.5);
        std::fill(x.k.begin(), x.k.end(), size / 2);
        std::vector<double> mean(static_cast<std::size_t>(p.d_v));
        for (std::size_t i = 0; i < x.v.size(); ++i) mean[i % mean.size()] += x.v[i] / static_cast<double>(p.n_k);
        for (const plan::Plan& plan : plans_in_turn(p)) {
          const index_t handed_on = roundings_of(plan).lse;
          if (!plan.row().algorithm->traits.stable || (p.n_k > 1000 && handed_on == 0)) continue;
          EXPECT_EQ(handed_on > 0, !plan.row().algorithm->caveat(p.sizes(), plan.row().tiling).empty());
          SCOPED_TRACE(text_of(plan) + ", scores of " + std::to_string(size) + " in " + std::string(name_of(compute)));
          Arrays a(p, compute, compute);
          a.q.set(x.q), a.k.set(x.k), a.v.set(x.v);
          RunOptions options;
          options.compute = compute;
          run(plan, a.inputs(), a.outputs(), options);
          const auto o = a.o.get();
          const double eps = compute == DType::f32 ? 0x1p-24 : 0x1p-53, most = static_cast<double>(p.n_k) * eps;
          const double of_lse = 8 * static_cast<double>(handed_on) * eps * size;
          for (std::size_t i = 0; i < o.size(); ++i)
            ASSERT_NEAR(o[i], mean[i % mean.size()], most + of_lse) << "word " << i;
        }
      }
}

/// Scores whose rounding alone is worth any number of weights: still weights are at most 1 and sum to 1.
TEST(HugeScores, OfAnyDataGiveFiniteNumbers) {
  for (Problem p :
       first_of<Problem>({masked(problem(101, 101, 33, 9)), problem(3, 75, 19, 5), problem(101, 101, 33, 9)}))
    for (const double size : cases<double>({1e4, 1e5, 1e6, 1e7, 1e9, 1e12, 1e20, 1e35})) {
      p.lse_required = true;
      Data x = generate(p);
      for (double& q : x.q) q *= size;
      const double most = *std::max_element(x.v.begin(), x.v.end()), least = *std::min_element(x.v.begin(), x.v.end());
      for (const plan::Plan& plan : plans_in_turn(p)) {
        if (!plan.row().algorithm->traits.stable || roundings_of(plan).lse > 0) continue;
        SCOPED_TRACE(text_of(plan) + ", scores of " + std::to_string(size));
        Arrays a(p, DType::f32, DType::f32);
        a.q.set(x.q), a.k.set(x.k), a.v.set(x.v);
        run(plan, a.inputs(), a.outputs());
        for (const double l : a.lse.get()) ASSERT_TRUE(std::isfinite(l));
        for (const double o : a.o.get()) ASSERT_TRUE(o <= most + 1e-5 && o >= least - 1e-5) << o;
      }
      for (const plan::Plan& plan : in_turn(backward_plans(p))) {
        SCOPED_TRACE(text_of(plan) + ", scores of " + std::to_string(size));
        Filled a = backward_of(plan, DType::f32, x);
        run(plan, a.tensors());
        for (const auto& gradient :
             {a.arrays.at(SlowArray::dQ).get(), a.arrays.at(SlowArray::dK).get(), a.arrays.at(SlowArray::dV).get()})
          for (const double g : gradient) ASSERT_TRUE(std::isfinite(g));
      }
    }
}

/// The last row's scores, or all, are beyond the type and so -inf: a row without weights.
Data overflowing(const Problem& p, DType compute, bool all) {
  Data x = generate(p);
  const double largest = compute == DType::f32 ? 3e38 : 1.7e308;
  std::fill(x.k.begin(), x.k.end(), -1.0);
  std::fill(all ? x.q.begin() : x.q.end() - p.d, x.q.end(), largest);
  return x;
}

TEST(HugeScores, RowsOfMinusInfinityGiveZero) {
  for (Problem p : {problem(50, 70, 19, 21), problem(3, 33, 4, 5), masked(problem(50, 70, 19, 21))})
    for (const DType compute : {DType::f32, DType::f64})
      for (const bool all : {false, true}) {
        p.lse_required = true;
        const Data x = overflowing(p, compute, all);
        RunOptions options;
        options.compute = compute;
        for (const plan::Plan& plan : cases(plans_of_every_schedule(p))) {
          if (!plan.row().algorithm->traits.stable) continue;
          SCOPED_TRACE(text_of(plan) + " in " + std::string(name_of(compute)) +
                       (all ? ", all rows" : ", the last row"));
          Arrays a(p, compute, compute);
          a.q.set(x.q), a.k.set(x.k), a.v.set(x.v);
          run(plan, a.inputs(), a.outputs(), options);
          const auto o = a.o.get(), lse = a.lse.get();
          for (std::size_t i = 0; i < lse.size(); ++i)
            EXPECT_EQ(lse[i] == kMinusInfinity, all || i + 1 == lse.size()) << "row " << i << ": " << lse[i];
          for (std::size_t i = 0; i < o.size(); ++i)
            EXPECT_TRUE(all || i >= o.size() - static_cast<std::size_t>(p.d_v) ? o[i] == 0 : std::isfinite(o[i]));
        }
        for (const plan::Plan& plan : backward_plans(p)) {
          SCOPED_TRACE(text_of(plan) + " in " + std::string(name_of(compute)) +
                       (all ? ", all rows" : ", the last row"));
          Filled a = backward_of(plan, compute, x);
          run(plan, a.tensors(), options);
          const auto dQ = a.arrays.at(SlowArray::dQ).get();
          for (std::size_t i = 0; i < dQ.size(); ++i)
            EXPECT_TRUE(all || i >= dQ.size() - static_cast<std::size_t>(p.d) ? dQ[i] == 0 : std::isfinite(dQ[i]));
          for (const auto& gradient : {a.arrays.at(SlowArray::dK).get(), a.arrays.at(SlowArray::dV).get()})
            for (const double g : gradient) EXPECT_TRUE(all ? g == 0 : std::isfinite(g)) << g;
        }
      }
}

}  // namespace
}  // namespace redblue::test
