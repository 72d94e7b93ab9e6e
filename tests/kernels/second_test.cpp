#include "redblue/kernels/second.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <random>

#include "kernels/tiles.hpp"
#include "support/cases.hpp"

/// Tiles of second derivatives: what the implementations give is what the parts of these kernels give.
namespace redblue::kernel {
namespace {

/// Largest difference over the largest entry.
template <class T>
double gap_between(const Matrix<T>& fast, const Matrix<T>& slow) {
  Matrix<T> a = fast, b = slow;
  double most = 0, size = 1;
  for (index_t i = 0; i < a.shape.rows; ++i)
    for (index_t j = 0; j < a.shape.cols; ++j) {
      const auto x = static_cast<double>(a.view()(i, j)), y = static_cast<double>(b.view()(i, j));
      if (std::isnan(x) || std::isnan(y)) return HUGE_VAL;
      most = std::max(most, std::abs(x - y));
      size = std::max(size, std::abs(y));
    }
  return most / size;
}

template <class T>
class TilesOfSecondDerivatives : public testing::Test {
 protected:
  std::mt19937 random{20261130};
  index_t draw(index_t low, index_t high) { return std::uniform_int_distribution<index_t>(low, high)(random); }
  /// Near multiples of vectors, register tiles and the queries that are taken at a time.
  index_t size() {
    return std::max<index_t>(
        1, std::array<index_t, 7>{1, 8, 16, 48, 64, 96, 130}[static_cast<std::size_t>(draw(0, 6))] + draw(-1, 1));
  }
  Matrix<T> matrix(index_t rows, index_t cols) { return {{rows, cols}, random, 1, draw(0, 3)}; }
  Place place(index_t rows, index_t keys) {
    const index_t row0 = draw(0, 50), col0 = draw(0, 50);
    Mask mask{.group = draw(1, 3)};
    const index_t diagonal = col0 - row0 / mask.group + draw(-rows, keys);
    if (draw(0, 2) > 0) mask.hi = diagonal + 1;
    if (draw(0, 2) == 0) mask.lo = diagonal - draw(0, keys);
    return {mask, row0, col0};
  }
};
using TypesOfWords = testing::Types<float, double>;
TYPED_TEST_SUITE(TilesOfSecondDerivatives, TypesOfWords);

TYPED_TEST(TilesOfSecondDerivatives, AreTheCompositionOfTheirParts) {
  using T = TypeParam;
  const bool any = on_every_vector_isa<T>(test::cases(150), [&](const Implementations<T>& table) {
    const index_t rows = this->size(), keys = this->size(), d_v = this->size();
    const index_t d = this->draw(0, 5) == 0 ? 300 : this->size();  // more than come at a time
    Matrix<T> Q = this->matrix(rows, d), A = this->matrix(rows, d), dO = this->matrix(rows, d_v),
              lse = this->matrix(rows, 1), r = this->matrix(rows, 1), D = this->matrix(rows, 1),
              w = this->matrix(rows, 1), x = this->matrix(rows, 1), K = this->matrix(keys, d),
              B = this->matrix(keys, d), V = this->matrix(keys, d_v), gV = this->matrix(keys, d_v),
              bias = this->matrix(std::array<index_t, 3>{0, 1, rows}[static_cast<std::size_t>(this->draw(0, 2))], keys);
    for (T& l : lse.words) l += T(3);
    for (index_t i = 0; i < rows; i += 4) lse.view()(i, 0) = -std::numeric_limits<T>::infinity();  // saw no key
    const Place place = this->place(rows, keys);
    const bool weighted = this->draw(0, 1) == 0;
    const MovingWeights moving{{0.125, place}, {}, Score::softmax, weighted};
    const SecondGradients gradients{{0.125, 0}, {}, place};
    const View<T> none;
    Matrix<T> P({rows, keys}), H = P, X = P, Y = P, sums = r, fast_sums = r;
    const auto of_weights = [&](View<T> p, View<T> h, Matrix<T>& sum, View<T> k, View<T> b) {
      return std::array{p, h, none, weighted ? sum.view() : none, Q.view(), A.view(), k, b, lse.view(), none, none};
    };
    const auto of_gradients = [&](View<T> h, View<T> dp, View<T> e, View<T> p, View<T> v, View<T> gv) {
      return std::array{h, dp, e, none, p, dO.view(), v, gv, D.view(), w.view(), x.view(), bias.view()};
    };
    const Layout layout = this->draw(0, 1) == 0 ? Layout::key_panels : Layout::read_only;
    const auto laid = [&](const Matrix<T>& m, Layout l) { return Laid<T>(table, m, l); };
    const Laid<T> fast_P = laid(P, Layout::padded_rows), fast_H = laid(P, Layout::padded_rows),
                  fast_X = laid(P, Layout::padded_rows), fast_Y = laid(P, Layout::padded_rows), of_K = laid(K, layout),
                  of_B = laid(B, layout), of_V = laid(V, layout), of_gV = laid(gV, layout);

    run<T>(moving, of_weights(P.view(), H.view(), sums, K.view(), B.view()));
    ASSERT_TRUE((table.template of<MovingWeights>()(
        moving, of_weights(fast_P.view, fast_H.view, fast_sums, of_K.view, of_B.view))));
    const double allowed = 400 * static_cast<double>(std::numeric_limits<T>::epsilon());
    EXPECT_LT(gap_between(fast_P.plain(table), P), allowed);
    for (index_t i = 0; i < rows; ++i)  // beside a weight of 0 a tangent says nothing
      for (index_t j = 0; j < keys; ++j)
        if (P.view()(i, j) == 0) H.view()(i, j) = fast_H.view(i, j) = 0;
    EXPECT_LT(gap_between(fast_H.plain(table), H), allowed);
    EXPECT_LT(gap_between(fast_sums, sums), allowed);

    run<T>(gradients, of_gradients(H.view(), X.view(), Y.view(), P.view(), V.view(), gV.view()));
    ASSERT_TRUE((table.template of<SecondGradients>()(
        gradients, of_gradients(fast_H.view, fast_X.view, fast_Y.view, fast_P.view, of_V.view, of_gV.view))));
    EXPECT_LT(gap_between(fast_H.plain(table), H), allowed);
    EXPECT_LT(gap_between(fast_X.plain(table), X), allowed);
    EXPECT_LT(gap_between(fast_Y.plain(table), Y), allowed);
  });
  if (!any) GTEST_SKIP() << "this machine has no instruction set with implementations of its own";
}

/// A query with one key moves its output along gV alone: its G and its dS are 0.
TYPED_TEST(TilesOfSecondDerivatives, QueriesWithOneKeyHaveNoGradient) {
  using T = TypeParam;
  on_every_isa<T>([&](const Implementations<T>& table) {
    const index_t rows = 9, d_v = this->size();
    Matrix<T> O = this->matrix(rows, d_v), dO = this->matrix(rows, d_v), V({1, d_v}), gV({1, d_v}, this->random),
              LdO({rows, d_v}), D({rows, 1}), x({rows, 1}), w = this->matrix(rows, 1), H = w, P({rows, 1}),
              X({rows, 1}), Y({rows, 1});
    for (T& p : P.words) p = T(1);
    for (index_t i = 0; i < rows; ++i)
      for (index_t t = 0; t < d_v; ++t) {
        V.view()(0, t) = O.view()(0, t);
        O.view()(i, t) = V.view()(0, t);
        LdO.view()(i, t) = w.view()(i, 0) * V.view()(0, t) + gV.view()(0, t);
      }
    const View<T> none;
    run<T>(table, RowDotsAndRest{},
           std::span<const View<T>>(std::array{D.view(), x.view(), LdO.view(), w.view(), dO.view(), O.view()}));
    run<T>(table, SecondGradients{},
           std::span<const View<T>>(std::array{H.view(), X.view(), Y.view(), none, P.view(), dO.view(), V.view(),
                                               gV.view(), D.view(), w.view(), x.view(), none}));
    for (index_t i = 0; i < rows; ++i) {
      EXPECT_EQ(X.view()(i, 0), 0);
      EXPECT_EQ(Y.view()(i, 0), 0);
      EXPECT_NEAR(static_cast<double>(H.view()(i, 0)), 0, 1e3 * static_cast<double>(std::numeric_limits<T>::epsilon()));
    }
  });
}

}  // namespace
}  // namespace redblue::kernel
