#include <gtest/gtest.h>

#include <cmath>

#include "kernels/tiles.hpp"
#include "redblue/kernels/softmax.hpp"

/// Errors of elementary functions that all weights of a row, or all scores, would share: sums do not make them smaller.
namespace redblue::kernel {
namespace {

/// Of one key and one feature: m becomes the score.
TEST(SmallErrors, OfASoftcapAreRelativeToTheScore) {
  constexpr index_t kQueries = 64;
  constexpr double kCap = 30;
  Matrix<float> Q({kQueries, 1}), K({1, 1}), V({1, 1});
  for (index_t i = 0; i < kQueries; ++i) Q.view()(i, 0) = static_cast<float>(0.01 * std::pow(1.1, i));  // to 4
  K.view()(0, 0) = V.view()(0, 0) = 1;
  on_every_isa([&](const Implementations<float>& table) {
    Matrix<float> m({kQueries, 1}), l({kQueries, 1});
    Laid<float> fast_Q(table, Q, OnlineAttention::Q), O(table, Matrix<float>({kQueries, 1}), OnlineAttention::O),
        S(table, Matrix<float>({kQueries, 1}), OnlineAttention::S);
    run<float>(table, SoftmaxInit{}, std::array{O.view, m.view(), l.view()});
    run<float>(
        table, OnlineAttention{.scores = {1, {}}, .modify = {.softcap = kCap}},
        std::array{S.view, O.view, m.view(), l.view(), fast_Q.view, K.view(), V.view(), View<float>(), View<float>()});
    for (index_t i = 0; i < kQueries; ++i) {
      const double score = kCap * std::tanh(double{Q.view()(i, 0)} / kCap);
      EXPECT_NEAR(m.view()(i, 0) / score, 1, 5e-7) << i;
    }
  });
}

/// The weights exp(s - lse) of a row, on average over its keys.
TEST(SmallErrors, OfLseInWeightsAreBelowItsLastPlace) {
  constexpr index_t kQueries = 64, kKeys = 96;
  std::mt19937 random{20261129};
  Matrix<float> Q({kQueries, 1}, random), K({kKeys, 1}, random), V({kKeys, 1}), dO({kQueries, 1}), D({kQueries, 1}),
      lse({kQueries, 1}, random);
  for (float& x : lse.words) x = 12 + std::abs(x);
  on_every_isa([&](const Implementations<float>& table) {
    Matrix<float> dK({kKeys, 1}), dV({kKeys, 1});
    Laid<float> fast_K(table, K, KeyGradients::K), fast_V(table, V, KeyGradients::V);
    Laid<float> P(table, Matrix<float>({kQueries, kKeys}), KeyGradients::P),
        dS(table, Matrix<float>({kQueries, kKeys}), KeyGradients::dS);
    run<float>(table, KeyGradients{{1, {}}},
               std::array{P.view, dS.view, dK.view(), dV.view(), Q.view(), fast_K.view, fast_V.view, lse.view(),
                          D.view(), dO.view(), View<float>(), View<float>(), View<float>(), View<float>()});
    double squares = 0;
    for (index_t i = 0; i < kQueries; ++i) {
      double sum = 0, exact = 0;
      for (index_t j = 0; j < kKeys; ++j) {
        sum += double{P.view(i, j)};
        exact += std::exp(double{Q.view()(i, 0)} * K.view()(j, 0) - lse.view()(i, 0));
      }
      squares += (sum / exact - 1) * (sum / exact - 1);
    }
    EXPECT_LT(std::sqrt(squares / kQueries), 1.5e-7);
  });
}

}  // namespace
}  // namespace redblue::kernel
