#include "redblue/methods/kernels/polynomial.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <random>

#include "kernels/tiles.hpp"
#include "redblue/methods/schedules/parts/polynomial_groups.hpp"

/// Kernels on monomials, against sums over lists of exponents and against p itself.
namespace redblue::kernel {
namespace {

struct Random {
  std::mt19937 engine;
  index_t operator()(index_t least, index_t most) { return std::uniform_int_distribution(least, most)(engine); }
};

/// The coordinates of a group, as a matrix of one row.
Matrix<double> coordinates_of(const schedule::MonomialGroup& g, Matrix<double>& x) {
  Matrix<double> part({1, g.coordinates});
  index_t at = 0;
  for (index_t k = 0; k < g.count; ++k)
    for (index_t t = g.blocks[static_cast<std::size_t>(k)] * g.monomials.block, end = t + g.monomials.block;
         t < std::min(end, x.shape.cols); ++t)
      part.view()(0, at++) = x.view()(0, t);
  EXPECT_EQ(at, g.coordinates);
  return part;
}

/// f(group) for groups of at most `room` monomials.
template <class F>
void for_groups(index_t d, index_t degree, index_t s, index_t room, const F& f) {
  const schedule::MonomialGroups groups(d, degree, s);
  const auto most = [&](index_t) { return redblue::Words(room); };
  redblue::Words count, coordinates, rows;
  groups.for_each(most, [&](const schedule::MonomialGroup& g) {
    EXPECT_EQ(g.first, count == 0);
    count += 1;
    coordinates += g.coordinates;
    rows += g.rows;
    EXPECT_LE(g.rows, room);
    f(g);
  });
  const auto totals = groups.totals(most, [](redblue::Words r, index_t) { return r; });
  EXPECT_EQ(totals.groups, count);
  EXPECT_EQ(totals.coordinates, coordinates);
  EXPECT_LE(totals.largest, room);
  EXPECT_EQ(rows, monomials(d, degree));
}

}  // namespace

/// Every monomial of degree <= g belongs to one group, and to one row of it.
TEST(Monomials, AreEachInOneGroup) {
  Random draw{std::mt19937(1)};
  for (int round = 0; round < 300; ++round) {
    const index_t d = draw(1, 7), degree = draw(1, 4), s = draw(1, d), room = draw(1, 40);
    std::map<std::vector<index_t>, int> seen;  // by the number of times that each coordinate occurs
    for_groups(d, degree, s, room, [&](const schedule::MonomialGroup& g) {
      Matrix<double> names({1, d}), stack({degree, 1});
      for (index_t t = 0; t < d; ++t) names.view()(0, t) = static_cast<double>(t);
      Matrix<double> part = coordinates_of(g, names);
      index_t next = 0;
      detail::for_monomials<double>(
          g.monomials, part.view(), 0, stack.view(), g.rows,
          [&](index_t row, double, double, const auto& list, index_t of_degree) {
            EXPECT_EQ(row, next++);
            std::vector<index_t> times(static_cast<std::size_t>(d));
            for (index_t k = 0; k < of_degree; ++k)
              ++times[static_cast<std::size_t>(part.view()(0, list[static_cast<std::size_t>(k)]))];
            ++seen[times];
          });
      EXPECT_EQ(next, g.rows);
    });
    EXPECT_EQ(monomials(d, degree), redblue::Words(seen.size()));
    for (const auto& [times, count] : seen) EXPECT_EQ(count, 1);
  }
}

/// With one key whose value is 1, the state applied to a query is p(scale q.k), and its derivative p'(scale q.k) scale
/// k.
TEST(Monomials, SumUpToThePolynomial) {
  Random draw{std::mt19937(2)};
  for (int round = 0; round < 200; ++round) {
    const index_t d = draw(1, 7), degree = draw(1, 5), s = draw(1, d), room = draw(1, 60);
    const double scale = 0.2 * static_cast<double>(draw(1, 5));
    const Polynomial p = near_exp(Fit::minimax, degree, 2);
    Matrix<double> q({1, d}, draw.engine), k({1, d}, draw.engine), stack({degree, 1}), none({1, 0}), one({1, 1});
    one.view()(0, 0) = 1;
    double den = 0, z = 0;
    std::vector<double> slope(static_cast<std::size_t>(d));
    for (index_t t = 0; t < d; ++t) z += scale * q.view()(0, t) * k.view()(0, t);
    for_groups(d, degree, s, room, [&](const schedule::MonomialGroup& g) {
      const Monomials weighted = g.monomials.times(p, scale);
      Matrix<double> state({g.rows, 1}), values({g.rows, 0}), sum({1, 1});
      Matrix<double> keys = coordinates_of(g, k), queries = coordinates_of(g, q), dQ({1, g.coordinates});
      AddMonomials{g.monomials}.run<double>(values.view(), state.view(), stack.view(), keys.view(), none.view(), {});
      ApplyMonomials{weighted}.run<double>(none.view(), sum.view(), stack.view(), queries.view(), values.view(),
                                           state.view());
      DifferentiateMonomials{weighted}.run<double>(dQ.view(), stack.view(), queries.view(), values.view(), state.view(),
                                                   none.view(), {});
      den += sum.view()(0, 0);
      index_t at = 0;
      for (index_t b = 0; b < g.count; ++b)
        for (index_t t = g.blocks[static_cast<std::size_t>(b)] * s;
             t < std::min(d, (g.blocks[static_cast<std::size_t>(b)] + 1) * s); ++t)
          slope[static_cast<std::size_t>(t)] += dQ.view()(0, at++);
    });
    EXPECT_NEAR(den, p(z), 1e-12 * (1 + std::abs(p(std::abs(z)))));
    for (index_t t = 0; t < d; ++t)
      EXPECT_NEAR(slope[static_cast<std::size_t>(t)], p.slope(z) * scale * k.view()(0, t),
                  1e-11 * (1 + std::abs(p.slope(std::abs(z)))) * (1 + std::abs(k.view()(0, t))));
  }
}

/// Values and row sums, weighted ones too, and gradients of a division by a sum.
TEST(Monomials, KernelsDoTheSameForEachColumn) {
  std::mt19937 random(3);
  const index_t rows = 10, cols = 3;  // C(3 + 2, 2) monomials
  const Polynomial p = near_exp(Fit::taylor, 2, 1);
  Monomials m;
  m.degree = 2;
  m.block = 3;
  const Monomials w = m.times(p, 0.5);
  Matrix<double> X({2, 3}, random), U({2, cols}, random), u({2, 1}, random), stack({2, 1});
  Matrix<double> Z({rows, cols}), z({rows, 1});
  AddMonomials{w}.run<double>(Z.view(), z.view(), stack.view(), X.view(), U.view(), u.view());
  for (index_t t = 0; t < cols; ++t) {  // column t of U in place of u
    Matrix<double> column({2, 1}), alone({rows, 1}), nothing({rows, 0}), none({2, 0});
    for (index_t i = 0; i < 2; ++i) column.view()(i, 0) = U.view()(i, t);
    AddMonomials{w}.run<double>(nothing.view(), alone.view(), stack.view(), X.view(), none.view(), column.view());
    for (index_t a = 0; a < rows; ++a) EXPECT_EQ(alone.view()(a, 0), Z.view()(a, t));
  }
  Matrix<double> dO({1, cols}, random), num({1, cols}, random), den({1, 1});
  den.view()(0, 0) = 2.5;
  Matrix<double> dNum = dO, dDen = den;
  DivisionGradients{}.run<double>(dNum.view(), dDen.view(), num.view());
  double D = 0;
  for (index_t t = 0; t < cols; ++t) {
    EXPECT_DOUBLE_EQ(dNum.view()(0, t), dO.view()(0, t) / 2.5);
    D += dO.view()(0, t) * num.view()(0, t) / 2.5;
  }
  EXPECT_NEAR(dDen.view()(0, 0), -D / 2.5, 1e-15);
}

/// Parameters that no schedule gives, as a damaged trace may.
TEST(Monomials, KnowWhatTheyCanRunWith) {
  Monomials m;
  m.degree = 2;
  EXPECT_TRUE(m.may_run(2, 6));
  EXPECT_FALSE(m.may_run(1, 6));
  EXPECT_FALSE(m.may_run(2, 0));
  m.degree = 13;
  EXPECT_FALSE(m.may_run(13, 6));
  m.degree = 2;
  m.block = 0;
  EXPECT_FALSE(m.may_run(2, 6));
  m.block = 1;
  m.first = -1;
  EXPECT_FALSE(m.may_run(2, 6));
}

}  // namespace redblue::kernel
