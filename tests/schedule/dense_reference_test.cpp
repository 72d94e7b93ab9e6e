#include <gtest/gtest.h>

#include <random>

#include "support/gradients.hpp"

/// The reference that every schedule is compared with, itself compared with central differences of the loss.
namespace redblue::test {
namespace {

using Real = long double;

DenseProblem<Real> random_problem(Operation op, const Sizes& s) {
  using enum SlowArray;
  std::mt19937 random(11);
  std::normal_distribution<double> normal;
  DenseProblem<Real> x{op, s, 0.6L, {}};
  const auto fill = [&](SlowArray a, index_t rows, index_t cols) {
    DenseMatrix<Real> m(rows, cols);
    for (Real& v : m.words) v = static_cast<Real>(normal(random));
    x.in[a] = m;
  };
  const index_t width = op == Operation::backward_w ? s.d_in : s.d;
  fill(dO, s.n_q, s.d_v);
  if (op == Operation::backward) {
    fill(Q, s.n_q, s.d);
    fill(K, s.n_k, s.d);
    fill(V, s.n_k, s.d_v);
    return x;
  }
  fill(A1, s.n_q, width);
  fill(A2, s.n_k, width);
  fill(A3, s.n_k, width);
  if (op == Operation::backward_w) {
    fill(WQ, width, s.d);
    fill(WK, width, s.d);
    fill(WV, width, s.d_v);
  } else {
    fill(X, s.d, s.d);
    fill(Y, s.d, s.d_v);
  }
  return x;
}

/// The array whose gradient this is.
SlowArray source_of(SlowArray gradient) {
  using enum SlowArray;
  static const std::map<SlowArray, SlowArray> sources = {{dQ, Q},   {dK, K},   {dV, V},   {g, X},
                                                         {dX, X},   {dY, Y},   {dA1, A1}, {dA2, A2},
                                                         {dA3, A3}, {dWQ, WQ}, {dWK, WK}, {dWV, WV}};
  return sources.at(gradient);
}

void expect_slopes_of_the_loss(const DenseProblem<Real>& x) {
  constexpr Real h = 1e-5L;
  for (const auto& [gradient, wanted] : gradients_of(x))
    for (std::size_t k = 0; k < wanted.words.size(); ++k) {
      DenseProblem<Real> up = x, down = x;
      up.in.at(source_of(gradient)).words[k] += h;
      down.in.at(source_of(gradient)).words[k] -= h;
      const Real slope = (loss_of(up) - loss_of(down)) / (2 * h);
      EXPECT_NEAR(static_cast<double>(wanted.words[k]), static_cast<double>(slope),
                  1e-7 * (1 + std::abs(static_cast<double>(slope))))
          << name_of(x.op) << ' ' << name_of(x.shape.score) << ' ' << name_of(gradient) << " word " << k;
    }
}

TEST(DenseGradients, AreTheSlopesOfTheLoss) {
  for (const Operation op : {Operation::backward, Operation::gradient_x, Operation::backward_x, Operation::backward_w})
    for (const Score score : {Score::softmax, Score::sigmoid, Score::relu, Score::identity})
      for (const Mask mask : {Mask{}, Mask{true, 1, 1}, Mask{true, -2, 2}})
        expect_slopes_of_the_loss(random_problem(op, {6, 4, 3, 2, mask, false, score, 5}));
}

TEST(DenseGradients, FromStatisticsAreTheSame) {
  const auto x = random_problem(Operation::backward, {6, 4, 3, 2, {true, -1, 1}, false});
  const auto forward = forward_of(x);
  const auto wanted = gradients_of(x),
             ours = gradients_from_statistics(x, forward.at(SlowArray::O), forward.at(SlowArray::lse));
  for (const auto& [gradient, m] : wanted)
    for (std::size_t k = 0; k < m.words.size(); ++k)
      EXPECT_NEAR(static_cast<double>(m.words[k]), static_cast<double>(ours.at(gradient).words[k]), 1e-15)
          << name_of(gradient);
}

}  // namespace
}  // namespace redblue::test
