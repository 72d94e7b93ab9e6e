#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <random>

#include "kernels/tiles.hpp"
#include "redblue/kernels/implementations.hpp"

/// Implementations of the backward pass that multiply bf16 against the portable kernels, over shapes with ragged edges,
/// strides and masks.
namespace redblue::kernel {
namespace {

/// The nearest bf16 words.
Matrix<float> narrow(Matrix<float> m) {
  for (float& w : m.words) {
    const auto bits = std::bit_cast<std::uint32_t>(w);
    w = std::bit_cast<float>((bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000U);
  }
  return m;
}

/// Largest difference over the largest entry.
double away(Matrix<float> x, Matrix<float> from) {
  double most = 0, size = 1e-30;
  for (index_t i = 0; i < x.shape.rows; ++i)
    for (index_t j = 0; j < x.shape.cols; ++j) {
      const double a = x.view()(i, j), b = from.view()(i, j);
      most = std::max(most, std::isfinite(a) ? std::abs(a - b) : INFINITY);
      size = std::max(size, std::abs(b));
    }
  return most / size;
}

class Bf16Gradients : public testing::TestWithParam<Isa> {
 protected:
  std::mt19937 random{20261125};
  const Implementations<float>* table = nullptr;

  void SetUp() override {
    if (!is_available(GetParam()))
      GTEST_SKIP() << "THIS MACHINE HAS NO " << name_of(GetParam()) << ": its implementations are untested";
    table = &bf16_implementations(GetParam());
    ASSERT_NE(table->of<KeyGradients>(), implementations<float>(Isa::avx512).of<KeyGradients>());
    ASSERT_NE(table->of<GemmOver>(), implementations<float>(Isa::avx512).of<GemmOver>());
  }
  index_t draw(index_t low, index_t high) { return std::uniform_int_distribution<index_t>(low, high)(random); }
  /// Near multiples of vectors, register tiles and the terms that are paired at a time.
  index_t size() {
    constexpr std::array<index_t, 8> near{1, 4, 8, 16, 48, 64, 96, 193};
    return std::max<index_t>(1, near[static_cast<std::size_t>(draw(0, 7))] + draw(-1, 1));
  }
  Mask mask(index_t row0, index_t col0, index_t rows) {
    if (draw(0, 2) == 0) return {};
    Mask mask{.group = draw(1, 3)};
    mask.hi = col0 - row0 / mask.group + draw(-rows, 2 * rows) / 2 + 1;
    if (draw(0, 1) == 0) mask.lo = mask.hi - draw(1, 2 * rows);
    return mask;
  }
  Matrix<float> normal(Shape s) { return {s, random, 1, draw(0, 3)}; }
};

TEST_P(Bf16Gradients, OfKeysAreThoseOfTheParts) {
  for (int i = 0; i < 150 && !HasFailure(); ++i) {
    const index_t rows = size(), keys = size(), d = size(), d_v = size(), row0 = draw(0, 50), col0 = draw(0, 50);
    SCOPED_TRACE(testing::Message() << i << ": " << rows << " queries, " << keys << " keys, " << d << ", " << d_v);
    Matrix<float> Q = narrow(normal({rows, d})), K = narrow(normal({keys, d})), V = narrow(normal({keys, d_v}));
    Matrix<float> dO = narrow(normal({rows, d_v})), lse = Matrix<float>({rows, 1}, random), D = lse;
    for (float& w : lse.words) w += 5;
    for (index_t r = 0; r < rows; r += 4) lse.view()(r, 0) = -std::numeric_limits<float>::infinity();  // saw no key
    Matrix<float> P({rows, keys}), dS({rows, keys}), dK = normal({keys, d}), dV = normal({keys, d_v}), none({0, 0});
    Laid<float> fast_P(*table, P, KeyGradients::P), fast_dS(*table, dS, KeyGradients::dS);
    Laid<float> fast_K(*table, K, KeyGradients::K), fast_V(*table, V, KeyGradients::V);
    Matrix<float> fast_dK = dK, fast_dV = dV;
    const KeyGradients step{{1 / std::sqrt(static_cast<double>(d)), {mask(row0, col0, rows), row0, col0}}};
    const View<float> no = none.view();
    run<float>(step, std::array{P.view(), dS.view(), dK.view(), dV.view(), Q.view(), K.view(), V.view(), lse.view(),
                                D.view(), dO.view(), no, no, no, no});
    ASSERT_TRUE(table->of<KeyGradients>()(
        step, std::array{fast_P.view, fast_dS.view, fast_dK.view(), fast_dV.view(), Q.view(), fast_K.view, fast_V.view,
                         lse.view(), D.view(), dO.view(), no, no, no, no}));
    EXPECT_LT(away(fast_dS.plain(*table), dS), 3e-4);  // exp is off by up to 9e-5, and dS is not rounded yet
    EXPECT_LT(away(fast_dK, dK), 0x1p-7);
    EXPECT_LT(away(fast_dV, dV), 0x1p-7);
  }
}

TEST_P(Bf16Gradients, OfQueriesAreTheProduct) {
  for (int i = 0; i < 150 && !HasFailure(); ++i) {
    const index_t rows = size(), keys = size(), d = size(), row0 = draw(0, 50), col0 = draw(0, 50);
    SCOPED_TRACE(testing::Message() << i << ": " << rows << " queries, " << keys << " keys, " << d);
    const Place place{mask(row0, col0, rows), row0, col0};
    Matrix<float> dS = normal({rows, keys}), K = narrow(normal({keys, d})), dQ = normal({rows, d});
    for (index_t r = 0; r < rows; ++r)
      for (index_t j = 0; j < keys; ++j)
        if (const Range seen = place.cols_of(Range{r, r + 1}, keys); j < seen.begin || j >= seen.end)
          dS.view()(r, j) = 0;
    Matrix<float> fast_dQ = dQ;
    const GemmOver product{false, false, draw(0, 1) == 0, place};
    run<float>(product, std::array{dQ.view(), dS.view(), K.view()});
    run<float>(*table, product, std::array{fast_dQ.view(), dS.view(), K.view()});
    EXPECT_LT(away(fast_dQ, dQ), 0x1p-7);
  }
}

// Rounded operands and sums of whole numbers are exact: so the implementation rounds nothing but what it must.
TEST_P(Bf16Gradients, WholeNumbersAreMultipliedExactly) {
  Matrix<float> A({200, 401}), B({401, 70}), C({200, 70});
  for (Matrix<float>* m : {&A, &B})
    for (float& w : m->words) w = static_cast<float>(draw(-9, 9));
  Matrix<float> fast_C = C;
  run<float>(GemmOver{}, std::array{C.view(), A.view(), B.view()});
  ASSERT_TRUE(table->of<GemmOver>()(GemmOver{}, std::array{fast_C.view(), A.view(), B.view()}));
  EXPECT_EQ(fast_C.words, C.words);
}

INSTANTIATE_TEST_SUITE_P(EveryIsa, Bf16Gradients, testing::Values(Isa::avx512_bf16, Isa::amx_bf16),
                         [](const auto& isa) { return std::string(name_of(isa.param)); });

}  // namespace
}  // namespace redblue::kernel
