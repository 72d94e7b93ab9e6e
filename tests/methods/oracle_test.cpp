#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "redblue/methods/maths/random_features.hpp"
#include "redblue/verify/oracle/dense.hpp"

/// The oracle of published approximations against exact attention where they equal it, or come near, and against sums
/// by hand.
namespace redblue::test {
namespace {

using oracle::Dense;
using oracle::Matrices;
using oracle::Matrix;

Matrices<long double> inputs(const Problem& p, double spread) {
  std::mt19937 random(5);
  std::normal_distribution<double> normal(0, spread);
  Matrices<long double> in;
  for (const auto& [array, shape] :
       {std::pair(SlowArray::Q, Shape{p.n_q, p.d}), std::pair(SlowArray::K, Shape{p.n_k, p.d}),
        std::pair(SlowArray::V, Shape{p.n_k, p.d_v})}) {
    Matrix<long double> m(shape);
    for (long double& x : m.words) x = normal(random);
    in[array] = m;
  }
  return in;
}

Problem square(index_t n) {
  Problem p;
  p.n_q = p.n_k = n;
  p.d = 4;
  p.d_v = 3;
  return p;
}

/// The largest distance from exact attention.
double distance(Problem p, std::string_view method, double spread = 1) {
  const Matrices<long double> in = inputs(p, spread);
  const auto exact = Dense<long double>(p, in).forward().at(SlowArray::O);
  p.approximate(method);
  const auto ours = Dense<long double>(p, in).forward().at(SlowArray::O);
  double gap = 0;
  for (std::size_t k = 0; k < ours.words.size(); ++k)
    gap = std::max(gap, std::abs(static_cast<double>(ours.words[k] - exact.words[k])));
  return gap;
}

}  // namespace

TEST(DenseMethods, AreExactWhereTheyMustBe) {
  EXPECT_LT(distance(square(12), "linformer:12"), 1e-17);  // each segment is one key
  // Then A = softmax(Q K^T): A A^+ A = A.
  EXPECT_LT(distance(square(7), "nystroem:7,iterations=60"), 1e-10);
  EXPECT_GT(distance(square(7), "nystroem:7,iterations=2"), 1e-3);
  EXPECT_GT(distance(square(12), "linformer:11"), 1e-3);
  // One cluster, or block, of all rows; samples within it count for nothing.
  EXPECT_LT(distance(square(12), "smyrf:rounds=3,cluster=12"), 1e-17);
  EXPECT_GT(distance(square(12), "smyrf:rounds=3,cluster=6"), 1e-3);
  EXPECT_LT(distance(square(12), "hyper:block=12,samples=5"), 1e-17);
  EXPECT_GT(distance(square(12), "hyper:block=6,samples=5"), 1e-3);
  EXPECT_LT(distance(square(12), "sample:12"), 1e-17);
  EXPECT_GT(distance(square(12), "sample:11"), 1e-3);
  EXPECT_LT(distance(square(12), "2:1,gaussian,cluster=12,no-exact-rows"), 1e-17);
  EXPECT_GT(distance(square(12), "2:1,gaussian,cluster=11,no-exact-rows"), 1e-4);
  EXPECT_LT(distance(square(12), "2:0.01,gaussian"), 1e-17);  // every spread is beyond it: all rows are exact
}

/// The fit of a high degree is e^z wherever scores go; that of degree 2 is nearer than the polynomial of the worst that
/// q and k of such lengths could do. Beside exact pairs it has their unit.
TEST(DenseMethods, GaussianFitsComeNearExactAttention) {
  EXPECT_LT(distance(square(12), "12:4,gaussian,no-exact-rows", 0.6), 1e-6);
  EXPECT_LT(distance(square(12), "12:4,gaussian,exact-keys=3,no-exact-rows", 0.6), 1e-6);
  EXPECT_LT(distance(square(12), "12:4,gaussian,cluster=5,no-exact-rows", 0.6), 1e-6);
  EXPECT_LT(distance(square(40), "2:4,gaussian,no-exact-rows"),
            0.5 * distance(square(40), "2:12,centred,no-exact-rows"));
}

/// The mean over many random features is e^(q.k): errors shrink like 1/sqrt(features).
TEST(DenseMethods, PerformerComesNearExactAttention) {
  const double few = distance(square(10), "performer:64,seed=2", 0.7),
               many = distance(square(10), "performer:65536,seed=2", 0.7);
  EXPECT_LT(many, 0.02);
  EXPECT_LT(many, few / 4);
  Problem causal = square(10);
  causal.causal = true;
  EXPECT_LT(distance(causal, "performer:65536,seed=2", 0.7), 0.02);
}

TEST(DenseMethods, LinearAttentionByHand) {
  Problem p;
  p.n_q = 1;
  p.n_k = 2;
  p.d = p.d_v = 1;
  p.scale = 5;  // is nothing to it
  p.approximate("linear");
  Matrices<long double> in;
  for (const SlowArray a : {SlowArray::Q, SlowArray::K, SlowArray::V})
    in[a] = Matrix<long double>({a == SlowArray::Q ? 1 : 2, 1});
  in[SlowArray::Q].words = {-1};
  in[SlowArray::K].words = {2, -1};  // features 3 and 1/e
  in[SlowArray::V].words = {10, 20};
  const double o = static_cast<double>(Dense<long double>(p, in).forward().at(SlowArray::O).words[0]);
  EXPECT_NEAR(o, (3 * 10 + std::exp(-1.0) * 20) / (3 + std::exp(-1.0)), 1e-14);
}

/// A row counts itself only where there is nothing else: of two rows each takes the value of the other, of one its own.
TEST(DenseMethods, ReformerByHand) {
  for (const index_t n : {1, 2}) {
    Problem p = square(n);
    p.approximate("reformer:rounds=2,chunk=1,buckets=2");
    const Matrices<long double> in = inputs(p, 1);
    const auto o = Dense<long double>(p, in).forward().at(SlowArray::O);
    for (index_t i = 0; i < n; ++i)
      for (index_t t = 0; t < 3; ++t)
        EXPECT_NEAR(static_cast<double>(o(i, t)), static_cast<double>(in.at(SlowArray::V)(n - 1 - i, t)), 1e-15);
  }
}

/// With one key and one row, V' is V or -V.
TEST(DenseMethods, LinformerWithRandomSignsByHand) {
  Problem p = square(1);
  p.approximate("linformer:1,signs,seed=4");
  const Matrices<long double> in = inputs(p, 1);
  const auto o = Dense<long double>(p, in).forward().at(SlowArray::O);
  const double sign = random_sign_is_negative(4, 0, 0) ? -1 : 1;
  for (std::size_t t = 0; t < 3; ++t)
    EXPECT_NEAR(static_cast<double>(o.words[t]), sign * static_cast<double>(in.at(SlowArray::V).words[t]), 1e-15);
}

TEST(DenseMethods, CoresetsAreExactWhereEachKeyIsChosen) {
  EXPECT_LT(distance(square(12), "coreset:block=12,rank=12", 2), 1e-14);
  EXPECT_LT(distance(square(12), "coreset:block=5,rank=5,tau=balanced,seed=3", 2), 1e-14);
  EXPECT_LT(distance(square(12), "coreset:block=5,rank=12,carried,seed=3", 2), 1e-14);
  EXPECT_GT(distance(square(12), "coreset:block=12,rank=11", 2), 1e-6);
}

namespace {

/// One query and two keys: 1 and 0, at 1/2 on either side of their mean.
double o_of_two_keys(Problem p, double q) {
  p.n_q = 1;
  p.n_k = 2;
  p.d = p.d_v = 1;
  Matrices<long double> in;
  for (const SlowArray a : {SlowArray::Q, SlowArray::K, SlowArray::V})
    in[a] = Matrix<long double>({a == SlowArray::Q ? 1 : 2, 1});
  in[SlowArray::Q].words = {static_cast<long double>(q)};
  in[SlowArray::K].words = {1, 0};
  in[SlowArray::V].words = {10, 20};
  return static_cast<double>(Dense<long double>(p, in).forward().at(SlowArray::O).words[0]);
}

}  // namespace

/// One of two keys stands for both, for the other with the weight exp(kappa (x.x' - x.x)) = exp(-kappa / 2).
TEST(DenseMethods, CoresetsByHand) {
  for (const auto& [text, kappa] :
       {std::pair("coreset:block=2,rank=1", 1.5), {"coreset:block=2,rank=1,tau=balanced", 3.0}})
    for (index_t seed = 0; seed < 8; ++seed) {
      Problem p;
      p.scale = 1.5;
      p.approximate(fmt::format("{},seed={}", text, seed));
      const bool first = pivot_draw(seed, 0, 0) < 0.5;  // both are as likely
      const double w = std::exp(-kappa / 2), own = first ? 10 : 20, other = first ? 20 : 10;
      EXPECT_NEAR(o_of_two_keys(p, 2), (own + w * other) / (1 + w), 1e-14) << text << ' ' << seed;
    }
}

/// Keys that are alike are known as soon as one of them is chosen.
TEST(DenseMethods, CoresetsChooseEachOfEqualKeysOnce) {
  Problem p = square(12);
  Matrices<long double> in = inputs(p, 1);
  Matrix<long double>& K = in.at(SlowArray::K);
  for (index_t j = 4; j < 12; ++j)
    for (index_t t = 0; t < p.d; ++t) K(j, t) = K(j % 4, t);
  const auto exact = Dense<long double>(p, in).forward().at(SlowArray::O);
  for (const char* text : {"coreset:block=12,rank=7", "coreset:block=4,rank=7,carried", "coreset:block=6,rank=5"}) {
    p.approximate(text);
    const auto ours = Dense<long double>(p, in).forward().at(SlowArray::O);
    for (std::size_t k = 0; k < ours.words.size(); ++k)
      EXPECT_NEAR(static_cast<double>(ours.words[k]), static_cast<double>(exact.words[k]), 1e-14) << text;
  }
}

/// The first pivot of three keys, over many seeds, told by which value stands for all: as often as exp(kappa |x|^2)
/// says.
TEST(DenseMethods, CoresetsDrawByTheResidual) {
  Problem p;
  p.n_q = 1;
  p.n_k = 3;
  p.d = p.d_v = 1;
  p.scale = 0.5;
  Matrices<long double> in;
  in[SlowArray::Q] = Matrix<long double>({1, 1});
  in[SlowArray::K] = in[SlowArray::V] = Matrix<long double>({3, 1});
  in[SlowArray::K].words = {2, 0, -1};
  in[SlowArray::V].words = {0, 1, 100};
  std::map<double, double> times;
  constexpr index_t kSeeds = 4000;
  for (index_t seed = 0; seed < kSeeds; ++seed) {
    p.approximate(fmt::format("coreset:block=3,rank=1,seed={}", seed));
    times[static_cast<double>(Dense<long double>(p, in).forward().at(SlowArray::O).words[0])] += 1.0 / kSeeds;
  }
  std::vector<double> wanted, found;
  for (const double x : {5.0 / 3, -1.0 / 3, -4.0 / 3}) wanted.push_back(std::exp(0.5 * x * x));
  const double all = wanted[0] + wanted[1] + wanted[2];
  for (double& w : wanted) w /= all;
  for (const auto& [o, share] : times) found.push_back(share);
  std::ranges::sort(wanted);
  std::ranges::sort(found);
  ASSERT_EQ(found.size(), 3U);
  for (std::size_t i = 0; i < 3; ++i) EXPECT_NEAR(found[i], wanted[i], 0.025);
}

}  // namespace redblue::test
