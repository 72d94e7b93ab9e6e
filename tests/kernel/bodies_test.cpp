#include "redblue/kernel/bodies.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

/// A kernel's fast body against the portable one, over shapes with ragged edges, strides, masks, for every instruction
/// set of this machine: what one gives, the other gives, up to rounding.
namespace redblue::kernel {
namespace {

/// A matrix with strides of its own.
template <class T>
struct Matrix {
  std::vector<T> words;
  Shape shape;
  index_t stride;

  explicit Matrix(Shape s, index_t extra = 0)
      : words(static_cast<std::size_t>((s.rows + 1) * (s.cols + extra))), shape(s), stride(s.cols + extra) {}
  Matrix(Shape s, std::mt19937& random, double size = 1, index_t extra = 0) : Matrix(s, extra) {
    std::normal_distribution<double> normal(0, size);
    for (T& w : words) w = static_cast<T>(normal(random));
  }
  View<T> view() { return {words.data(), shape, stride}; }
};

/// A tile as a machine would lay it out for these bodies, with what `from` holds.
template <class T>
struct Laid {
  std::vector<T> words;
  View<T> view;

  Laid(const Bodies<T>& table, Matrix<T> from, Layout layout) {
    const Placement p = place(table, from.shape, layout);
    words.assign(static_cast<std::size_t>(p.words), std::numeric_limits<T>::quiet_NaN());
    view = View<T>(words.data(), from.shape, p.row_stride, 1, p.layout);
    if (p.layout == Layout::query_panels || p.layout == Layout::output_panels) {
      table.pack(from.view(), words.data());
    } else if (p.layout != Layout::panel_scratch) {
      for (index_t i = 0; i < from.shape.rows; ++i)
        for (index_t j = 0; j < from.shape.cols; ++j) view(i, j) = from.view()(i, j);
      if (p.layout == Layout::key_panels) table.pack(view, words.data() + from.shape.words());
    }
  }
  Matrix<T> plain(const Bodies<T>& table) const {
    Matrix<T> m(view.shape);
    if (view.packed()) {
      table.unpack(words.data(), m.view());
    } else {
      for (index_t i = 0; i < view.rows(); ++i)
        for (index_t j = 0; j < view.cols(); ++j) m.view()(i, j) = view(i, j);
    }
    return m;
  }
};

/// Largest difference over the largest entry; infinities must agree, NaN never does.
template <class T>
double difference(Matrix<T> a, Matrix<T> b) {
  double most = 0, size = 1e-30;
  for (index_t i = 0; i < a.shape.rows; ++i)
    for (index_t j = 0; j < a.shape.cols; ++j) {
      const double x = static_cast<double>(a.view()(i, j)), y = static_cast<double>(b.view()(i, j));
      if (x == y) continue;
      if (!std::isfinite(x) || !std::isfinite(y)) return std::numeric_limits<double>::infinity();
      most = std::max(most, std::abs(x - y));
      size = std::max(size, std::abs(y));
    }
  return most / size;
}

template <class T>
class BodiesTest : public testing::Test {
 protected:
  std::mt19937 random{20261121};
  const double allowed = 400 * static_cast<double>(std::numeric_limits<T>::epsilon());

