#include "redblue/methods/maths/polynomial.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "redblue/language/error.hpp"

namespace redblue::test {
namespace {

constexpr std::array kFits{Fit::taylor, Fit::chebyshev, Fit::minimax};

/// The largest |p(z) e^-z - 1| of many samples: never above the maximum.
double sampled_error(const Polynomial& p, int samples = 20000) {
  double most = 0;
  for (int k = 0; k <= samples; ++k) {
    const auto z = static_cast<long double>(p.range) * (2.0L * k / samples - 1);
    most = std::max(most, static_cast<double>(std::abs(p(z) * std::exp(-z) - 1)));
  }
  return most;
}

}  // namespace

/// The table of docs/algorithms/polynomial.md: least degrees by Taylor, Chebyshev series and minimax.
TEST(Polynomial, HasTheLeastDegreesOfTheTable) {
  struct Line {
    double range;
    std::array<std::array<index_t, 3>, 5> degrees;  ///< for 1e-1, 1e-2, 1e-3, 1e-4, 1e-6
  };
  constexpr std::array<double, 5> errors{1e-1, 1e-2, 1e-3, 1e-4, 1e-6};
  const std::array<Line, 4> table{{{0.5, {{{2, 1, 1}, {3, 2, 2}, {4, 3, 3}, {5, 4, 4}, {7, 6, 5}}}},
                                   {1, {{{3, 3, 2}, {5, 4, 3}, {6, 5, 4}, {7, 6, 5}, {9, 7, 7}}}},
                                   {2, {{{7, 5, 3}, {8, 6, 5}, {10, 7, 6}, {11, 8, 7}, {14, 10, 9}}}},
                                   {4, {{{14, 9, 6}, {15, 10, 7}, {17, 12, 9}, {19, 13, 10}, {21, 15, 13}}}}}};
  for (const Line& line : table)
    for (std::size_t e = 0; e < errors.size(); ++e)
      for (std::size_t f = 0; f < kFits.size(); ++f) {
        const auto p = least_degree(kFits[f], line.range, errors[e]);
        ASSERT_TRUE(p);
        EXPECT_EQ(p->degree(), line.degrees[e][f])
            << name_of(kFits[f]) << " range " << line.range << " error " << errors[e];
      }
}

TEST(Polynomial, HasTheErrorsOfTheTable) {
  const auto expect = [](index_t degree, double range, std::array<double, 3> errors, double digits) {
    for (std::size_t f = 0; f < kFits.size(); ++f)
      EXPECT_NEAR(near_exp(kFits[f], degree, range).error / errors[f], 1, digits) << name_of(kFits[f]) << ' ' << range;
  };
  expect(4, 1, {1.9e-2, 1.36e-3, 5.0e-4}, 0.03);
  expect(4, 2, {1.46, 0.125, 1.45e-2}, 0.01);
  expect(2, 1, {0.36, 0.107, 0.040}, 0.015);
}

/// The proved error is above every sample, and not far above the largest.
TEST(Polynomial, ItsProvedErrorIsATightBound) {
  std::mt19937 random(5);
  std::uniform_real_distribution<double> range(0.05, 6);
  std::uniform_int_distribution<index_t> degree(1, 12);
  for (int round = 0; round < 40; ++round) {
    const Polynomial p = near_exp(kFits[static_cast<std::size_t>(round) % 3], degree(random), range(random));
    const double sampled = sampled_error(p);
    EXPECT_GE(p.error, sampled);
    EXPECT_LE(p.error, sampled * 1.001 + 1e-15) << "degree " << p.degree() << " range " << p.range;
  }
}

/// Also for polynomials that are near nothing: random changes of the coefficients.
TEST(Polynomial, ItsProvedErrorBoundsAnyPolynomial) {
  std::mt19937 random(6);
  std::normal_distribution<double> normal;
  for (int round = 0; round < 40; ++round) {
    Polynomial p = near_exp(Fit::taylor, 1 + round % 6, 2.5);
    for (double& c : p.c) c += normal(random);
    p.error = proved_error(p.c, p.range);
    EXPECT_GE(p.error, sampled_error(p));
  }
}

/// No other polynomial of the degree does better: p e^-z - 1 takes its largest value in degree + 2 points, with
/// alternating signs (de la Vallee Poussin).
TEST(Polynomial, MinimaxAlternates) {
  for (const double range : {0.5, 1.0, 2.0, 4.0})
    for (index_t degree = 1; degree <= 10; ++degree) {
      const Polynomial p = near_exp(Fit::minimax, degree, range);
      if (p.error < 1e-12) continue;  // coefficients are doubles
      const auto f = [&](double z) {
        return static_cast<double>(p(static_cast<long double>(z)) * std::exp(-static_cast<long double>(z)) - 1);
      };
      int turns = 0, sign = 0;
      for (int k = 0; k <= 40000; ++k) {
        const double e = f(range * (k / 20000.0 - 1));
        if (std::abs(e) < p.error * 0.999) continue;
        if (const int now = e > 0 ? 1 : -1; now != sign) {
          sign = now;
          ++turns;
        }
      }
      EXPECT_GE(turns, degree + 2) << "degree " << degree << " range " << range;
      EXPECT_LE(p.error, near_exp(Fit::chebyshev, degree, range).error);
    }
}

TEST(Polynomial, KnowsItsSlope) {
  const Polynomial p = near_exp(Fit::minimax, 5, 2);
  for (const double z : {-1.7, -0.3, 0.0, 1.9}) EXPECT_NEAR(p.slope(z), (p(z + 1e-5) - p(z - 1e-5)) / 2e-5, 1e-8);
}

/// Against Hermite polynomials by hand, and where they come from: the mean of (p e^(s^2/2) - e^z) z^l is 0 for z
/// normal.
TEST(Polynomial, GaussianFitsAreProjections) {
  for (const double s : {0.1, 0.7, 3.0}) {
    const std::vector<double> c = near_exp(Fit::gaussian, 3, s).c;
    EXPECT_NEAR(c[0], 1 - s * s / 2, 1e-15 * (1 + s * s));
    EXPECT_NEAR(c[1], 1 - s * s / 2, 1e-15 * (1 + s * s));
    EXPECT_NEAR(c[2], 0.5, 1e-16);
    EXPECT_NEAR(c[3], 1.0 / 6, 1e-16);
    EXPECT_TRUE(std::isinf(near_exp(Fit::gaussian, 3, s).error));
  }
  const double s = 0.8;
  for (const index_t degree : {2, 5}) {
    const Polynomial p = near_exp(Fit::gaussian, degree, s);
    for (index_t l = 0; l <= degree; ++l) {
      double mean = 0;
      for (int k = -12000; k <= 12000; ++k) {
        const double z = s * k / 1000.0;
        mean += std::exp(-z * z / (2 * s * s)) * std::pow(z, l) * (p(z) * std::exp(s * s / 2) - std::exp(z));
      }
      EXPECT_NEAR(mean / 1000, 0, 1e-9) << "degree " << degree << ", z^" << l;
    }
  }
}

TEST(Polynomial, RefusesWhatMakesNoSense) {
  EXPECT_THROW(near_exp(Fit::taylor, 0, 1), InvalidProblem);
  EXPECT_THROW(near_exp(Fit::taylor, 33, 1), InvalidProblem);
  EXPECT_THROW(near_exp(Fit::taylor, 2, 0), InvalidProblem);
  EXPECT_THROW(near_exp(Fit::taylor, 2, NAN), InvalidProblem);
  EXPECT_THROW(near_exp(Fit::taylor, 2, 65), InvalidProblem);
  EXPECT_NO_THROW(approximate_exp(2, 1));
  EXPECT_THROW(approximate_exp(1, 30), InvalidProblem);
  EXPECT_NO_THROW(approximate_exp(4, 2));
  EXPECT_THROW(approximate_exp(4, 2, Fit::taylor), InvalidProblem);  // 1.46
}

TEST(Polynomial, CountsMonomials) {
  EXPECT_EQ(monomials(16, 2), 153);
  EXPECT_EQ(monomials(64, 4), 814385);
  EXPECT_EQ(binomial(5, 7), 0);
  EXPECT_EQ(binomial(Words(100), 1), 100);
}

}  // namespace redblue::test
