#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>

#include "redblue/methods/certificate.hpp"
#include "redblue/methods/maths/approximations.hpp"
#include "runtime/drawn.hpp"
#include "support/cases.hpp"

/// No certificate of polynomials of each row is violated: as certificates_hold_test.cpp, with rows of very different
/// lengths, keys less their mean, exact keys and exact rows. REDBLUE_CERTIFICATE_CASES sets how many.
namespace redblue::test {
namespace {

Problem problem_of_rows(DrawOfCase& draw) {
  Problem p = drawn_problem(draw);
  RowOptions how;
  how.centred = draw.one_in(2);
  how.exact_keys = draw.of(std::array{0, 0, 1, 2, 3, 9});
  how.exact_rows = !draw.one_in(10);
  // A grid of polynomials takes 64 fits: cases share them.
  const auto [degree, range] = draw.of(std::array{std::pair{1, 0.4}, std::pair{2, 1.0}, std::pair{3, 2.5}});
  if (degree < 3 && draw.one_in(4)) how.fit = draw.of(std::array{Fit::taylor, Fit::chebyshev});  // off by less than 1
  p.approximation = polynomials_of_rows(degree, range, how);
  return p;
}

DrawnCase drawn_row_case(DrawOfCase& draw) {
  DrawnCase c = drawn_tensors(draw, problem_of_rows(draw));
  const Problem& p = c.p;
  if (draw.one_in(2)) {  // a common part, which is centred away
    const double common = std::exp2(draw.real(-3, 6));
    for (std::size_t e = 0; e < c.k.size(); ++e) c.k[e] += common * c.direction[e % static_cast<std::size_t>(p.d)];
  }
  const double range = polynomial_of(p)->range * std::exp2(draw.real(-1, 5)), most = c.type == DType::f16 ? 12 : 30;
  scale_scores(draw, c, range, most);
  if (draw.one_in(2))  // from rows that are far within the range to some beyond it
    for (std::size_t e = 0; e < c.q.size(); ++e) c.q[e] *= std::exp2(-static_cast<double>(e / p.d % 5));
  scale_values(draw, c, most);
  store(draw, c);
  return c;
}

struct RowTotals {
  index_t cases = 0, heads = 0, proved = 0, with_rounding = 0, exact = 0, rows = 0, masked = 0, pairs = 0;
  double nearest = 0, nearest_exact = 0;  ///< the largest error of a head over what is proved
};

/// How many keys query i sees.
index_t count_seen(const Problem& p, index_t i) {
  return p.causal ? std::clamp<index_t>(i + p.causal_offset.value_or(p.n_k - p.n_q) + 1, 0, p.n_k) : p.n_k;
}

/// The first `seen` keys of one key-value head in long double: less the mean of those that a query sees, and which of
/// them are exact.
struct WideKeys {
  std::vector<std::vector<Real>> keys;
  std::vector<bool> exact;
  Real longest = 0;