  index_t draw(index_t low, index_t high) { return std::uniform_int_distribution<index_t>(low, high)(random); }
  /// Shapes near multiples of vectors, register tiles and panels, and tiny ones.
  index_t size() {
    const index_t near = std::array<index_t, 8>{1, 4, 8, 16, 24, 48, 96, 130}[static_cast<std::size_t>(draw(0, 7))];
    return std::max<index_t>(1, near + draw(-1, 1));
  }
  Mask mask(index_t row0, index_t col0, index_t rows) {
    if (draw(0, 2) == 0) return {};
    const index_t group = draw(1, 3);
    return {true, col0 - row0 / group + draw(-rows, 2 * rows) / 2, group};
  }
  template <class F>
  void on_every_isa(const F& f) {
    int tried = 0;
    for (const Isa isa : kIsas) {
      if (isa == Isa::portable || !is_available(isa)) continue;
      SCOPED_TRACE(name_of(isa));
      for (int i = 0; i < 150; ++i) {
        SCOPED_TRACE(i);
        f(bodies<T>(isa));
        if (this->HasFailure()) return;
      }
      ++tried;
    }
    if (tried == 0) GTEST_SKIP() << "this machine has no instruction set with bodies of its own";
  }
};

using WordTypes = testing::Types<float, double>;
TYPED_TEST_SUITE(BodiesTest, WordTypes);

TYPED_TEST(BodiesTest, OnlineAttentionIsTheCompositionOfItsParts) {
  using T = TypeParam;
  this->on_every_isa([&](const Bodies<T>& table) {
    const index_t rows = this->size(), d = this->size(), d_v = this->size(), row0 = this->draw(0, 50);
    const Score score = std::array{Score::softmax, Score::softmax, Score::sigmoid, Score::relu,
                                   Score::identity}[static_cast<std::size_t>(this->draw(0, 4))];
    const index_t statistics = score == Score::softmax ? 1 : 0, most_keys = 2 * this->size();
    const double scale = std::array{0.125, 1.0, -0.5, 0.0}[static_cast<std::size_t>(this->draw(0, 3))];
    Matrix<T> Q({rows, d}, this->random), O({rows, d_v}), m({rows, statistics}), l({rows, statistics});
    Laid<T> fast_Q(table, Q, OnlineAttention::Q), fast_O(table, O, OnlineAttention::O);
    Matrix<T> fast_m = m, fast_l = l;
    run<T>(SoftmaxInit{}, std::array{O.view(), m.view(), l.view()});
    run<T>(table, SoftmaxInit{}, std::array{fast_O.view, fast_m.view(), fast_l.view()});
    const Mask mask = this->mask(row0, 0, rows);
    Matrix<T> S({rows, most_keys});
    Laid<T> fast_S(table, S, OnlineAttention::S);
    for (index_t j = 0; j < 3 * most_keys; j += most_keys) {
      const index_t keys = this->draw(1, most_keys);
      Matrix<T> K({keys, d}, this->random, 1, this->draw(0, 5)), V({keys, d_v}, this->random, 1, this->draw(0, 5));
      const OnlineAttention step{{scale, mask, row0, j}, score};
      const auto cut = [&](View<T> s) {
        s.shape.cols = keys;
        return s;
      };
      run<T>(step, std::array{cut(S.view()), O.view(), m.view(), l.view(), Q.view(), K.view(), V.view()});
      const std::array views{cut(fast_S.view), fast_O.view, fast_m.view(), fast_l.view(),
                             fast_Q.view,      K.view(),    V.view()};
      if (fast_O.view.packed()) {  // a few queries are not packed: then the parts have bodies of their own
        ASSERT_TRUE((table.template body<OnlineAttention>()(step, views)));
      } else {
        run<T>(table, step, views);
      }
    }
    const SoftmaxFinish finish{score};
    run<T>(finish, std::array{O.view(), m.view(), l.view()});
    run<T>(table, finish, std::array{fast_O.view, fast_m.view(), fast_l.view()});
    EXPECT_LT(difference(fast_O.plain(table), O), this->allowed);
    EXPECT_LT(difference(fast_m, m), this->allowed);  // lse; l alone depends on the m that a body has chosen
  });
}

TYPED_TEST(BodiesTest, KeyGradientsAreTheCompositionOfTheirParts) {
  using T = TypeParam;
  this->on_every_isa([&](const Bodies<T>& table) {
    const index_t rows = this->size(), keys = this->size(), d = this->size(), d_v = this->size();
    const index_t row0 = this->draw(0, 50), col0 = this->draw(0, 50);
    Matrix<T> Q({rows, d}, this->random, 1, this->draw(0, 3)), K({keys, d}, this->random), V({keys, d_v}, this->random);
    Matrix<T> dO({rows, d_v}, this->random, 1, this->draw(0, 3)), lse({rows, 1}, this->random),
        D({rows, 1}, this->random);
    Matrix<T> P({rows, keys}), dS({rows, keys}), dK({keys, d}, this->random), dV({keys, d_v}, this->random);
    for (T& w : lse.words) w += T(3);
    Laid<T> fast_P(table, P, KeyGradients::P), fast_dS(table, dS, KeyGradients::dS);
    Laid<T> fast_K(table, K, KeyGradients::K), fast_V(table, V, KeyGradients::V);
    Matrix<T> fast_dK = dK, fast_dV = dV;
    const KeyGradients step{{0.125, this->mask(row0, col0, rows), row0, col0}};
    run<T>(step, std::array{P.view(), dS.view(), dK.view(), dV.view(), Q.view(), K.view(), V.view(), lse.view(),
                            D.view(), dO.view()});
    const std::array views{fast_P.view, fast_dS.view, fast_dK.view(), fast_dV.view(), Q.view(),
                           fast_K.view, fast_V.view,  lse.view(),     D.view(),       dO.view()};
    ASSERT_TRUE((table.template body<KeyGradients>()(step, views)));
    EXPECT_LT(difference(fast_P.plain(table), P), this->allowed);
    EXPECT_LT(difference(fast_dS.plain(table), dS), this->allowed);
    EXPECT_LT(difference(fast_dK, dK), this->allowed);
    EXPECT_LT(difference(fast_dV, dV), this->allowed);
  });
}

TYPED_TEST(BodiesTest, ProductsAgreeForAnyTransposeAndStride) {
  using T = TypeParam;
  this->on_every_isa([&](const Bodies<T>& table) {
    const index_t rows = this->size(), cols = this->size(), k = 3 * this->size();
    const bool ta = this->draw(0, 1) == 1, tb = this->draw(0, 1) == 1, tc = this->draw(0, 3) == 0;
    const auto shape = [](index_t r, index_t c, bool t) { return t ? Shape{c, r} : Shape{r, c}; };
    Matrix<T> A(shape(rows, k, ta), this->random, 1, this->draw(0, 3)),
        B(shape(k, cols, tb), this->random, 1, this->draw(0, 3));
    Matrix<T> C(shape(rows, cols, tc), this->random, 1, this->draw(0, 3)), fast = C;
    const auto way = [&](View<T> v) { return tc ? v.transposed() : v; };
    const GemmOver over{ta, tb, this->draw(0, 1) == 1};
    run<T>(over, std::array{way(C.view()), A.view(), B.view()});
    ASSERT_TRUE((table.template body<GemmOver>()(over, std::array{way(fast.view()), A.view(), B.view()})));
    EXPECT_LT(difference(fast, C), this->allowed);
    const Gemm gemm{ta, tb};
    run<T>(gemm, std::array{way(C.view()), A.view(), B.view()});
    ASSERT_TRUE((table.template body<Gemm>()(gemm, std::array{way(fast.view()), A.view(), B.view()})));
    EXPECT_LT(difference(fast, C), this->allowed);
    EXPECT_EQ(fast.words.back(), C.words.back()) << "words beyond the matrix stay";
  });
}

TYPED_TEST(BodiesTest, ScoresAgree) {
  using T = TypeParam;
  this->on_every_isa([&](const Bodies<T>& table) {
    const index_t rows = this->size(), keys = this->size(), d = this->size(), row0 = this->draw(0, 9);
    Matrix<T> Q({rows, d}, this->random), K({keys, d}, this->random, 1, 2), S({rows, keys}, 3), fast = S;
    const Scores scores{0.25, this->mask(row0, 7, rows), row0, 7};
    run<T>(scores, std::array{S.view(), Q.view(), K.view()});
    ASSERT_TRUE((table.template body<Scores>()(scores, std::array{fast.view(), Q.view(), K.view()})));
    EXPECT_LT(difference(fast, S), this->allowed);
  });
}

TYPED_TEST(BodiesTest, PassesOverRowsAgree) {
  using T = TypeParam;
  this->on_every_isa([&](const Bodies<T>& table) {
    const index_t rows = this->size(), keys = this->size(), d_v = this->size(), row0 = this->draw(0, 9);
    Matrix<T> S({rows, keys}, this->random, 3, this->draw(0, 5)), O({rows, d_v}, this->random, 1, this->draw(0, 5));
    Matrix<T> m({rows, 1}, this->random, 3), l({rows, 1}, this->random), dP({rows, keys}, this->random, 1, 2);
    for (index_t i = 0; i < rows; ++i) l.view()(i, 0) = std::abs(l.view()(i, 0));
    const Mask mask = this->mask(row0, 7, rows);
    for (index_t i = 0; i < rows; ++i)
      for (index_t j = std::max<index_t>(0, mask.visible(row0 + i, 7 + keys) - 7); j < keys; ++j)
        S.view()(i, j) = -std::numeric_limits<T>::infinity();
    if (this->draw(0, 1) == 0)
      for (index_t i = 0; i < rows; i += 3) m.view()(i, 0) = -std::numeric_limits<T>::infinity(), l.view()(i, 0) = 0;
    Matrix<T> P = S, lse = m, D = l;
    {
      Matrix<T> fast_S = S, fast_O = O, fast_m = m, fast_l = l;
      run<T>(OnlineSoftmax{}, std::array{S.view(), O.view(), m.view(), l.view()});
      ASSERT_TRUE((table.template body<OnlineSoftmax>()(
          OnlineSoftmax{}, std::array{fast_S.view(), fast_O.view(), fast_m.view(), fast_l.view()})));
      EXPECT_LT(difference(fast_S, S), this->allowed);
      EXPECT_LT(difference(fast_O, O), this->allowed);
      EXPECT_EQ(difference(fast_m, m), 0);
      EXPECT_LT(difference(fast_l, l), this->allowed);
    }
    for (index_t i = 0; i < rows; i += 3) lse.view()(i, 0) = 5;  // -inf only beside rows that see nothing
    Matrix<T> fast_P = P, fast_dP = dP;
    const Weights weights{Score::softmax, 0.5};
    run<T>(weights, std::array{P.view(), lse.view()});
    ASSERT_TRUE((table.template body<Weights>()(weights, std::array{fast_P.view(), lse.view()})));
    EXPECT_LT(difference(fast_P, P), this->allowed);
    const ScoreGradient gradient{Score::softmax, 0.5, mask, row0, 7};
    run<T>(gradient, std::array{dP.view(), P.view(), D.view()});
    ASSERT_TRUE((table.template body<ScoreGradient>()(gradient, std::array{fast_dP.view(), P.view(), D.view()})));
    EXPECT_LT(difference(fast_dP, dP), this->allowed);
    fast_P = P;
    const ScoreGradientOver over{Score::softmax, 0.5};
    run<T>(over, std::array{P.view(), dP.view(), D.view()});
    ASSERT_TRUE((table.template body<ScoreGradientOver>()(over, std::array{fast_P.view(), dP.view(), D.view()})));
    EXPECT_LT(difference(fast_P, P), this->allowed);
  });
}

// docs/numerics.md: where one key has all the weight, dP - D is 0, not noise.
TYPED_TEST(BodiesTest, RowDotsAndValueGradientsSumInOneOrder) {
  using T = TypeParam;
  this->on_every_isa([&](const Bodies<T>& table) {
    const index_t rows = this->size(), d_v = 3 * this->size();
    Matrix<T> dO({rows, d_v}, this->random), V({1, d_v}, this->random), O({rows, d_v}), D({rows, 1}), dP({rows, 1});
    for (index_t i = 0; i < rows; ++i)
      for (index_t t = 0; t < d_v; ++t) O.view()(i, t) = V.view()(0, t);
    Matrix<T> P({rows, 1}), dV({1, d_v});
    ASSERT_TRUE((table.template body<RowDots>()(RowDots{}, std::array{D.view(), dO.view(), O.view()})));
    ASSERT_TRUE((table.template body<ValueGradients>()(
        ValueGradients{}, std::array{dP.view(), dV.view(), P.view(), V.view(), dO.view()})));
    for (index_t i = 0; i < rows; ++i) EXPECT_EQ(D.view()(i, 0), dP.view()(i, 0)) << i;
  });
}

TEST(Bodies, PackedTilesAreRefusedByKernelsWithoutABodyForThem) {
  for (const Isa isa : kIsas) {
    if (isa == Isa::portable || !is_available(isa)) continue;
    const Bodies<float>& table = bodies<float>(isa);
    Laid<float> tile(table, Matrix<float>({20, 7}), Layout::query_panels);
    EXPECT_THROW(run<float>(table, Zero{}, std::array{tile.view}), std::logic_error);
  }
}

}  // namespace
}  // namespace redblue::kernel
