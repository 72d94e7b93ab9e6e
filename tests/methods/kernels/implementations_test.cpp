#include "redblue/kernels/implementations.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "kernels/tiles.hpp"
#include "redblue/methods/kernels/list.hpp"
#include "redblue/methods/maths/approximations.hpp"

/// Fast implementations of the kernels of approximate methods against the portable ones: any monomials, ragged blocks
/// of keys and queries, with and without sums.
namespace redblue::kernel {
namespace {

template <class T>
class ApproximateImplementationsTest : public testing::Test {
 protected:
  std::mt19937 random{20261125};

  index_t draw(index_t low, index_t high) { return std::uniform_int_distribution<index_t>(low, high)(random); }
  Monomials weighted_perhaps(Monomials m) {
    return draw(0, 1) == 0 ? m.times(near_exp(Fit::minimax, m.degree, 1), 0.5) : m;
  }
  /// All monomials of degree <= 2 in d coordinates, or some of degree <= 4, and the rows that they take.
  std::pair<Monomials, index_t> monomials(index_t d) {
    Monomials m;
    if (draw(0, 2) == 0) {
      m.degree = 2;
      m.block = d;
      return {weighted_perhaps(m), (d + 1) * (d + 2) / 2};
    }
    m.degree = draw(1, d > 8 ? 2 : 4);
    const index_t smallest = std::max<index_t>(1, ceil_div(d, m.degree));  // each of the blocks occurs in some monomial
    m.block = draw(0, 2) == 0 ? d : draw(smallest, d);
    m.constant = draw(0, 1) == 0;
    index_t all = 0;
    Matrix<double> x({1, d}), stack({m.degree, 1});
    detail::for_monomials<double>(m, x.view(), 0, stack.view(), index_t{1} << 20,
                                  [&](index_t, double, double, const auto&, index_t degree) { all += degree > 0; });
    m.first = draw(0, 2) == 0 ? draw(0, all - 1) : 0;
    const index_t rows = draw(0, 1) == 0 ? all - m.first : draw(1, all - m.first);
    return {weighted_perhaps(m), rows + (m.constant ? 1 : 0)};
  }
  Matrix<T> drawn(Shape s) { return Matrix<T>(s, random, 0.5, draw(0, 3)); }
  void expect_equal(Matrix<T> fast, Matrix<T> portable) {
    const double allowed = 400 * static_cast<double>(std::numeric_limits<T>::epsilon());
    double most = 0, size = 1;  // of what is summed: sums may cancel
    for (index_t i = 0; i < fast.shape.rows; ++i)
      for (index_t j = 0; j < fast.shape.cols; ++j) {
        const double x = static_cast<double>(fast.view()(i, j)), y = static_cast<double>(portable.view()(i, j));
        most = std::max(most, std::isfinite(x) ? std::abs(x - y) : HUGE_VAL);
        size = std::max(size, std::abs(y));
      }
    EXPECT_LT(most / size, allowed);
  }
  /// Runs both implementations on these operands; what they write or update must agree, but for scratch: the stack of
  /// monomials and scores.
  template <class K, class... M>
  void expect_same(const Implementations<T>& table, const K& k, M... operands) {
    std::array<Matrix<T>, sizeof...(M)> portable{operands...}, fast{operands...};
    const auto views = [](auto& list) {
      std::array<View<T>, sizeof...(M)> v;
      for (std::size_t i = 0; i < v.size(); ++i) v[i] = list[i].view();
      return v;
    };
    run<T>(k, views(portable));
    ASSERT_TRUE((table.template of<K>()(k, views(fast)))) << K::name;
    for (std::size_t i = 0; i < fast.size(); ++i) {
      SCOPED_TRACE(testing::Message() << K::name << ", argument " << i);
      const bool scratch =
          (i == 2 && std::is_base_of_v<Monomials, K>) || (i == 0 && std::is_same_v<PolynomialAttention, K>);
      if (K::access[i] != Access::read && !scratch) expect_equal(fast[i], portable[i]);
    }
  }
  template <class F>
  void on_every_isa(const F& f) {
    on_every_vector_isa<T>(40, f);
  }
};

using WordTypes = testing::Types<float, double>;
TYPED_TEST_SUITE(ApproximateImplementationsTest, WordTypes);

/// Keys go through blocks of 128, queries through blocks of 192 or of 15 vectors, monomials through blocks of 24 or
/// 160, and those of degree 2, where all are there, through blocks of 320 vectors of the state.
TYPED_TEST(ApproximateImplementationsTest, StatesAgree) {
  using T = TypeParam;
  this->on_every_isa([&](const Implementations<T>& table) {
    const index_t d = std::array<index_t, 6>{1, 3, 6, 16, 19, 30}[static_cast<std::size_t>(this->draw(0, 5))];
    const index_t rows = std::array<index_t, 5>{1, 15, 64, 97, 300}[static_cast<std::size_t>(this->draw(0, 4))];
    const index_t cols = std::array<index_t, 5>{0, 1, 16, 33, 64}[static_cast<std::size_t>(this->draw(0, 4))];
    const auto [m, r] = this->monomials(d);
    const index_t sums = cols == 0 ? 1 : this->draw(0, 1), weights = this->draw(0, 1) * sums;
    const Matrix<T> X = this->drawn({rows, d}), U = this->drawn({rows, cols}),
                    u = this->drawn({weights * rows, weights}), stack({m.degree, 1});
    const Matrix<T> Z = this->drawn({r, cols}), z = this->drawn({sums * r, sums});
    this->expect_same(table, AddMonomials{m}, Z, z, stack, X, U, u);
    this->expect_same(table, ApplyMonomials{m}, this->drawn({rows, cols}), this->drawn({sums * rows, sums}), stack, X,
                      Z, z);
  });
}

/// Queries go through blocks of four vectors, keys through blocks of 64, under any mask without a left edge.
TYPED_TEST(ApproximateImplementationsTest, PolynomialAttentionAgrees) {
  using T = TypeParam;
  this->on_every_isa([&](const Implementations<T>& table) {
    const auto size = [&](index_t most) { return this->draw(0, 2) == 0 ? this->draw(1, 5) : this->draw(1, most); };
    const index_t rows = size(140), keys = size(140), d = size(40), cols = size(70);
    PolynomialAttention k{{0.5}, PolynomialWeights{near_exp(Fit::minimax, this->draw(1, 5), 1)}};
    Place& place = k.scores.place;
    place = {{}, this->draw(0, 90), this->draw(0, 90)};
    place.mask.group = this->draw(1, 3);
    if (this->draw(0, 4) > 0) place.mask.hi = this->draw(-20, 40);
    if (place.mask.hi < Mask::kFar && this->draw(0, 2) == 0) place.mask.prefix = this->draw(0, 150);
    this->expect_same(table, k, Matrix<T>({rows, keys}), this->drawn({rows, cols}), this->drawn({rows, 1}),
                      this->drawn({rows, d}), this->drawn({keys, d}), this->drawn({keys, cols}));
  });
}

/// Sums whose inverse is beyond the range, and rows without any weight.
TYPED_TEST(ApproximateImplementationsTest, RowsAreDividedByAnySum) {
  using T = TypeParam;
  constexpr T kSmallest = std::numeric_limits<T>::denorm_min();
  this->on_every_isa([&](const Implementations<T>& table) {
    const index_t cols = this->draw(1, 40);
    Matrix<T> O = this->drawn({4, cols}), l({4, 1});
    l.words = {T(3), T(0), kSmallest, T(-0.25), T(0)};
    for (index_t t = 0; t < cols; ++t) O.view()(2, t) = kSmallest * T(t % 5);
    O.view()(1, 0) = std::numeric_limits<T>::quiet_NaN();
    this->expect_same(table, DivideRows{}, O, l);
  });
}

/// Feature maps, landmarks and units.
TYPED_TEST(ApproximateImplementationsTest, FeaturesAgree) {
  using T = TypeParam;
  this->on_every_isa([&](const Implementations<T>& table) {
    const auto size = [&] {
      return std::array<index_t, 6>{1, 5, 16, 33, 64, 70}[static_cast<std::size_t>(this->draw(0, 5))];
    };
    const index_t rows = 3 * size(), d = size(), cols = size();
    const auto drawn = [&](index_t r, index_t c) { return this->drawn({r, c}); };
    const auto column = [&](index_t r) {
      Matrix<T> m({r, 1}, this->random);
      for (T& w : m.words) w = std::abs(w) + T(0.5);
      return m;
    };
    const Matrix<T> X = drawn(rows, d), P = drawn(rows, cols);
    this->expect_same(table, AddElu{}, drawn(d, cols), column(d), X, drawn(rows, cols));
    this->expect_same(table, ApplyElu{}, drawn(rows, cols), column(rows), X, drawn(d, cols), column(d));
    const index_t first = this->draw(0, 9);
    this->expect_same(table, RandomFeatures{cols + 9, 3, first, 0.25, this->draw(0, 1) == 0}, P, X);
    this->expect_same(table, RescaleRows{}, P, drawn(rows, d), column(rows), drawn(rows, 1));
    this->expect_same(table, RescaleState{}, P, drawn(cols, d), column(cols), drawn(1, 1));
    this->expect_same(table, SoftmaxRows{}, P, this->draw(0, 1) == 0 ? column(cols) : Matrix<T>({0, 0}));
    this->expect_same(table, UnitScores{0.5}, P, Matrix<T>({1, cols}), X, drawn(cols, d));
    Matrix<T> A = drawn(d, d), Z({d, d});  // an inverse of which is near
    for (index_t i = 0; i < d; ++i)
      for (index_t j = 0; j < d; ++j) {
        A.view()(i, j) = T(i == j ? 1 : 0) + A.view()(i, j) / T(4 * d);
        Z.view()(i, j) = T(i == j ? 0.9 : 0);
      }
    std::array<Matrix<T>, 2> N{Matrix<T>({d, d}), Matrix<T>({d, d})};
    Matrix<T> t({d, 1}), u({d, 1});
    run<T>(PseudoInverseStep{}, std::array{N[0].view(), t.view(), u.view(), A.view(), Z.view()});
    ASSERT_TRUE((table.template of<PseudoInverseStep>()(
        PseudoInverseStep{}, std::array{N[1].view(), t.view(), u.view(), A.view(), Z.view()})));
    this->expect_equal(N[1], N[0]);  // t and u are scratch
  });
}

}  // namespace
}  // namespace redblue::kernel
