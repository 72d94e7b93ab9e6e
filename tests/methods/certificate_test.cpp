#include "redblue/methods/certificate.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "redblue/language/error.hpp"
#include "redblue/methods/maths/approximations.hpp"
#include "redblue/verify/verify.hpp"
#include "runtime/arrays.hpp"
#include "runtime/filled.hpp"
#include "runtime/plans.hpp"
#include "runtime/problems.hpp"
#include "support/generators.hpp"

namespace redblue::test {
namespace {

enum class Norms : std::uint8_t { normal, aligned, repeated, dominant, constant_values, zero_keys };
constexpr std::array kShapes{Norms::normal,   Norms::aligned,         Norms::repeated,
                             Norms::dominant, Norms::constant_values, Norms::zero_keys};

/// q, k, v of this shape, scaled so that the certified range is about `range`. `size`: that of keys, which queries make
/// up for.
struct CertifiedCase {
  Problem p;
  Array q, k, v, o;

  CertifiedCase(Problem problem, DType type, Strides strides, Norms shape, double range, double size,
                std::uint64_t seed)
      : p(std::move(problem)),
        q(type, shape_of(p, SlowArray::Q), strides),
        k(type, shape_of(p, SlowArray::K), strides),
        v(type, shape_of(p, SlowArray::V), strides),
        o(type, shape_of(p, SlowArray::O), strides) {
    std::mt19937_64 random(seed);
    const index_t d = p.d, keys = p.n_k, kv = p.kv_heads.value_or(p.heads);
    std::vector<double> of_q = normal(p.batch * p.heads * p.n_q * d, random),
                        of_k = normal(p.batch * kv * keys * d, random),
                        of_v = normal(p.batch * kv * keys * p.d_v, random);
    const std::vector<double> direction(of_k.begin(), of_k.begin() + d);
    const auto each = [d](std::vector<double>& rows, const auto& f) {
      for (std::size_t i = 0; i < rows.size(); ++i)
        f(rows[i], static_cast<index_t>(i) / d, static_cast<index_t>(i) % d);
    };
    const auto along = [&](double& x, index_t row, index_t t) {
      x = (row % 2 == 0 ? 1 : -1) * direction[static_cast<std::size_t>(t)];
    };
    if (shape == Norms::aligned) each(of_q, along), each(of_k, along);  // scores reach the range, and minus the range
    if (shape == Norms::repeated)
      each(of_k, [&](double& x, index_t, index_t t) { x = direction[static_cast<std::size_t>(t)]; });
    if (shape == Norms::dominant) each(of_k, [](double& x, index_t row, index_t) { x *= row % 5 == 0 ? 1 : 1e-4; });
    if (shape == Norms::constant_values) std::fill(of_v.begin(), of_v.end(), 0.75);
    if (shape == Norms::zero_keys) std::fill(of_k.begin(), of_k.end(), 0.0);
    const auto longest = [d](const std::vector<double>& rows) {
      double most = 0;
      for (std::size_t i = 0; i < rows.size(); i += static_cast<std::size_t>(d)) {
        double square = 0;
        for (index_t t = 0; t < d; ++t)
          square += rows[i + static_cast<std::size_t>(t)] * rows[i + static_cast<std::size_t>(t)];
        most = std::max(most, square);
      }
      return most > 0 ? std::sqrt(most) : 1;
    };
    const double scale_k = size / longest(of_k),
                 scale_q = range / (longest(of_q) * size * (p.scale_or_default() == 0 ? 1 : p.scale_or_default()));
    for (double& x : of_k) x *= scale_k;
    for (double& x : of_q) x *= scale_q;
    q.set(of_q), k.set(of_k), v.set(of_v);
  }
  Inputs inputs() { return {q.tensor(), k.tensor(), v.tensor()}; }
};

/// No number of the certificate is below what a run, and scores in long double, show.
void expect_holds(CertifiedCase& c, DType compute, double tolerance) {
  const Certificate norms = norms_of(c.p, c.inputs(), compute);
  const auto polynomial = least_polynomial(norms, tolerance);
  ASSERT_TRUE(polynomial) << "range " << norms.range();
  c.p.approximation = std::make_shared<const Polynomial>(*polynomial);
  const Certificate proved = certify(c.p, c.inputs(), compute);
  EXPECT_LE(proved.output_error(), tolerance);
  EXPECT_LE(proved.range(), polynomial_of(c.p)->range);
  if (polynomial->degree() > 1) {  // a smaller degree does not prove it
    EXPECT_FALSE(least_polynomial(norms, tolerance, polynomial->degree() - 1));
  }

  const plan::Plan plan = plan::make_plan(c.p, {.M = 100'000});
  const Tensors t = tensors_of(c.inputs(), {c.o.tensor(), {}});
  RunOptions options;
  options.compute = compute;
  options.threads = 1;
  run(plan, t, options);
  const Verification v = verify(c.p, t, compute, roundings_of(plan));
  ASSERT_TRUE(v.nearness);
  EXPECT_LE(v.nearness->largest_score, proved.range());
  ASSERT_EQ(v.nearness->distances.size(), proved.heads.size());
  for (std::size_t h = 0; h < proved.heads.size(); ++h) {
    const HeadCertificate& head = proved.heads[h];
    if (std::isfinite(head.rounding)) {
      EXPECT_LE(v.nearness->distances[h], head.output_error + head.rounding) << "head " << h;
    }
    EXPECT_LE(head.output_error, 2 * head.weight_error / (1 - head.weight_error) * head.largest_v);
    for (int s = -50; s <= 50; ++s) {
      const auto z = static_cast<long double>(head.range) * s / 50;
      EXPECT_LE(std::abs((*polynomial)(z)*std::exp(-z) - 1), static_cast<long double>(head.weight_error)) << s;
    }
  }
}

}  // namespace

TEST(Certificates, HoldOnGeneratedCases) {
  std::mt19937_64 random(11);
  const std::vector<Problem> problems{problem(9, 12, 4, 3),          problem(5, 7, 1, 1),
                                      problem(1, 1, 3, 2),           with_heads(problem(6, 8, 3, 4), 2, 4, 2),
                                      causal(problem(8, 8, 4, 3)),   causal(with_heads(problem(5, 9, 2, 3), 1, 2, 1)),
                                      causal(problem(4, 1, 3, 2), 0)};
  std::size_t n = 0;
  for (const Problem& p : problems)
    for (const Norms shape : kShapes)
      for (const double range : {0.01, 0.7, 2.5})
        for (const DType type : {DType::f64, DType::f32, DType::bf16}) {
          const double size = std::array{1.0, 1e-3, 1e5, 1e-18}[n % 4];
          const double tolerance = std::array{1e-1, 1e-2, 1e-3}[n / 3 % 3];
          SCOPED_TRACE("case " + std::to_string(n) + " " + std::string(name_of(type)));
          CertifiedCase c(p, type, kAllStrides[n / 2 % 4], shape, range, size, n);
          expect_holds(c, type == DType::f64 ? DType::f64 : DType::f32, tolerance);
          ++n;
        }
}

/// The scale of a problem, its sign included, is part of the range.
TEST(Certificates, KnowTheScale) {
  for (const double scale : {-1.0, 1e-30, 1e20, 0.0}) {
    Problem p = problem(6, 7, 3, 2);
    p.scale = scale;
    CertifiedCase c(p, DType::f64, Strides::bhsd, Norms::normal, scale == 0 ? 0 : std::copysign(1.0, scale), 1, 3);
    expect_holds(c, DType::f64, 1e-3);
  }
}

/// Norms whose squares overflow, or vanish.
TEST(Certificates, RoundNormsUp) {
  for (const double size : {1e300, 1.0, 1e-300, 0.0}) {
    Problem p = problem(1, 1, 2, 1);
    Array q(DType::f64, {1, 1, 1, 2}, Strides::bhsd), k = q, v(DType::f64, {1, 1, 1, 1}, Strides::bhsd);
    q.set({3 * size, 4 * size}), k.set({0, 0}), v.set({-2});
    const Certificate c = norms_of(p, {q.tensor(), k.tensor(), v.tensor()}, DType::f64);
    EXPECT_GE(c.heads[0].largest_q, 5 * size);
    EXPECT_LE(c.heads[0].largest_q, 5 * size * (1 + 1e-14));
    EXPECT_EQ(c.heads[0].range, 0);
    EXPECT_EQ(c.heads[0].largest_v, 2);
    EXPECT_EQ(c.heads[0].spread, 0);
  }
}

/// A mean under weights that are off by a share e of themselves moves by moved_share(e) at most, and by as much in the
/// worst case: two values, of which the upper has the weight 1 / (1 + sqrt((1 + e) / (1 - e))).
TEST(Certificates, MovedShareIsTheWorstCase) {
  for (const double e : {1e-12, 1e-6, 1e-3, 0.1, 0.5, 0.99}) {
    const double r = std::sqrt((1 + e) / (1 - e)), P = 1 / (1 + r), share = moved_share(e);
    const double moved = P * (1 + e) / (P * (1 + e) + (1 - P) * (1 - e)) - P;
    EXPECT_NEAR(moved / share, 1, 1e-3 + 1e-15 / e);
    EXPECT_LE(moved, share + 1e-15);
    EXPECT_LE(share, e / (1 - e));
  }
  EXPECT_TRUE(std::isinf(moved_share(1)));
}

/// Weights that may be off by all of themselves may add up to nothing, also over one key, and over values that are all
/// the same: 0 in place of them then.
TEST(Certificates, ProveNothingWhereWeightsMayAddUpToNothing) {
  for (const char* how : {"1:0.5", "1:0.5,no-exact-rows"})
    for (const double value : {3.0, 0.0}) {
      Problem p = problem(1, 2, 1, 1);
      p.scale = 1;
      p.approximate(how);
      Array q(DType::f64, {1, 1, 1, 1}, Strides::bhsd), k(DType::f64, {1, 1, 2, 1}, Strides::bhsd), v = k;
      q.set({1}), k.set({-1.3819767068693265, -0.7819767068693265}), v.set({value, value});
      const Certificate c = certify(p, {q.tensor(), k.tensor(), v.tensor()}, DType::f64);
      EXPECT_GE(c.heads[0].weight_error, 1) << how;
      EXPECT_TRUE(std::isinf(c.heads[0].output_error)) << how;
      EXPECT_TRUE(std::isinf(c.output_error())) << how;
      EXPECT_TRUE(std::isinf(c.rounding())) << how;
    }
}

TEST(Certificates, SayWhereNothingIsProved) {
  CertifiedCase wide(problem(4, 4, 3, 2), DType::f64, Strides::bhsd, Norms::normal, 40, 1, 1);
  EXPECT_FALSE(least_polynomial(norms_of(wide.p, wide.inputs(), DType::f64), 1e-3));
  EXPECT_FALSE(least_polynomial(65.0, 1e-3));
  EXPECT_FALSE(least_polynomial(2.0, 1e-12));
  EXPECT_TRUE(least_polynomial(0.5, 1e-3));
  EXPECT_THROW(certify(wide.p, wide.inputs()), InvalidProblem);  // no approximation
  wide.p.approximation = approximate_exp(2, 1);
  const Certificate beyond = certify(wide.p, wide.inputs(), DType::f64);
  EXPECT_GT(beyond.heads[0].weight_error, 1);
  EXPECT_TRUE(std::isinf(beyond.output_error()));
  EXPECT_THROW(certify(wide.p, wide.inputs(), DType::bf16), Unsupported);
  wide.p.approximation = nullptr;
  wide.v.set(std::vector<double>(8, NAN));
  EXPECT_THROW(norms_of(wide.p, wide.inputs()), InvalidProblem);
  wide.p.op = Operation::backward;
  EXPECT_THROW(norms_of(wide.p, wide.inputs()), Unsupported);
}

}  // namespace redblue::test