  WideKeys(const Problem& p, const double* k, index_t seen) {
    const RowPolynomials& how = *row_polynomials_of(p);
    const auto d = static_cast<std::size_t>(p.d), all = static_cast<std::size_t>(count_seen(p, p.n_q - 1)),
               n = static_cast<std::size_t>(seen);
    keys.reserve(all);
    for (std::size_t j = 0; j < all; ++j) keys.emplace_back(k + j * d, k + (j + 1) * d);
    for (std::size_t t = 0; how.centred && t < d; ++t) {
      Real mean = 0;
      for (const auto& key : keys) mean += key[t] / static_cast<Real>(all);
      for (auto& key : keys) key[t] -= mean;
    }
    keys.resize(n);
    std::vector<std::pair<Real, std::size_t>> order;
    order.reserve(n);
    for (std::size_t j = 0; j < n; ++j) order.emplace_back(-std::sqrt(product(keys[j], keys[j])), j);
    std::sort(order.begin(), order.end());
    exact.assign(n, false);
    for (std::size_t h = 0; h < n; ++h)
      if (h < static_cast<std::size_t>(how.exact_keys))
        exact[order[h].second] = true;
      else
        longest = std::max(longest, -order[h].first);
  }
  static Real product(const std::vector<Real>& a, const std::vector<Real>& b) {
    Real sum = 0;
    for (std::size_t t = 0; t < a.size(); ++t) sum += a[t] * b[t];
    return sum;
  }
};

void expect_head_holds(const DrawnCase& c, const Doubles& q, const Doubles& k, const Doubles& v, const Doubles& o,
                       const HeadCertificate& h, RowTotals& totals) {
  const Problem& p = c.p;
  const RowPolynomials& fits = *row_polynomials_of(p);
  const index_t kv = p.kv_heads.value_or(p.heads);
  const index_t of_q = (h.batch * p.heads + h.head) * p.n_q, of_k = (h.batch * kv + h.head / p.group()) * p.n_k;
  const double* const V = v.data() + of_k * p.d_v;
  const Real here = 1e-15L, scale = static_cast<Real>(p.scale_or_default());
  HeadErrors errors;
  Real moved = 0;
  index_t beyond = 0;
  for (index_t i = 0; i < p.n_q; ++i) {
    const WideKeys wide(p, k.data() + of_k * p.d, count_seen(p, i));
    EXPECT_LE(wide.longest, h.longest * (1 + here));
    const std::vector<Real> query(q.data() + (of_q + i) * p.d, q.data() + (of_q + i + 1) * p.d);
    const Real radius = std::abs(scale) * std::sqrt(WideKeys::product(query, query)) * wide.longest;
    const bool exact_row = fits.exact_rows && radius > fits.range();
    beyond += exact_row ? 1 : 0;
    const Real number = std::ceil(radius / static_cast<Real>(fits.step())) - 1;
    const Polynomial& polynomial =
        fits[static_cast<index_t>(std::clamp(number, Real(0), static_cast<Real>(fits.steps() - 1)))];
    std::vector<Real> z(wide.keys.size()), near(wide.keys.size());
    for (std::size_t j = 0; j < z.size(); ++j) {
      z[j] = scale * WideKeys::product(query, wide.keys[j]);
      const bool exact = exact_row || wide.exact[j];
      near[j] = exact ? z[j] : std::log(std::max(polynomial(z[j]), Real(1e-4000L)));
      if (!exact) moved = std::max(moved, std::abs(polynomial(z[j]) * std::exp(-z[j]) - 1));
    }
    const Real top = z.empty() ? 0 : *std::max_element(z.begin(), z.end());
    const auto weight = [top](Real s) { return std::exp(s - top); };
    const auto exact = outputs_of(p, z, V, weight), ours = outputs_of(p, near, V, weight);
    errors.add(o.data() + (of_q + i) * p.d_v, exact, ours);
  }
  ++totals.heads;
  totals.exact += beyond;
  totals.rows += p.n_q;
  totals.masked += p.causal ? p.n_q : 0;
  EXPECT_LE(beyond, h.exact_rows);
  if (!std::isfinite(h.weight_error)) return;
  EXPECT_LE(moved, h.weight_error + here);
  ++totals.proved;
  EXPECT_LE(errors.of_polynomial, h.output_error + here * h.largest_v);
  if (h.output_error > 1e-12 * h.largest_v)
    totals.nearest_exact = std::max(totals.nearest_exact, static_cast<double>(errors.of_polynomial / h.output_error));
  if (!std::isfinite(h.rounding)) return;
  ++totals.with_rounding;
  EXPECT_LE(errors.of_run, h.output_error + h.rounding + here * h.largest_v);
  if (h.rounding > 0)
    totals.nearest = std::max(totals.nearest, static_cast<double>(errors.of_run / (h.output_error + h.rounding)));
}

void run_row_case(std::uint64_t seed, RowTotals& totals) {
  DrawOfCase draw(seed);
  DrawnCase c = drawn_row_case(draw);
  const Certificate proved = certify(c.p, c.inputs(), c.compute);
  const plan::Plan plan = drawn_plan(draw, c.p);
  RunOptions options;
  options.compute = c.compute;
  options.threads = 1;
  const Measured measured = run(plan, tensors_of(c.inputs(), {c.arrays[3].tensor(), {}}), options);
  const Doubles q = c.arrays[0].get(), k = c.arrays[1].get(), v = c.arrays[2].get(), o = c.arrays[3].get();
  for (const HeadCertificate& h : proved.heads) expect_head_holds(c, q, k, v, o, h, totals);
  if (std::isfinite(proved.rounding())) {
    EXPECT_LE(measured.decisions.worst, proved.exact_rows());
  }
  totals.pairs += plan.row().schedule == "polynomial_pairs" ? 1 : 0;
  ++totals.cases;
}

}  // namespace

TEST(CertificatesHold, OfPolynomialsOfEachRow) {
  const char* const asked = std::getenv("REDBLUE_CERTIFICATE_CASES");
  const int all = asked != nullptr ? std::atoi(asked) : cases(1000);
  RowTotals totals;
  for (int n = 0; n < all && !HasFailure(); ++n) {
    SCOPED_TRACE(fmt::format("case {}", n));
    run_row_case(static_cast<std::uint64_t>(n), totals);
  }
  EXPECT_EQ(totals.cases, all);
  // The cases are hard, and not so hard that nothing is proved; rows are of both kinds.
  EXPECT_GT(totals.proved, 0);
  EXPECT_GT(totals.with_rounding, 0);
  EXPECT_GT(totals.exact, 0);
  EXPECT_LT(totals.exact, totals.rows);
  if (all > 400) {  // few cases have shares of their own
    EXPECT_GT(totals.proved, totals.heads * 8 / 10);
    EXPECT_GT(totals.with_rounding, totals.heads / 3);
    EXPECT_GT(totals.exact, totals.rows / 15);  // the first rows under a mask see short keys only
    EXPECT_LT(totals.exact, totals.rows * 9 / 10);
    EXPECT_GT(totals.nearest_exact, 0.5);  // some come near to what is proved
    EXPECT_GT(totals.masked, totals.rows / 5);
    EXPECT_GT(totals.pairs, all / 80);  // exact keys do not fit in fast memory
  }
  fmt::print(
      "{} cases, {} by polynomial_pairs, {} heads; errors proved in {}, roundings in {}; {} of {} rows exact; at most "
      "{:.3f} of what is proved "
      "in exact arithmetic, {:.3f} with roundings\n",
      totals.cases, totals.pairs, totals.heads, totals.proved, totals.with_rounding, totals.exact, totals.rows,
      totals.nearest_exact, totals.nearest);
}

}  // namespace redblue::test
