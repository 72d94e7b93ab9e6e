#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <map>

#include "redblue/methods/certificate.hpp"
#include "redblue/methods/maths/approximations.hpp"
#include "runtime/drawn.hpp"
#include "support/cases.hpp"

/// No certificate is violated, whatever the tensors: thousands of small cases, drawn to be hard. Exact attention is
/// computed here, in long double, from the numbers as stored. REDBLUE_CERTIFICATE_CASES sets how many.
namespace redblue::test {
namespace {

/// Polynomials of every fit; those of one in eight cases are made for the tensors at hand.
std::shared_ptr<const Polynomial> drawn_polynomial(DrawOfCase& draw) {
  static std::map<std::tuple<Fit, index_t, double>, std::shared_ptr<const Polynomial>> made;
  for (;;) {
    const Fit fit = draw.one_in(4) ? draw.of(std::array{Fit::taylor, Fit::chebyshev}) : Fit::minimax;
    const index_t degree = draw.number(1, 7);
    const double range = draw.of(std::array{0.001, 0.03, 0.2, 0.5, 1.0, 2.0, 3.5, 6.0});
    auto& p = made[{fit, degree, range}];
    if (p == nullptr) p = std::make_shared<const Polynomial>(near_exp(fit, degree, range));
    if (p->error < 1) return p;
  }
}

DrawnCase drawn_case(DrawOfCase& draw) {
  Problem p = drawn_problem(draw);
  p.approximation = drawn_polynomial(draw);
  DrawnCase c = drawn_tensors(draw, p);
  // The range comes near that of the polynomial, or a little beyond; keys are as large as they may be, or tiny.
  const double range = polynomial_of(p)->range * draw.real(0.3, draw.one_in(8) ? 1.3 : 0.999);
  const double most = c.type == DType::f16 ? 12 : 40;
  scale_scores(draw, c, range, most);
  scale_values(draw, c, most);
  if (draw.one_in(200)) scale_all(c.v, c.type == DType::f64 ? 1e-310 : 1e-40);
  store(draw, c);
  return c;
}

struct HeldTotals {
  index_t cases = 0, heads = 0, with_rounding = 0, in_error = 0;
  double nearest = 0, nearest_exact = 0;  ///< the largest error of a head over what is proved
  struct Decade {
    index_t heads = 0;
    double largest = 0, sum = 0;
  };
  std::map<int, Decade> decades;  ///< of output_error: errors of the polynomial alone, in exact arithmetic
};

/// Compares one head of a run with its certificate.
void expect_holds(const DrawnCase& c, const Doubles& q, const Doubles& k, const Doubles& v, const Doubles& o,
                  const HeadCertificate& h, HeldTotals& totals) {
  const Problem& p = c.p;
  const Polynomial& polynomial = *polynomial_of(p);
  const index_t kv = p.kv_heads.value_or(p.heads);
  const index_t of_q = (h.batch * p.heads + h.head) * p.n_q, of_k = (h.batch * kv + h.head / p.group()) * p.n_k;
  const double* const V = v.data() + of_k * p.d_v;
  HeadErrors errors;
  Real moved = 0;
  for (index_t i = 0; i < p.n_q; ++i) {
    const index_t seen =
        p.causal ? std::clamp<index_t>(i + p.causal_offset.value_or(p.n_k - p.n_q) + 1, 0, p.n_k) : p.n_k;
    std::vector<Real> z(static_cast<std::size_t>(seen));
    for (index_t j = 0; j < seen; ++j) {
      Real dot = 0;
      for (index_t t = 0; t < p.d; ++t)
        dot += static_cast<Real>(q[static_cast<std::size_t>((of_q + i) * p.d + t)]) *
               k[static_cast<std::size_t>((of_k + j) * p.d + t)];
      const Real s = static_cast<Real>(p.scale_or_default()) * dot;
      z[static_cast<std::size_t>(j)] = s;
      EXPECT_LE(std::abs(s), h.range);
      moved = std::max(moved, std::abs(polynomial(s) * std::exp(-s) - 1));
    }
    const auto exact = outputs_of(p, z, V, [](Real s) { return std::exp(s); });
    const auto near = outputs_of(p, z, V, [&](Real s) { return polynomial(s); });
    errors.add(o.data() + (of_q + i) * p.d_v, exact, near);
  }
  const Real here = 1e-16L;  // of this computation, in long double, where p may cancel
  EXPECT_LE(moved, h.weight_error + here);
  ++totals.heads;
  if (!(h.weight_error < 1)) return;
  ++totals.in_error;
  EXPECT_LE(errors.of_polynomial, h.output_error + here * h.largest_v);
  if (h.output_error > 1e-12 * h.largest_v) {
    const double share = static_cast<double>(errors.of_polynomial / h.output_error);
    totals.nearest_exact = std::max(totals.nearest_exact, share);
    HeldTotals::Decade& decade = totals.decades[static_cast<int>(std::floor(std::log10(h.relative())))];
    ++decade.heads;
    decade.sum += share;
    decade.largest = std::max(decade.largest, share);
  }
  if (!std::isfinite(h.rounding)) return;
  ++totals.with_rounding;
  EXPECT_LE(errors.of_run, h.output_error + h.rounding + here * h.largest_v);
  if (h.rounding > 0)
    totals.nearest = std::max(totals.nearest, static_cast<double>(errors.of_run / (h.output_error + h.rounding)));
}

void run_case(std::uint64_t seed, HeldTotals& totals) {
  DrawOfCase draw(seed);
  DrawnCase c = drawn_case(draw);
  if (draw.one_in(64)) {
    const auto least = least_polynomial(norms_of(c.p, c.inputs(), c.compute), std::pow(10, -draw.real(1, 6)));
    if (least) c.p.approximation = std::make_shared<const Polynomial>(*least);
  }
  const Certificate proved = certify(c.p, c.inputs(), c.compute);
  const plan::Plan plan = drawn_plan(draw, c.p);
  RunOptions options;
  options.compute = c.compute;
  options.threads = 1;
  run(plan, tensors_of(c.inputs(), {c.arrays[3].tensor(), {}}), options);
  const Doubles q = c.arrays[0].get(), k = c.arrays[1].get(), v = c.arrays[2].get(), o = c.arrays[3].get();
  for (const HeadCertificate& h : proved.heads) expect_holds(c, q, k, v, o, h, totals);
  ++totals.cases;
}

}  // namespace

TEST(CertificatesHold, OnGeneratedCases) {
  const char* const asked = std::getenv("REDBLUE_CERTIFICATE_CASES");
  const int all = asked != nullptr ? std::atoi(asked) : cases(2'500);
  HeldTotals totals;
  for (int n = 0; n < all && !HasFailure(); ++n) {
    SCOPED_TRACE(fmt::format("case {}", n));
    run_case(static_cast<std::uint64_t>(n), totals);
  }
  EXPECT_EQ(totals.cases, all);
  // The cases are hard, and not so hard that nothing is proved.
  EXPECT_GT(totals.in_error, totals.heads * 8 / 10);
  EXPECT_GT(totals.with_rounding, totals.heads / 2);
  if (all > 1000) {  // among which some come near to what is proved
    EXPECT_GT(totals.nearest_exact, 0.8);
    EXPECT_GT(totals.nearest, 0.5);
  }
  fmt::print(
      "{} cases, {} heads; an error below all of a weight proved in {}, roundings bounded in {}; error of a run "
      "over what is proved, with roundings: at most {:.3f}\n",
      totals.cases, totals.heads, totals.in_error, totals.with_rounding, totals.nearest);
  for (const auto& [power, decade] : totals.decades)
    fmt::print("proved 1e{} to 1e{}: {} heads, measured / proved: at most {:.3f}, mean {:.3f}\n", power, power + 1,
               decade.heads, decade.largest, decade.sum / static_cast<double>(decade.heads));
}

}  // namespace redblue::test
