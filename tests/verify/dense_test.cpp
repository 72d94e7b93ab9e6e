#include "redblue/verify/oracle/dense.hpp"

#include <gtest/gtest.h>

#include <random>

#include "support/approximations.hpp"
#include "support/generators.hpp"

/// The one dense reference, held against what does not come from it: slopes of its loss, and cases with a closed form.
namespace redblue::test {
namespace {

using enum SlowArray;
using oracle::Dense;
using oracle::Matrices;
using oracle::Matrix;
using Real = long double;

constexpr Operation kGradients[] = {Operation::backward, Operation::gradient_x, Operation::backward_x,
                                    Operation::backward_w};
constexpr Score kScores[] = {Score::softmax, Score::sigmoid, Score::relu, Score::identity};
constexpr SlowArray kAll[] = {Q, K, V, A1, A2, A3, X, Y, WQ, WK, WV, dO};

Problem small(Operation op = Operation::backward) {
  Problem p = problem(6, 4, 3, 2);
  p.op = op;
  p.d_in = 5;
  p.scale = 0.6;
  return p;
}
Problem causal(Problem p, index_t offset) {
  p.causal = true;
  p.causal_offset = offset;
  return p;
}
/// Two query heads of three rows on one head of keys: rows are stacked position-major.
Problem grouped(Problem p) {
  p.n_q = 3;
  p.heads = 2;
  p.kv_heads = 1;
  return p;
}

Shape shape_of(const Problem& p, SlowArray a) {
  const Sizes s = p.sizes();
  const index_t width = p.op == Operation::backward_w ? p.d_in : p.d;
  switch (a) {
    case Q:
      return {s.n_q, s.d};
    case K:
      return {s.n_k, s.d};
    case V:
      return {s.n_k, s.d_v};
    case dO:
      return {s.n_q, s.d_v};
    case A1:
      return {s.n_q, width};
    case A2:
    case A3:
      return {s.n_k, width};
    case Y:
    case WV:
      return {width, s.d_v};
    default:
      return {width, s.d};
  }
}
template <class T = Real>
Matrices<T> random_inputs(const Problem& p) {
  std::mt19937 random(11);
  std::normal_distribution<double> normal;
  Matrices<T> in;
  for (const SlowArray a : kAll) {
    Matrix<T> m(shape_of(p, a));
    for (T& x : m.words) x = static_cast<T>(normal(random));
    in[a] = m;
  }
  return in;
}
Matrix<Real> constant(Shape shape, Real value) {
  Matrix<Real> m(shape);
  std::fill(m.words.begin(), m.words.end(), value);
  return m;
}

/// The array whose gradient this is.
SlowArray source_of(SlowArray gradient) {
  static const std::map<SlowArray, SlowArray> sources = {{dQ, Q},   {dK, K},   {dV, V},      {g, X},    {dX, X},
                                                         {dY, Y},   {dA1, A1}, {dA2, A2},    {dA3, A3}, {dWQ, WQ},
                                                         {dWK, WK}, {dWV, WV}, {dBias, bias}};
  return sources.at(gradient);
}

void expect_slopes_of_the_loss(const Problem& p, const Matrices<Real>& in) {
  constexpr Real h = 1e-5L;
  const Dense<Real> dense(p, in);
  for (const auto& [gradient, wanted] : dense.gradients())
    for (std::size_t k = 0; k < wanted.words.size(); ++k) {
      const auto loss = [&](Real by) {
        Dense<Real> moved = dense;
        Matrix<Real> x = dense.at(source_of(gradient));
        x.words[k] += by;
        moved.set(source_of(gradient), x);
        return moved.loss();
      };
      const Real slope = (loss(h) - loss(-h)) / (2 * h);
      EXPECT_NEAR(static_cast<double>(wanted.words[k]), static_cast<double>(slope),
                  1e-7 * (1 + std::abs(static_cast<double>(slope))))
          << name_of(p.op) << ' ' << name_of(p.score) << ' ' << name_of(gradient) << " word " << k;
    }
}
void expect_slopes_of_the_loss(const Problem& p) { expect_slopes_of_the_loss(p, random_inputs(p)); }
void expect_equal(const Matrices<Real>& ours, const Matrices<Real>& wanted, double most = 1e-15) {
  ASSERT_EQ(ours.size(), wanted.size());
  for (const auto& [array, m] : wanted)
    for (std::size_t k = 0; k < m.words.size(); ++k)
      EXPECT_NEAR(static_cast<double>(ours.at(array).words[k]), static_cast<double>(m.words[k]), most)
          << name_of(array) << " word " << k;
}

TEST(DenseGradients, AreTheSlopesOfTheLoss) {
  for (const Operation op : kGradients)
    for (const Score score : kScores) {
      Problem p = small(op);
      p.score = score;
      for (const Problem& shape : {p, causal(p, 1), causal(p, -2)}) expect_slopes_of_the_loss(shape);
      if (op == Operation::backward)
        for (const Problem& shape : {grouped(p), causal(grouped(p), 0)}) expect_slopes_of_the_loss(shape);
    }
}

TEST(DenseGradients, OfAPolynomialAreTheSlopesOfTheLoss) {
  if (!has_approximations()) GTEST_SKIP() << kNoApproximations;
  Problem p = small();
  p.approximate("4:1,taylor");  // positive everywhere
  for (const Problem& shape : {p, causal(p, 1), causal(p, -2), grouped(p), causal(grouped(p), 0)})
    expect_slopes_of_the_loss(shape);
}

TEST(DenseGradients, PassNothingToPairsWhoseBiasIsMinusInfinity) {
  for (const Score score : kScores)
    for (Problem p : {small(), causal(small(), 0), grouped(small())}) {
      p.score = score;
      p.bias = {1, p.heads, p.n_q, p.n_k};
      p.bias_gradient = true;
      Matrices<Real> in = random_inputs(p);
      Matrix<Real> b = constant({p.n_q * p.heads, p.n_k}, 0.3L);
      for (std::size_t k = 0; k < b.words.size(); ++k)  // each third pair is hidden, and all of row 1
        if (k % 3 == 0 || k / 4 == 1) b.words[k] = -std::numeric_limits<Real>::infinity();
      in[bias] = b;
      expect_slopes_of_the_loss(p, in);
    }
}

TEST(DenseGradients, FromStatisticsAreTheSame) {
  for (const Problem& p : {small(), causal(small(), -1), causal(grouped(small()), 1)}) {
    Matrices<Real> in = random_inputs(p);
    const Dense<Real> dense(p, in);
    for (const auto& [array, m] : dense.forward()) in[array] = m;
    expect_equal(Dense<Real>(p, in).gradients(), dense.gradients());
  }
}

TEST(DenseForward, OneKeyHasAllTheWeight) {
  Problem p = problem(5, 1, 3, 2);
  p.op = Operation::backward;
  const Dense<Real> dense(p, random_inputs(p));
  const Matrices<Real> forward = dense.forward(), gradients = dense.gradients();
  for (index_t t = 0; t < p.d_v; ++t) {
    Real sum = 0;
    for (index_t i = 0; i < p.n_q; ++i) {
      EXPECT_EQ(forward.at(O)(i, t), dense.at(V)(0, t));
      sum += dense.at(dO)(i, t);
    }
    EXPECT_NEAR(static_cast<double>(gradients.at(dV)(0, t)), static_cast<double>(sum), 1e-15);
  }
  for (index_t i = 0; i < p.n_q; ++i) EXPECT_EQ(forward.at(lse)(i, 0), dense.scores(i)[0]);
  for (const SlowArray a : {dQ, dK})
    for (const Real x : gradients.at(a).words) EXPECT_EQ(x, 0);
}

TEST(DenseForward, EqualScoresGiveTheMean) {
  const Problem p = small();
  Matrices<Real> in = random_inputs(p);
  in[Q] = constant(in[Q].shape, 2);
  in[K] = constant(in[K].shape, 5);
  const Dense<Real> dense(p, in);
  const Matrices<Real> forward = dense.forward();
  for (index_t t = 0; t < p.d_v; ++t) {
    Real mean = 0;
    for (index_t j = 0; j < p.n_k; ++j) mean += dense.at(V)(j, t) / static_cast<Real>(p.n_k);
    for (index_t i = 0; i < p.n_q; ++i)
      EXPECT_NEAR(static_cast<double>(forward.at(O)(i, t)), static_cast<double>(mean), 1e-15);
  }
  for (const Real x : forward.at(lse).words)
    EXPECT_NEAR(static_cast<double>(x), 0.6 * 2 * 5 * 3 + std::log(4.0), 1e-14);
}

TEST(DenseForward, IdentityIsAProductOfThreeMatrices) {
  Problem p = small();
  p.score = Score::identity;
  const Dense<Real> dense(p, random_inputs(p));
  const Matrix<Real> O_ = dense.forward().at(O);
  for (index_t i = 0; i < p.n_q; ++i)
    for (index_t t = 0; t < p.d_v; ++t) {
      Real wanted = 0;
      for (index_t j = 0; j < p.n_k; ++j)
        for (index_t k = 0; k < p.d; ++k)
          wanted += static_cast<Real>(0.6) * dense.at(Q)(i, k) * dense.at(K)(j, k) * dense.at(V)(j, t);
      EXPECT_NEAR(static_cast<double>(O_(i, t)), static_cast<double>(wanted), 1e-15);
    }
}

TEST(DenseForward, RowsThatSeeNothingGiveZeroAndMinusInfinity) {
  const Problem p = causal(small(), -2);  // the first two rows
  Matrices<Real> in = random_inputs(p);
  const Matrices<Real> forward = Dense<Real>(p, in).forward();
  for (index_t i = 0; i < p.n_q; ++i) {
    EXPECT_EQ(std::isinf(forward.at(lse)(i, 0)), i < 2);
    for (index_t t = 0; t < p.d_v; ++t) EXPECT_EQ(forward.at(O)(i, t) == 0, i < 2);
  }
  in[Q] = constant(in[Q].shape, std::numeric_limits<Real>::max());  // scores beyond the type: -inf
  in[K] = constant(in[K].shape, -8);
  const Matrices<Real> beyond = Dense<Real>(small(), in).forward();
  for (const Real x : beyond.at(lse).words) EXPECT_EQ(x, -std::numeric_limits<Real>::infinity());
  for (const Real x : beyond.at(O).words) EXPECT_EQ(x, 0);
}

TEST(DenseGradients, OfRowsWhoseLseIsMinusInfinityAreThoseOfRowsWithoutDO) {
  const Problem p = small();
  Matrices<Real> in = random_inputs(p);
  for (const auto& [array, m] : Dense<Real>(p, in).forward()) in[array] = m;
  Matrices<Real> unseeing = in;
  unseeing[lse](3, 0) = -std::numeric_limits<Real>::infinity();
  for (index_t t = 0; t < p.d_v; ++t) in[dO](3, t) = 0;
  expect_equal(Dense<Real>(p, unseeing).gradients(), Dense<Real>(p, in).gradients(), 0);
}

TEST(DenseGradients, DoNotDependOnHowSumsAreCut) {
  for (const Operation op : kGradients) {
    const Problem p = small(op);
    const Matrices<Real> in = random_inputs(p);
    for (const index_t block : {1, 2, 5}) {
      expect_equal(Dense<Real>(p, in, block).forward(), Dense<Real>(p, in).forward());
      expect_equal(Dense<Real>(p, in, block).gradients(), Dense<Real>(p, in).gradients(), 1e-14);
    }
  }
}

TEST(DenseGradients, AreAtMostTheirMagnitudes) {
  for (const Operation op : kGradients)
    for (const Score score : kScores) {
      Problem p = small(op);
      p.score = score;
      const Dense<Real> dense(p, random_inputs(p));
      const Matrices<Real> sizes = dense.gradient_magnitudes();
      for (const auto& [array, m] : dense.gradients())
        for (std::size_t k = 0; k < m.words.size(); ++k)
          EXPECT_LE(std::abs(m.words[k]), sizes.at(array).words[k] * (1 + 1e-15L)) << name_of(array);
    }
}

/// A long sum errs by as much as a block and the chain of blocks, not by as much as one chain.
TEST(DenseForward, ErrsLessInBlocks) {
  Problem p = problem(2, 20003, 4, 4);
  const Matrices<double> in = random_inputs<double>(p);
  Matrices<float> narrow;
  for (const auto& [array, m] : in) {
    narrow[array] = Matrix<float>(m.shape);
    std::copy(m.words.begin(), m.words.end(), narrow[array].words.begin());
  }
  Matrices<double> exact = in;
  for (auto& [array, m] : exact) std::copy(narrow[array].words.begin(), narrow[array].words.end(), m.words.begin());
  const Matrix<double> truth = Dense<double>(p, exact).forward().at(O);
  const auto error = [&](index_t block) {
    const Matrix<float> o = Dense<float>(p, narrow, block).forward().at(O);
    double most = 0;
    for (std::size_t k = 0; k < o.words.size(); ++k)
      most = std::max(most, std::abs(truth.words[k] - static_cast<double>(o.words[k])));
    return most;
  };
  EXPECT_LT(4 * error(oracle::kBlock), error(p.n_k));
}

}  // namespace
}  // namespace redblue::test
