#include "redblue/methods/regimes.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "redblue/language/error.hpp"
#include "redblue/methods/maths/polynomial.hpp"
#include "redblue/methods/schedules/parts/polynomial_groups.hpp"

namespace redblue::plan {

namespace {

/// Words depend on the degree alone; in this range every degree has an error below 1.
constexpr double kAnyRange = 0.125;
constexpr index_t kMostTokens = index_t{1} << 32;
constexpr double kMostRange = 64;

std::optional<Plan> plan_under(const Problem& p, Words M) {
  Options o;
  o.M = M;
  try {
    return make_plan(p, o);
  } catch (const CapacityError&) {
    return std::nullopt;
  }
}

std::optional<Moved> moved(const std::optional<Plan>& plan) {
  if (!plan) return std::nullopt;
  return Moved{without_lse(plan->io(), plan->problem).total(), std::string(plan->row().schedule)};
}

/// The same problem of n queries and keys, or nothing where it would be another problem.
std::optional<Problem> of_length(Problem p, index_t n) {
  if (p.n_q != p.n_k || !p.patterns.empty() || !p.cu_seqlens_q.empty()) return std::nullopt;
  p.n_q = p.n_k = n;
  return p;
}

std::optional<index_t> break_even(const Problem& exact, const Problem& approximate, Words M) {
  if (!of_length(exact, 1)) return std::nullopt;
  const auto wins = [&](index_t n) {
    const auto a = moved(plan_under(*of_length(approximate, n), M)), e = moved(plan_under(*of_length(exact, n), M));
    return a && e && a->words <= e->words;
  };
  index_t above = 1;
  while (above < kMostTokens && !wins(above)) above *= 2;
  if (above >= kMostTokens) return std::nullopt;
  for (index_t below = above / 2; above - below > 1;) {
    const index_t middle = below + (above - below) / 2;
    (wins(middle) ? above : below) = middle;
  }
  return above;
}

}  // namespace

Io without_lse(Io io, const Problem& p) {
  Words& lse = io.writes[index_of(SlowArray::lse)];
  lse = lse - std::min(lse, Words(p.batch) * p.heads * p.n_q);
  return io;
}

namespace {

void require_degree(index_t degree) {
  constexpr index_t kMost = kernel::Monomials::kMostDegree;
  if (degree < 1 || degree > kMost)
    throw InvalidProblem(
        fmt::format("degree = {} of a polynomial: schedules take degrees from 1 to {}", degree, kMost));
}

}  // namespace

Regime regime(const Problem& problem, Words M, index_t degree) {
  require_degree(degree);
  Problem exact = problem, approximate = problem;
  exact.approximation = nullptr;
  approximate.approximation = approximate_exp(degree, kAnyRange);
  Regime r{exact, M, degree, monomials(problem.d, degree), {}, {}, {}, {}};
  r.exact = moved(plan_under(exact, M));
  if (const auto plan = plan_under(approximate, M)) {
    r.approximate = moved(plan);
    r.bound = plan->bound;
    for (const bound::Bound& b : plan->bounds)
      if (b.holds && b.name == "polynomial state" && b.words > r.bound.words) r.bound = b;
  }
  if (r.exact && r.approximate) r.break_even = break_even(exact, approximate, M);
  return r;
}

double largest_range(index_t degree, double tolerance) {
  require_degree(degree);
  if (!(tolerance > 0 && tolerance < 1))
    throw InvalidProblem(fmt::format(
        "tolerance {}: give a number above 0 and below 1, the largest relative error of a weight", tolerance));
  const auto proved = [&](double range) { return near_exp(Fit::minimax, degree, range).error <= tolerance; };
  double below = 0, above = kMostRange;
  if (proved(above)) return above;
  while (above - below > 1e-4 * above && above > 1e-9) {
    const double middle = (below + above) / 2;
    (proved(middle) ? below : above) = middle;
  }
  const double digit = std::pow(10, std::floor(std::log10(std::max(below, 1e-300))) - 2);
  return std::floor(below / digit) * digit;
}

index_t least_degree(double range, double tolerance) {
  constexpr index_t kMost = kernel::Monomials::kMostDegree;
  const auto fit = redblue::least_degree(Fit::minimax, range, tolerance);
  if (!fit || fit->degree() > kMost)
    throw InvalidProblem(
        fmt::format("range {}, tolerance {}: no polynomial of degree {} or less is proved to be as near to e^z; take a "
                    "smaller range or a larger tolerance",
                    range, tolerance, kMost));
  return fit->degree();
}

}  // namespace redblue::plan
