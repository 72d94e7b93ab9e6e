#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "redblue/language/error.hpp"
#include "redblue/methods/maths/row_polynomials.hpp"
#include "redblue/problem/problem.hpp"

namespace redblue {

namespace {

using Real = long double;
using Reals = std::vector<Real>;

/// |c_0| + |c_1| x + ..
Real magnitude(std::span<const Real> c, Real x) {
  Real sum = 0;
  for (std::size_t l = c.size(); l > 0; --l) sum = sum * x + std::abs(c[l - 1]);
  return sum;
}

/// c(z + by), by repeated division.
Reals shifted(Reals c, Real by) {
  for (std::size_t done = 0; done + 1 < c.size(); ++done)
    for (std::size_t l = c.size() - 1; l > done; --l) c[l - 1] += by * c[l];
  return c;
}

/// From factors of the Chebyshev polynomials T_l(z / range) to factors of z^l.
std::vector<double> monomial_factors(const Reals& a, Real range) {
  const std::size_t n = a.size();
  Reals sum(n), before(n), now(n);
  before[0] = 1;
  if (n > 1) now[1] = 1;
  for (std::size_t l = 0; l < n; ++l) {
    const Reals& T = l == 0 ? before : now;
    for (std::size_t k = 0; k <= l; ++k) sum[k] += a[l] * T[k];
    if (l == 0) continue;
    Reals next(n);  // T_{l+1} = 2 x T_l - T_{l-1}
    for (std::size_t k = 0; k < n; ++k) next[k] = (k > 0 ? 2 * now[k - 1] : Real(0)) - before[k];
    before = std::move(now);
    now = std::move(next);
  }
  std::vector<double> c(n);
  Real power = 1;
  for (std::size_t l = 0; l < n; ++l, power *= range) c[l] = static_cast<double>(sum[l] / power);
  return c;
}

/// SUM_l a_l T_l(x), by Clenshaw's recurrence.
Real chebyshev_sum(std::span<const Real> a, Real x) {
  Real b1 = 0, b2 = 0;
  for (std::size_t l = a.size() - 1; l > 0; --l) {
    const Real b = a[l] + 2 * x * b1 - b2;
    b2 = b1;
    b1 = b;
  }
  return a[0] + x * b1 - b2;
}

/// I_k(x) = SUM_m (x/2)^(2m+k) / (m! (m+k)!), a sum of positive terms.
Real bessel_i(std::size_t k, Real x) {
  Real term = 1;
  for (std::size_t m = 1; m <= k; ++m) term *= x / 2 / static_cast<Real>(m);
  Real sum = term;
  for (std::size_t m = 1; term > sum * std::numeric_limits<Real>::epsilon() / 8; ++m) {
    term *= x / 2 * (x / 2) / (static_cast<Real>(m) * static_cast<Real>(m + k));
    sum += term;
  }
  return sum;
}

/// The solution of A x = b by elimination with pivots; rows of A end with their b.
Reals solve(std::vector<Reals> A) {
  const std::size_t n = A.size();
  for (std::size_t col = 0; col < n; ++col) {
    std::size_t pivot = col;
    for (std::size_t row = col + 1; row < n; ++row)
      if (std::abs(A[row][col]) > std::abs(A[pivot][col])) pivot = row;
    std::swap(A[col], A[pivot]);
    for (std::size_t row = col + 1; row < n; ++row) {
      const Real factor = A[row][col] / A[col][col];
      for (std::size_t k = col; k <= n; ++k) A[row][k] -= factor * A[col][k];
    }
  }
  Reals x(n);
  for (std::size_t row = n; row-- > 0;) {
    Real rest = A[row][n];
    for (std::size_t k = row + 1; k < n; ++k) rest -= A[row][k] * x[k];
    x[row] = rest / A[row][row];
  }
  return x;
}

/// Where |f| is largest between `left` and `right`, by golden section: f has one extremum there.
template <class F>
Real peak(const F& f, Real left, Real right) {
  const Real shrink = std::numbers::phi_v<Real> - 1;
  Real a = right - shrink * (right - left), b = left + shrink * (right - left);
  Real at_a = std::abs(f(a)), at_b = std::abs(f(b));
  for (int step = 0; step < 90; ++step)
    if (at_a > at_b) {
      right = b;
      b = a;
      at_b = at_a;
      a = right - shrink * (right - left);
      at_a = std::abs(f(a));
    } else {
      left = a;
      a = b;
      at_a = at_b;
      b = left + shrink * (right - left);
      at_b = std::abs(f(b));
    }
  return (left + right) / 2;
}

/// One point of each stretch of one sign of f on [-1, 1]: where |f| is largest.
template <class F>
Reals extrema(const F& f, std::size_t degree) {
  const auto samples = static_cast<int>(64 * (degree + 2));
  const auto at = [&](int k) { return -std::cos(std::numbers::pi_v<Real> * static_cast<Real>(k) / samples); };
  Reals found;
  found.reserve(degree + 3);
  int best = 0;
  const auto take = [&] {
    found.push_back(best == 0 ? -1 : best == samples ? Real(1) : peak(f, at(best - 1), at(best + 1)));
  };
  for (int k = 1; k <= samples; ++k) {
    const Real now = f(at(k)), most = f(at(best));
    if ((now > 0) != (most > 0)) {
      take();
      best = k;
    } else if (std::abs(now) > std::abs(most)) {
      best = k;
    }
  }
  take();
  return found;
}

/// Remez exchange for the weight e^-z: p(z) e^-z - 1 takes its largest value, with alternating signs, in degree + 2
/// points. Factors of T_l(z / range).
Reals remez(std::size_t degree, Real range) {
  const std::size_t points = degree + 2;
  Reals x(points), a;
  for (std::size_t i = 0; i < points; ++i)
    x[i] = -std::cos(std::numbers::pi_v<Real> * static_cast<Real>(i) / static_cast<Real>(points - 1));
  for (int round = 0; round < 60; ++round) {
    std::vector<Reals> system(points, Reals(points + 1));
    for (std::size_t i = 0; i < points; ++i) {
      const Real weight = std::exp(-range * x[i]);
      for (std::size_t l = 0; l <= degree; ++l)
        system[i][l] = std::cos(static_cast<Real>(l) * std::acos(std::clamp<Real>(x[i], -1, 1))) * weight;
      system[i][degree + 1] = i % 2 == 0 ? 1 : -1;
      system[i][points] = 1;
    }
    Reals next = solve(std::move(system));
    const Real level = std::abs(next.back());
    next.pop_back();
    a = std::move(next);
    const auto f = [&](Real t) { return chebyshev_sum(a, t) * std::exp(-range * t) - 1; };
    Reals at = extrema(f, degree);
    if (at.size() != points) break;  // below the roundings: what there is will do
    Real most = 0;
    for (const Real t : at) most = std::max(most, std::abs(f(t)));
    x = std::move(at);
    if (most <= level * (1 + 1e-9L)) break;
  }
  return a;
}

/// SUM_l s^l/l! He_l(z/s), with He_{l+1}(x) = x He_l(x) - l He_{l-1}(x): s^l He_l(z/s) has no division.
std::vector<double> hermite_series(std::size_t degree, Real s) {
  Reals sum(degree + 1), before(degree + 1), now(degree + 1);
  now[0] = 1;
  Real factor = 1;
  for (std::size_t l = 0;; ++l) {
    for (std::size_t k = 0; k <= l; ++k) sum[k] += factor * now[k];
    if (l == degree) break;
    Reals next(degree + 1);
    for (std::size_t k = 0; k <= l + 1; ++k)
      next[k] = (k > 0 ? now[k - 1] : Real(0)) - static_cast<Real>(l) * s * s * before[k];
    before = std::move(now);
    now = std::move(next);
    factor /= static_cast<Real>(l + 1);
  }
  return {sum.begin(), sum.end()};
}

std::vector<double> coefficients(Fit fit, std::size_t degree, Real range) {
  std::vector<double> c(degree + 1);
  switch (fit) {
    case Fit::taylor: {
      Real factor = 1;
      for (std::size_t l = 0; l <= degree; ++l) {
        if (l > 0) factor /= static_cast<Real>(l);
        c[l] = static_cast<double>(factor);
      }
      return c;
    }
    case Fit::chebyshev: {  // e^z = I_0(range) + 2 SUM_k I_k(range) T_k(z / range)
      Reals a(degree + 1);
      for (std::size_t l = 0; l <= degree; ++l) a[l] = (l == 0 ? 1 : 2) * bessel_i(l, range);
      return monomial_factors(a, range);
    }
    case Fit::gaussian:
      return hermite_series(degree, range);
    case Fit::minimax:
      break;
  }
  return monomial_factors(remez(degree, range), range);
}

}  // namespace

double moved_share(double error) {
  if (!(error < 1)) return std::numeric_limits<double>::infinity();
  const Real e = error, u = std::numeric_limits<Real>::epsilon();
  const auto share = static_cast<double>(e / (1 + std::sqrt((1 - e) * (1 + e))) * (1 + 8 * u));
  return std::nextafter(share, std::numeric_limits<double>::infinity());
}

double proved_error(std::span<const double> coefficients, double range) {
  // f = p e^-z - 1 and f' = (p' - p) e^-z: on |z - m| <= h, |f| <= |f(m)| + h max |p' - p| e^(h - m).
  constexpr int kIntervals = 4096;
  const Reals c(coefficients.begin(), coefficients.end());
  const Real B = range, h = B / kIntervals, u = std::numeric_limits<Real>::epsilon();
  Reals q(c.size());
  for (std::size_t l = 0; l < c.size(); ++l)
    q[l] = (l + 1 < c.size() ? static_cast<Real>(l + 1) * c[l + 1] : Real(0)) - c[l];
  Reals dc(c.size());
  for (std::size_t l = 0; l < c.size(); ++l)
    dc[l] = std::abs(c[l]) + (l + 1 < c.size() ? static_cast<Real>(l + 1) * std::abs(c[l + 1]) : Real(0));
  // With n + 1 coefficients Horner's rule and the shift take at most 2 n roundings of any term, exp 16 units.
  const Real roundings = u * static_cast<Real>(4 * c.size() + 64);
  const Real reach = h * (1 + 4 * kIntervals * u);  // m is off by some units of B, which h covers
  Real most = 0;
  for (int k = 0; k < kIntervals; ++k) {
    const Real m = -B + h * static_cast<Real>(2 * k + 1), up = std::exp(reach - m), x = std::abs(m) + reach;
    Real p = 0;
    for (std::size_t l = c.size(); l > 0; --l) p = p * m + c[l - 1];
    const Real at = std::abs(p * std::exp(-m) - 1) + roundings * (magnitude(c, x) * up + 1);
    const Real steep = (magnitude(shifted(q, m), reach) + roundings * magnitude(dc, x)) * up;
    most = std::max(most, at + reach * steep * (1 + roundings));
  }
  const double error = static_cast<double>(most * (1 + 4 * u));
  return std::nextafter(error, std::numeric_limits<double>::infinity());
}

void require_range(double range) {
  if (!(range > 0 && range <= 64))
    throw InvalidProblem(
        fmt::format("range = {} of a polynomial near e^z: give a number above 0, and at most 64", range));
}

Polynomial near_exp(Fit fit, index_t degree, double range) {
  if (degree < 1 || degree > Polynomial::kMostDegree)
    throw InvalidProblem(fmt::format("degree = {} of a polynomial: give 1 to {}", degree, Polynomial::kMostDegree));
  require_range(range);
  Polynomial p;
  p.c = coefficients(fit, static_cast<std::size_t>(degree), range);
  p.range = range;
  p.fit = fit;
  p.error = fit == Fit::gaussian ? std::numeric_limits<double>::infinity() : proved_error(p.c, range);
  return p;
}

std::optional<Polynomial> least_degree(Fit fit, double range, double error) {
  for (index_t degree = 1; degree <= Polynomial::kMostDegree; ++degree)
    if (Polynomial p = near_exp(fit, degree, range); p.error <= error) return p;
  return std::nullopt;
}

std::shared_ptr<const Polynomial> approximate_exp(index_t degree, double range, Fit fit) {
  auto p = std::make_shared<const Polynomial>(near_exp(fit, degree, range));
  if (p->error < 1) return p;
  const bool minimax = fit == Fit::minimax;
  throw InvalidProblem(fmt::format(
      "no polynomial of degree {}{} is near e^z on |z| <= {}: its relative error would reach {:.3g}; give a "
      "higher degree or a smaller range{}",
      degree, minimax ? "" : fmt::format(" by {}", name_of(fit)), range, p->error,
      minimax ? "" : ", or take the minimax one, which is the nearest"));
}

Words binomial(Words n, index_t k) {
  Words result = 1;
  if (k < 0 || n < k) return 0;
  for (index_t i = 1; i <= k; ++i) result = result * (n - k + i) / i;  // C(n - k + i, i), a whole number
  return result;
}

std::string Polynomial::title(index_t) const {
  return fmt::format("polynomial attention of degree {}, {}", degree(), name_of(fit));
}

double Polynomial::terms(index_t d) const { return monomials(d, degree()).to_double(); }

namespace {

/// What all polynomials in place of e^z ask of a problem.
void require_softmax(const Problem& p, const Polynomial& polynomial, bool proved) {
  const auto require = [](bool right, const std::string& text) {
    if (!right) throw InvalidProblem("approximation: " + text);
  };
  require(p.op == Operation::forward || p.op == Operation::backward,
          fmt::format("there is none of operation {}, only of forward and backward", name_of(p.op)));
  require(p.score == Score::softmax, fmt::format("it is for the softmax, not for score {}", name_of(p.score)));
  require(!p.modifiers().any(), "it knows no bias, softcap, ALiBi, sinks or dropout");
  require(polynomial.degree() >= 1 && (polynomial.error < 1 || !proved),
          fmt::format("a polynomial of degree {} whose proved relative error is {:.3g}: it must be below 1",
                      polynomial.degree(), polynomial.error));
}

}  // namespace

void Polynomial::require_sound(const Problem& problem) const { require_softmax(problem, *this, true); }

void RowPolynomials::require_sound(const Problem& problem) const {
  if (problem.op != Operation::forward)
    throw InvalidProblem(fmt::format("approximation: polynomials of each row are for the forward pass, not for {}",
                                     name_of(problem.op)));
  if (cluster > 0 && cluster >= problem.n_k)
    throw InvalidProblem(
        fmt::format("cluster = {}: with one cluster of all {} keys every pair is exact; give fewer keys, or leave the "
                    "approximation out",
                    cluster, problem.n_k));
  require_softmax(problem, last(), proves());
}

std::string RowPolynomials::title(index_t n_k) const {
  return fmt::format("{}, by rows{}", last().title(n_k),
                     cluster > 0 ? fmt::format(", exact in clusters of {} keys (seed {})", cluster, seed) : "");
}

}  // namespace redblue
