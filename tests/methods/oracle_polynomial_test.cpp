#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "redblue/methods/maths/approximations.hpp"
#include "redblue/verify/oracle/dense.hpp"

/// Attention with a polynomial in place of e^z stays within its proved distance of exact attention.
namespace redblue::test {
namespace {

using oracle::Dense;
using oracle::Matrices;
using oracle::Matrix;

/// Entries of Q and K are +-1, so that every |scale q.k| is at most scale d: the ends of the range are reached often.
Matrices<long double> inputs(const Problem& p, std::mt19937& random) {
  std::normal_distribution<double> normal;
  Matrices<long double> in;
  for (const auto& [array, shape] :
       {std::pair(SlowArray::Q, Shape{p.n_q, p.d}), std::pair(SlowArray::K, Shape{p.n_k, p.d}),
        std::pair(SlowArray::V, Shape{p.n_k, p.d_v})}) {
    Matrix<long double> m(shape);
    for (long double& x : m.words) {
      const double drawn = normal(random);
      x = array == SlowArray::V ? drawn : drawn > 0 ? 1 : -1;
    }
    in[array] = m;
  }
  return in;
}

}  // namespace

TEST(DensePolynomial, IsWithinItsProvedErrorOfExactAttention) {
  std::mt19937 random(9);
  double closest = 0;
  for (const Fit fit : {Fit::taylor, Fit::chebyshev, Fit::minimax})
    for (const double range : {0.5, 1.0, 2.0})
      for (index_t degree = 2; degree <= 6; ++degree) {
        Problem p;
        p.n_q = 30;
        p.n_k = 40;
        p.d = 3;
        p.d_v = 2;
        p.scale = range / 3;
        const auto polynomial = std::make_shared<const Polynomial>(near_exp(fit, degree, range));
        if (polynomial->error >= 1) continue;
        const Matrices<long double> in = inputs(p, random);
        const auto exact = Dense<long double>(p, in).forward().at(SlowArray::O);
        p.approximation = polynomial;
        const auto ours = Dense<long double>(p, in).forward().at(SlowArray::O);
        double largest = 0, gap = 0;
        for (const long double v : in.at(SlowArray::V).words)
          largest = std::max(largest, std::abs(static_cast<double>(v)));
        for (std::size_t k = 0; k < ours.words.size(); ++k)
          gap = std::max(gap, std::abs(static_cast<double>(ours.words[k] - exact.words[k])));
        EXPECT_LE(gap, polynomial->output_error() * largest)
            << name_of(fit) << " degree " << degree << " range " << range;
        closest = std::max(closest, gap / (polynomial->output_error() * largest));
      }
  EXPECT_GT(closest, 0.1);  // the bound says something
}

/// The one query of a window of 5 keys: 9 keys that it does not see have no part in mean, radius or spread.
TEST(DenseRowPolynomials, AskOnlyTheKeysThatAQuerySees) {
  std::mt19937 random(3);
  std::normal_distribution<long double> normal;
  Problem p;
  p.n_q = 1;
  p.n_k = 14;
  p.d = 3;
  p.d_v = 2;
  p.window_left = 4;
  Problem few = p;
  few.n_k = 5;
  few.window_left.reset();
  Matrices<long double> in = inputs(p, random), last = inputs(few, random);
  last[SlowArray::Q] = in[SlowArray::Q];
  for (const SlowArray a : {SlowArray::K, SlowArray::V}) {
    for (long double& x : in[a].words) x = normal(random);
    last[a].words.assign(in[a].words.end() - std::ssize(last[a].words), in[a].words.end());
  }
  for (const Fit fit : {Fit::minimax, Fit::gaussian}) {
    p.approximation = few.approximation = polynomials_of_rows(2, 1, {.centred = true, .exact_keys = 1, .fit = fit});
    const Dense<long double> whole(p, in), part(few, last);
    EXPECT_EQ(whole.exact_rows(), part.exact_rows());
    EXPECT_EQ(whole.forward().at(SlowArray::O).words, part.forward().at(SlowArray::O).words);
  }
}

/// The last query sees none.
TEST(DenseRowPolynomials, KeepTheOneKeyThatIsSeen) {
  std::mt19937 random(3);
  Problem p;
  p.n_q = 6;
  p.n_k = 1;
  p.d = 3;
  p.d_v = 2;
  p.window_left = 2;
  p.window_right = 0;
  p.causal_offset = -2;
  p.approximation = polynomials_of_rows(2, 0.25, {.exact_keys = 1});
  EXPECT_EQ(Dense<long double>(p, inputs(p, random)).exact_rows(), 0);  // its radius is that of the other keys
}

}  // namespace redblue::test
