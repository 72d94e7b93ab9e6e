#include "redblue/kernels/implementations.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <random>
#include <vector>

#include "kernels/tiles.hpp"
#include "redblue/kernels/pair_by_pair.hpp"
#include "redblue/machines/ram/routes.hpp"
#include "support/cases.hpp"

/// A kernel's fast implementation against the portable one, over shapes with ragged edges, strides, masks, for every
/// instruction set of this machine: what one gives, the other gives, up to rounding.
namespace redblue::kernel {
namespace {

/// Largest difference over the largest entry, or over `size` if all are smaller. Infinities and NaN must agree; but
/// where the portable implementation makes a NaN of a weight of 0, the fast one may not have looked.
template <class T>
double difference(Matrix<T> fast, Matrix<T> portable, bool may_skip = false, double size = 1e-30) {
  double most = 0;
  for (index_t i = 0; i < fast.shape.rows; ++i)
    for (index_t j = 0; j < fast.shape.cols; ++j) {
      const double x = static_cast<double>(fast.view()(i, j)), y = static_cast<double>(portable.view()(i, j));
      if (x == y || (std::isnan(y) && (may_skip || std::isnan(x)))) continue;
      if (!std::isfinite(x) || !std::isfinite(y)) return std::numeric_limits<double>::infinity();
      most = std::max(most, std::abs(x - y));
      size = std::max(size, std::abs(y));
    }
  return most / size;
}

template <class T>
class ImplementationsTest : public testing::Test {
 protected:
  std::mt19937 random{20261121};
  const double allowed = 400 * static_cast<double>(std::numeric_limits<T>::epsilon());

  index_t draw(index_t low, index_t high) { return std::uniform_int_distribution<index_t>(low, high)(random); }
  /// Shapes near multiples of vectors, register tiles and panels, and tiny ones.
  index_t size() {
    const index_t near = std::array<index_t, 9>{1, 4, 8, 16, 24, 48, 64, 96, 130}[static_cast<std::size_t>(draw(0, 8))];
    return std::max<index_t>(1, near + draw(-1, 1));
  }
  Mask mask(index_t row0, index_t col0, index_t rows) {
    if (draw(0, 2) == 0) return {};
    Mask mask{.group = draw(1, 3)};
    const index_t diagonal = col0 - row0 / mask.group + draw(-rows, 2 * rows) / 2;
    if (draw(0, 3) > 0) mask.hi = diagonal + 1;
    if (draw(0, 1) == 0) mask.lo = diagonal + 1 - draw(1, 2 * rows);
    if (draw(0, 3) == 0) mask.prefix = col0 + draw(0, 2 * rows);
    return mask;
  }
  /// Modifiers of a tile of scores at this place, and their operands.
  struct Modified {
    ModifyScores modify;
    Drop drop;
    Matrix<T> bias, slopes;
  };
  Modified modified(Shape S, const Place& place, bool softmax, bool forward = false) {
    Modified m{{0, draw(-5, 5), place}, {}, Matrix<T>({0, 0}), Matrix<T>({0, 1})};
    if (draw(0, 1) == 0) return m;
    if (draw(0, 1) == 0) {  // a bias of pairs alone, which is added in registers
      m.bias = Matrix<T>(S, random, draw(0, 1) == 0 || !forward ? 1 : 40, draw(0, 3));
      for (index_t i = draw(0, 2) * S.words() / 3; i > 0; --i)
        m.bias.view()(draw(0, S.rows - 1), draw(0, S.cols - 1)) = -std::numeric_limits<T>::infinity();
      return m;
    }
    if (const index_t rows = std::array<index_t, 3>{0, 1, S.rows}[static_cast<std::size_t>(draw(0, 2))]; rows > 0)
      m.bias = Matrix<T>({rows, S.cols}, random, 1, draw(0, 3));
    if (draw(0, 1) == 0) m.slopes = Matrix<T>({place.mask.group, 1}, random, 0.1);
    if (softmax && draw(0, 1) == 0) m.modify.softcap = 2;
    if (softmax && draw(0, 1) == 0)
      m.drop = {0.3, draw(0, 1000), draw(0, 9), place.mask.group, draw(0, 9), place.row, draw(0, 9) + place.col};
    return m;
  }
  /// A NaN or an infinity somewhere, or in half of the cases nothing.
  bool spoil(Matrix<T>& m, bool infinities = true) {
    constexpr T kInfinity = std::numeric_limits<T>::infinity(), kNaN = std::numeric_limits<T>::quiet_NaN();
    if (draw(0, 1) == 0) return false;
    m.view()(draw(0, m.shape.rows - 1), draw(0, m.shape.cols - 1)) =
        std::array{kNaN, kInfinity, -kInfinity}[static_cast<std::size_t>(infinities ? draw(0, 2) : 0)];
    return true;
  }
  /// Small whole numbers times a power of two: their products are exact, and so are sums of those in any order.
  Matrix<T> whole(Shape shape, double size = 1) {
    Matrix<T> m(shape);
    for (T& w : m.words) w = static_cast<T>(size * static_cast<double>(draw(-3, 3)));
    return m;
  }
  /// Scores of the last query beyond the type, all of one sign.
  void overflow(Matrix<T>& Q) {
    const T most = draw(0, 1) == 0 ? std::numeric_limits<T>::max() : std::numeric_limits<T>::lowest();
    for (index_t t = 0; t < Q.shape.cols; ++t) Q.view()(Q.shape.rows - 1, t) = most;
  }
  Matrix<T> positive(Matrix<T> m) {
    for (T& w : m.words) w = std::abs(w) + 1;
    return m;
  }
  /// From 1 to 1e12
  double power() { return std::ldexp(1.0, static_cast<int>(draw(0, 40))); }

  template <class F>
  void on_every_isa(const F& f, int times = test::cases(150)) {
    if (!on_every_vector_isa<T>(times, f))
      GTEST_SKIP() << "this machine has no instruction set with implementations of its own";
  }
};

using WordTypes = testing::Types<float, double>;
TYPED_TEST_SUITE(ImplementationsTest, WordTypes);

TYPED_TEST(ImplementationsTest, OnlineAttentionIsTheCompositionOfItsParts) {
  using T = TypeParam;
  this->on_every_isa([&](const Implementations<T>& table) {
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
      const Place place{mask, row0, j};
      auto modified = this->modified({rows, keys}, place, score == Score::softmax, true);
      const OnlineAttention step{{scale, place}, score, modified.modify, modified.drop};
      const View<T> bias = modified.bias.view(), slopes = modified.slopes.view();
      const auto cut = [&](View<T> s) {
        s.shape.cols = keys;
        return s;
      };
      run<T>(step, std::array{cut(S.view()), O.view(), m.view(), l.view(), Q.view(), K.view(), V.view(), bias, slopes});
      const std::array views{cut(fast_S.view), fast_O.view, fast_m.view(), fast_l.view(), fast_Q.view,
                             K.view(),         V.view(),    bias,          slopes};
      if (fast_O.view.packed()) {  // a few queries are not packed: then the parts have implementations of their own
        ASSERT_TRUE((table.template of<OnlineAttention>()(step, views)));
      } else {
        run<T>(table, step, views);
      }
    }
    const SoftmaxFinish finish{score};
    run<T>(finish, std::array{O.view(), m.view(), l.view()});
    run<T>(table, finish, std::array{fast_O.view, fast_m.view(), fast_l.view()});
    EXPECT_LT(difference(fast_O.plain(table), O), this->allowed);
    EXPECT_LT(difference(fast_m, m), this->allowed);  // lse; l alone depends on the m that an implementation has chosen
  });
}

TYPED_TEST(ImplementationsTest, KeyGradientsAreTheCompositionOfTheirParts) {
  using T = TypeParam;
  this->on_every_isa([&](const Implementations<T>& table) {
    const index_t rows = this->size(), keys = this->size(), d = this->size(), d_v = this->size();
    const index_t row0 = this->draw(0, 50), col0 = this->draw(0, 50);
    Matrix<T> Q({rows, d}, this->random, 1, this->draw(0, 3)), K({keys, d}, this->random), V({keys, d_v}, this->random);
    Matrix<T> dO({rows, d_v}, this->random, 1, this->draw(0, 3)), lse({rows, 1}, this->random),
        D({rows, 1}, this->random);
    Matrix<T> P({rows, keys}), dS({rows, keys}), dK({keys, d}, this->random), dV({keys, d_v}, this->random);
    for (T& w : lse.words) w += T(3);
    for (index_t i = 0; i < rows; i += 4) lse.view()(i, 0) = -std::numeric_limits<T>::infinity();  // saw no key
    Laid<T> fast_P(table, P, KeyGradients::P), fast_dS(table, dS, KeyGradients::dS);
    Laid<T> fast_K(table, K, KeyGradients::K), fast_V(table, V, KeyGradients::V);
    Matrix<T> fast_dK = dK, fast_dV = dV;
    const Place place{this->mask(row0, col0, rows), row0, col0};
    auto modified = this->modified({rows, keys}, place, true);
    const KeyGradients step{{0.125, place}, {modified.modify, modified.drop}};
    const bool capped = modified.modify.softcap > 0, drops = modified.drop.share > 0,
               apart = capped && this->draw(0, 1) == 0;  // for dBias
    const auto if_any = [&](bool any) { return any ? Shape{rows, keys} : Shape{0, 0}; };
    Matrix<T> G(if_any(drops || (capped && !apart))), F(if_any(apart));
    Laid<T> fast_G(table, G, KeyGradients::dS), fast_F(table, F, KeyGradients::dS);
    const View<T> bias = modified.bias.view(), slopes = modified.slopes.view();
    run<T>(step, std::array{P.view(), dS.view(), dK.view(), dV.view(), Q.view(), K.view(), V.view(), lse.view(),
                            D.view(), dO.view(), G.view(), F.view(), bias, slopes});
    const std::array views{fast_P.view, fast_dS.view, fast_dK.view(), fast_dV.view(), Q.view(),
                           fast_K.view, fast_V.view,  lse.view(),     D.view(),       dO.view(),
                           fast_G.view, fast_F.view,  bias,           slopes};
    ASSERT_TRUE((table.template of<KeyGradients>()(step, views)));
    EXPECT_LT(difference(fast_P.plain(table), P), this->allowed);
    EXPECT_LT(difference(fast_dS.plain(table), dS), this->allowed);
    EXPECT_LT(difference(fast_dK, dK), this->allowed);
    EXPECT_LT(difference(fast_dV, dV), this->allowed);
  });
}

/// The two ways of OnlineAttention over blocks of keys, from beginning to end: what they leave in O and lse.
template <class T>
struct TwoWays {
  const Implementations<T>& table;
  Score score;
  Matrix<T> Q, O, m, l, fast_m, fast_l;
  Laid<T> fast_Q, fast_O;

  TwoWays(const Implementations<T>& implementations, const Matrix<T>& q, index_t d_v, Score f)
      : table(implementations),
        score(f),
        Q(q),
        O({q.shape.rows, d_v}),
        m({q.shape.rows, f == Score::softmax ? 1 : 0}),
        l(m),
        fast_m(m),
        fast_l(m),
        fast_Q(implementations, q, OnlineAttention::Q),
        fast_O(implementations, O, OnlineAttention::O) {
    run<T>(SoftmaxInit{}, std::array{O.view(), m.view(), l.view()});
    run<T>(table, SoftmaxInit{}, std::array{fast_O.view, fast_m.view(), fast_l.view()});
  }
  /// The fast implementation may want keys and values in another way.
  void step(const OnlineAttention& k, Matrix<T>& K, Matrix<T>& V, const View<T>& fast_K, const View<T>& fast_V) {
    Matrix<T> S({Q.shape.rows, K.shape.rows});
    Laid<T> fast_S(table, S, OnlineAttention::S);
    const View<T> none;
    run<T>(k, std::array{S.view(), O.view(), m.view(), l.view(), Q.view(), K.view(), V.view(), none, none});
    const std::array views{fast_S.view, fast_O.view, fast_m.view(), fast_l.view(), fast_Q.view,
                           fast_K,      fast_V,      none,          none};
    if (fast_O.view.packed()) {  // a few queries are not packed: then the parts have implementations of their own
      ASSERT_TRUE((table.template of<OnlineAttention>()(k, views)));
    } else {
      run<T>(table, k, views);
    }
  }
  void step(const OnlineAttention& k, Matrix<T>& K, Matrix<T>& V) { step(k, K, V, K.view(), V.view()); }
  void finish() {
    run<T>(SoftmaxFinish{score}, std::array{O.view(), m.view(), l.view()});
    run<T>(table, SoftmaxFinish{score}, std::array{fast_O.view, fast_m.view(), fast_l.view()});
  }
};

TYPED_TEST(ImplementationsTest, OnlineAttentionOfAnyScoresIsTheCompositionOfItsParts) {
  using T = TypeParam;
  this->on_every_isa([&](const Implementations<T>& table) {
    const index_t rows = this->size(), d = this->size(), d_v = this->size(), row0 = this->draw(0, 50);
    const Score score = std::array{Score::softmax, Score::softmax, Score::softmax,
                                   Score::sigmoid, Score::relu,    Score::identity}[static_cast<std::size_t>(
        this->draw(0, 5))];
    const double scale = std::array{0.125, 1.0, -0.5, 0.0}[static_cast<std::size_t>(this->draw(0, 3))];
    Matrix<T> Q = this->whole({rows, d}, this->power());
    bool skips = this->spoil(Q);
    const bool overflows = this->draw(0, 3) == 0;
    if (overflows) this->overflow(Q);
    TwoWays<T> x(table, Q, d_v, score);
    const Mask mask = this->mask(row0, 0, rows);
    for (index_t block = 0, j = 0; block < 3; ++block) {
      const index_t keys = this->size();
      Matrix<T> K = this->whole({keys, d}), V({keys, d_v}, this->random);
      if (overflows) K = this->positive(K);
      // Not an infinity of V: whether a weight near 0 is 0 depends on the m that an implementation has chosen.
      skips = (this->draw(0, 1) == 0 ? this->spoil(K) : this->spoil(V, false)) || skips;
      x.step({{scale, {mask, row0, j}}, score}, K, V);
      if (this->HasFatalFailure()) return;
      j += keys;
    }
    x.finish();
    // Infinite weights of both signs: whether their sum is an infinity or a NaN depends on its order.
    const bool both = overflows && score != Score::softmax;
    EXPECT_LT(difference(x.fast_O.plain(table), x.O, skips && (both || !mask.full())), this->allowed);
    EXPECT_LT(difference(x.fast_m, x.m), this->allowed);
  });
}

/// Few pairs here and there: implementations go pair by pair, or by whole tiles, from one block of keys to the next.
TYPED_TEST(ImplementationsTest, OnlineAttentionOfFewPairsIsTheCompositionOfItsParts) {
  using T = TypeParam;
  index_t taken = 0;
  const int times = std::max(8, test::cases(80));
  this->on_every_isa(
      [&](const Implementations<T>& table) {
        const auto words = [&] { return this->draw(0, 9) == 0 ? this->draw(250, 260) : this->size(); };
        const index_t rows = this->size(), d = words(), d_v = words(), row0 = this->draw(0, 50), blocks = 3, most = 600;
        RunLists lists;
        const index_t share = this->draw(0, 40);
        for (index_t i = 0; i < row0 + rows; ++i) {
          std::vector<Range> seen;
          for (index_t j = 0; j < blocks * most; ++j)
            if (i % 13 == 5 || (i % 7 != 3 && this->draw(0, 99) < share)) seen.push_back({j, j + 1});  // one sees all
          lists.append(1, seen);
        }
        const Pattern pattern(lists, blocks * most);
        const double scale = std::array{0.125, 1.0, -0.5}[static_cast<std::size_t>(this->draw(0, 2))];
        const bool exact = this->draw(0, 1) == 0;  // scores from 1 to 1e12, and what is no number
        Matrix<T> Q = exact ? this->whole({rows, d}, this->power()) : Matrix<T>({rows, d}, this->random);
        bool skips = exact && this->spoil(Q);
        TwoWays<T> x(table, Q, d_v, Score::softmax);
        for (index_t block = 0; block < blocks; ++block) {
          const index_t keys = this->draw(0, 1) == 0 ? this->size() : this->draw(200, most);
          Matrix<T> K = exact ? this->whole({keys, d}) : Matrix<T>({keys, d}, this->random, 1, this->draw(0, 5)),
                    V({keys, d_v}, this->random, 1, this->draw(0, 5));
          if (exact) skips = (this->draw(0, 1) == 0 ? this->spoil(K) : this->spoil(V, false)) || skips;
          const Place place{{.pattern = &pattern}, row0, block * most};
          index_t pairs = 0;
          for (index_t r = 0; r < rows; ++r) pairs += lists.count(row0 + r, {place.col, place.col + keys});
          taken += PairByPair::attention(d + d_v).pays(rows, keys, pairs, rows * keys) ? 1 : 0;
          x.step({{scale, place}, Score::softmax}, K, V);
          if (this->HasFatalFailure()) return;
        }
        x.finish();
        EXPECT_LT(difference(x.fast_O.plain(table), x.O, skips), this->allowed);
        EXPECT_LT(difference(x.fast_m, x.m), this->allowed);
      },
      times);
  EXPECT_TRUE(this->IsSkipped() || 4 * taken > 3 * times) << "few blocks were taken pair by pair: " << taken;
}

/// Few pairs here and there: implementations go pair by pair, or by whole tiles, from one block of queries to the next.
/// Only whole tiles multiply the rows of queries that see no key, with weights of 0: NaN in these rows tells the ways
/// apart.
TYPED_TEST(ImplementationsTest, GradientsOfFewPairsAreTheCompositionOfTheirParts) {
  using T = TypeParam;
  constexpr T kInfinity = std::numeric_limits<T>::infinity(), kNaN = std::numeric_limits<T>::quiet_NaN();
  index_t gradients_taken = 0, products_taken = 0;
  const int times = std::max(6, test::cases(60));
  this->on_every_isa(
      [&](const Implementations<T>& table) {
        const auto words = [&] { return this->draw(0, 9) == 0 ? this->draw(250, 260) : this->size(); };
        const index_t keys = this->draw(0, 3) == 0 ? this->draw(500, 600) : this->size(), d = words(), d_v = words(),
                      col0 = this->draw(0, 70), row0 = this->draw(0, 50), blocks = 2, most = 260;
        const index_t share = this->draw(0, 25);
        RunLists lists;
        for (index_t i = 0; i < row0 + blocks * most; ++i) {
          std::vector<Range> seen;
          for (index_t j = 0; j < col0 + keys; ++j)
            if (i % 7 != 3 && (i % 13 == 5 || this->draw(0, 99) < share)) seen.push_back({j, j + 1});  // one sees all
          lists.append(1, seen);
        }
        const Pattern pattern(lists, col0 + keys);
        const double scale = std::array{0.125, 0.25, -0.25}[static_cast<std::size_t>(this->draw(0, 2))];
        Matrix<T> K({keys, d}, this->random), V({keys, d_v}, this->random), dK({keys, d}, this->random),
            dV({keys, d_v}, this->random);
        bool skips = this->draw(0, 3) == 0 && this->spoil(V);
        Laid<T> fast_K(table, K, KeyGradients::K), fast_V(table, V, KeyGradients::V);
        Matrix<T> fast_dK = dK, fast_dV = dV;
        for (index_t block = 0; block < blocks; ++block) {
          const index_t rows = this->draw(0, 1) == 0 ? this->size() : this->draw(190, most);
          const Place place{{.pattern = &pattern}, row0 + block * most, col0};
          Matrix<T> Q({rows, d}, this->random, 1, this->draw(0, 3)), dO({rows, d_v}, this->random, 1, this->draw(0, 3)),
              lse({rows, 1}, this->random), D({rows, 1}, this->random), P({rows, keys}), dS({rows, keys}),
              dQ({rows, d}, this->random);
          for (index_t i = 0; i < rows; ++i) lse.view()(i, 0) = i % 5 == 0 ? -kInfinity : lse.view()(i, 0) + T(4);
          Laid<T> fast_P(table, P, KeyGradients::P), fast_dS(table, dS, KeyGradients::dS);
          const KeyGradients step{{scale, place}};
          const GemmOver over{false, false, this->draw(0, 1) == 0, place};
          run<T>(step, std::array{P.view(), dS.view(), dK.view(), dV.view(), Q.view(), K.view(), V.view(), lse.view(),
                                  D.view(), dO.view(), View<T>(), View<T>(), View<T>(), View<T>()});
          Matrix<T> fast_dQ = dQ;
          run<T>(over, std::array{dQ.view(), dS.view(), K.view()});
          index_t pairs = 0, formed = 0;
          for (index_t r = 0; r < rows; ++r) {
            pairs += lists.count(place.row + r, {col0, col0 + keys});
            formed += place.cols_of(r, keys).size();  // at most what whole tiles form
          }
          if (pairs > 0 && PairByPair::gradients(d + d_v).pays(rows, keys, pairs, formed)) {
            ++gradients_taken;
            for (index_t i = 0; i < rows; ++i)
              for (index_t t = 0; (place.row + i) % 7 == 3 && t < std::max(d, d_v); ++t) {
                Q.view()(i, std::min(t, d - 1)) = kNaN;
                dO.view()(i, std::min(t, d_v - 1)) = kNaN;
              }
          }
          ASSERT_TRUE((table.template of<KeyGradients>()(
              step,
              std::array{fast_P.view, fast_dS.view, fast_dK.view(), fast_dV.view(), Q.view(), fast_K.view, fast_V.view,
                         lse.view(), D.view(), dO.view(), View<T>(), View<T>(), View<T>(), View<T>()})));
          EXPECT_LT(difference(fast_dS.plain(table), dS), this->allowed);
          if (pairs > 0 && PairByPair::product(d).pays(rows, keys, pairs, formed)) {
            ++products_taken;
            for (index_t i = 0; i < rows; ++i)
              for (index_t j = 0; j < keys; ++j)
                if ((place.row + i) % 7 == 3) fast_dS.view(i, j) = kNaN;
          }
          run<T>(table, over, std::array{fast_dQ.view(), fast_dS.view, fast_K.view});
          EXPECT_LT(difference(fast_dQ, dQ), this->allowed);
          if (this->HasFailure()) return;
        }
        EXPECT_LT(difference(fast_dK, dK, skips), this->allowed);
        EXPECT_LT(difference(fast_dV, dV, skips), this->allowed);
      },
      times);
  EXPECT_TRUE(this->IsSkipped() ||
              std::min(gradients_taken, products_taken) > (test::few_cases() ? 0 : test::cases(25)))
      << "few blocks were taken pair by pair: " << gradients_taken << ", " << products_taken;
}

// docs/numerics.md: where one key has all the weight, dP - D is 0, not noise.
TYPED_TEST(ImplementationsTest, GradientsOfQueriesWithOneKeyAreZero) {
  using T = TypeParam;
  this->on_every_isa([&](const Implementations<T>& table) {
    const index_t rows = this->draw(64, 200), keys = 256, d = this->size(), d_v = 3 * this->size();
    RunLists lists;
    Matrix<T> Q({rows, d}, this->random, 0.1), K({keys, d}, this->random, 0.1), V({keys, d_v}, this->random),
        dO({rows, d_v}, this->random), O({rows, d_v}), lse({rows, 1}), D({rows, 1}), P({rows, keys}), dS({rows, keys}),
        dK({keys, d}), dV({keys, d_v});
    for (index_t i = 0; i < rows; ++i) {
      const index_t key = this->draw(0, keys - 1);
      lists.append(1, {Range{key, key + 1}});
      for (index_t t = 0; t < d_v; ++t) O.view()(i, t) = V.view()(key, t);
      double score = 0;
      for (index_t t = 0; t < d; ++t) score += static_cast<double>(Q.view()(i, t) * K.view()(key, t));
      lse.view()(i, 0) = static_cast<T>(score);
    }
    const Pattern pattern(lists, keys);
    ASSERT_TRUE((table.template of<RowDots>()(RowDots{}, std::array{D.view(), dO.view(), O.view()})));
    Laid<T> fast_P(table, P, KeyGradients::P), fast_dS(table, dS, KeyGradients::dS);
    Laid<T> fast_K(table, K, KeyGradients::K), fast_V(table, V, KeyGradients::V);
    ASSERT_TRUE((table.template of<KeyGradients>()(
        KeyGradients{{1, {{.pattern = &pattern}}}},
        std::array{fast_P.view, fast_dS.view, dK.view(), dV.view(), Q.view(), fast_K.view, fast_V.view, lse.view(),
                   D.view(), dO.view(), View<T>(), View<T>(), View<T>(), View<T>()})));
    for (index_t i = 0; i < rows; ++i)
      for (index_t j = 0; j < keys; ++j) ASSERT_EQ(fast_dS.view(i, j), T(0)) << i << ", " << j;
    EXPECT_NE(dV.words, std::vector<T>(dV.words.size(), T(0)));
  });
}

// docs/numerics.md: weights reach 2^16 before O is scaled; sums of values are finite up to 2^-16 of the largest number.
TYPED_TEST(ImplementationsTest, ValuesMayBeAsLargeAsTheWeightsLeaveRoomFor) {
  using T = TypeParam;
  this->on_every_isa([&](const Implementations<T>& table) {
    const index_t rows = this->size(), keys = 8 * this->draw(1, 8), d_v = this->size();
    Matrix<T> Q({rows, 1}), K({keys, 1}), V({keys, d_v});
    const T largest = std::ldexp(std::numeric_limits<T>::max(), -16) / static_cast<T>(2 * keys);
    for (T& w : Q.words) w = T(1);
    for (index_t j = 0; j < keys; ++j) K.view()(j, 0) = static_cast<T>(j < keys / 2 ? 0 : 11);  // 11 < 16 log 2
    for (T& w : V.words) w = largest;
    TwoWays<T> x(table, Q, d_v, Score::softmax);
    x.step({{1, {}}, Score::softmax}, K, V);
    if (this->HasFatalFailure()) return;
    x.finish();
    EXPECT_LT(difference(x.fast_O.plain(table), x.O), this->allowed);
  });
}

std::uint16_t bf16_of(float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  return static_cast<std::uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
Matrix<float> rounded_to_bf16(Matrix<float> m) {
  for (float& w : m.words) w = std::bit_cast<float>(std::uint32_t{bf16_of(w)} << 16);
  return m;
}
/// A matrix of bf16 as OnlineAttention takes one: rows of 16 bits, or pairs of them.
struct Narrow {
  std::vector<std::uint16_t> rows;
  std::vector<float> pairs;
  View<float> view;

  Narrow(const Implementations<float>& table, const Matrix<float>& m, Layout layout) {
    for (const float w : m.words) rows.push_back(bf16_of(w));
    view = {reinterpret_cast<float*>(rows.data()), m.shape, m.stride, 1, layout};
    if (!is_paired(layout)) return;
    const Shape shape = machine::shape_of_pairs(m.shape, layout);
    pairs.resize(static_cast<std::size_t>(shape.words()));
    table.pair_rows(rows.data(), m.shape, m.stride, {pairs.data(), shape, shape.cols});
    view = {pairs.data(), m.shape, shape.cols, 1, layout};
  }
};

class Bf16ImplementationsTest : public ImplementationsTest<float>, public testing::WithParamInterface<Isa> {};

TEST_P(Bf16ImplementationsTest, OnlineAttentionIsTheCompositionOfItsPartsUpToRoundedWeights) {
  if (!is_available(GetParam()))
    GTEST_SKIP() << "THIS MACHINE HAS NO " << name_of(GetParam()) << ": its implementations are untested";
  const Implementations<float>& table = bf16_implementations(GetParam());
  ASSERT_TRUE(table.bf16);
  for (int i = 0; i < 300 && !this->HasFailure(); ++i) {
    SCOPED_TRACE(i);
    const index_t rows = size(), d = size(), d_v = size(), row0 = draw(0, 50);
    const Score score = std::array{Score::softmax, Score::softmax, Score::sigmoid, Score::relu,
                                   Score::identity}[static_cast<std::size_t>(draw(0, 4))];
    const double scale = std::array{0.125, 1.0, -0.5, 0.0}[static_cast<std::size_t>(draw(0, 3))];
    // Ordinary numbers, or whole ones of any size with NaN and infinities among them.
    const bool any = draw(0, 1) == 0;
    Matrix<float> Q = rounded_to_bf16(any ? whole({rows, d}, power()) : Matrix<float>({rows, d}, random));
    bool skips = any && spoil(Q);
    TwoWays<float> x(table, Q, d_v, score);
    const Mask mask = this->mask(row0, 0, rows);
    for (index_t block = 0, j = 0; block < 3; ++block) {
      const index_t keys = size();
      const index_t extra = draw(0, 5);
      Matrix<float> K = rounded_to_bf16(any ? whole({keys, d}) : Matrix<float>({keys, d}, random, 1, extra));
      Matrix<float> V = rounded_to_bf16(Matrix<float>({keys, d_v}, random, 1, extra));
      // A weight too small for a normal number times an infinity: the products of bf16 make it 0.
      if (any) skips = (draw(0, 1) == 0 ? spoil(K) : spoil(V, false)) || skips;
      const bool packed = x.fast_O.view.packed();
      Narrow narrow_K(table, K, Layout::bf16_rows), narrow_V(table, V, packed ? table.paired : Layout::bf16_rows);
      x.step({{scale, {mask, row0, j}}, score}, K, V, narrow_K.view, narrow_V.view);
      if (this->HasFatalFailure()) return;
      j += keys;
    }
    x.finish();
    EXPECT_LT(difference(x.fast_O.plain(table), x.O, skips && !mask.full()), 0x1p-6);
    EXPECT_LT(difference(x.fast_m, x.m), allowed);
  }
}

INSTANTIATE_TEST_SUITE_P(EveryIsa, Bf16ImplementationsTest, testing::Values(Isa::avx512_bf16, Isa::amx_bf16),
                         [](const auto& isa) { return std::string(name_of(isa.param)); });

using Words16Test = ImplementationsTest<float>;

TEST_F(Words16Test, FewQueriesReadRowsOf16BitsAsTheWordsThatTheyHold) {
  on_every_isa([&](const Implementations<float>& table) {
    const index_t rows = draw(1, table.few_rows), d = size(), d_v = size();
    const DType type = draw(0, 1) == 0 ? DType::f16 : DType::bf16;
    const Layout layout = type == DType::f16 ? Layout::f16_rows : Layout::bf16_rows;
    Matrix<float> Q({rows, d}, random);
    const Score score = draw(0, 2) == 0 ? Score::relu : Score::softmax;
    TwoWays<float> narrow(table, Q, d_v, score), wide(table, Q, d_v, score);
    const auto halves = [&](Matrix<float>& m) {
      std::vector<std::uint16_t> words(m.words.size());
      const auto count = static_cast<index_t>(words.size());
      table.row_conversion.narrow(type, m.words.data(), words.data(), count);
      table.row_conversion.widen(type, words.data(), m.words.data(), count);
      return words;
    };
    for (index_t block = 0, j = 0; block < 3; ++block) {
      const index_t keys = size(), extra = draw(0, 5);
      Matrix<float> K({keys, d}, random, 1, extra), V({keys, d_v}, random, 1, extra);
      spoil(K);
      std::vector<std::uint16_t> K16 = halves(K), V16 = halves(V);
      const auto view = [&](std::vector<std::uint16_t>& words, const Matrix<float>& m) {
        return View<float>(reinterpret_cast<float*>(words.data()), m.shape, m.stride, 1, layout);
      };
      const OnlineAttention step{{0.125, {mask(0, j, rows), 0, j}}, score};
      wide.step(step, K, V);
      narrow.step(step, K, V, view(K16, K), view(V16, V));
      if (HasFatalFailure()) return;
      j += keys;
    }
    EXPECT_EQ(difference(narrow.fast_O.plain(table), wide.fast_O.plain(table)), 0);
    EXPECT_EQ(difference(narrow.fast_m, wide.fast_m), 0);
    EXPECT_EQ(difference(narrow.fast_l, wide.fast_l), 0);
  });
}

TEST_F(Words16Test, PanelsBecomeRowsOf16BitsAsByWayOfRowsOfWords) {
  on_every_isa([&](const Implementations<float>& table) {
    const Matrix<float> m({table.few_rows + size(), size()}, random);
    Matrix<float> rows = m;
    const Laid<float> laid(table, rows, OnlineAttention::O);
    ASSERT_TRUE(laid.view.packed());
    const DType type = draw(0, 1) == 0 ? DType::f16 : DType::bf16;
    const index_t stride = m.shape.cols + draw(0, 5);
    std::vector<std::uint16_t> halves(static_cast<std::size_t>(m.shape.rows * stride)), wanted = halves;
    table.unpack_words16(type, laid.view.data, m.shape, halves.data(), stride);
    for (index_t r = 0; r < m.shape.rows; ++r)
      table.row_conversion.narrow(type, &rows.view()(r, 0), wanted.data() + r * stride, m.shape.cols);
    EXPECT_EQ(halves, wanted);
  });
}

TYPED_TEST(ImplementationsTest, KeyGradientsOfAnyScoresAreTheCompositionOfTheirParts) {
  using T = TypeParam;
  int compared = 0;
  this->on_every_isa([&](const Implementations<T>& table) {
    const index_t rows = this->size(), keys = this->size(), d = this->size(), d_v = this->size();
    const index_t row0 = this->draw(0, 50), col0 = this->draw(0, 50);
    const double scale = std::array{0.125, 1.0, -0.5, 0.0}[static_cast<std::size_t>(this->draw(0, 3))];
    Matrix<T> Q = this->whole({rows, d}, this->power()), K = this->whole({keys, d}), V({keys, d_v}, this->random);
    Matrix<T> dO({rows, d_v}, this->random), lse({rows, 1}), D({rows, 1}, this->random), S({rows, keys});
    // Scores overflow, or hold infinities: where a sum overflows next to an infinity depends on its order.
    const bool overflows = this->draw(0, 3) == 0;
    bool skips = overflows || this->spoil(Q);
    if (overflows) this->overflow(Q), K = this->positive(K);
    skips = this->spoil(*std::array{&V, &dO, &K}[static_cast<std::size_t>(this->draw(0, overflows ? 1 : 2))]) || skips;
    const KeyGradients step{{scale, {this->mask(row0, col0, rows), row0, col0}}};
    {
      Matrix<T> l({rows, 1}), O({rows, 1});
      run<T>(SoftmaxInit{}, std::array{O.view(), lse.view(), l.view()});
      run<T>(step.scores, std::array{S.view(), Q.view(), K.view()});
      run<T>(StatisticsAdd{}, std::array{lse.view(), l.view(), S.view()});
      run<T>(LogSum{}, std::array{lse.view(), l.view()});
    }
    Matrix<T> P({rows, keys}), dS({rows, keys}), dK({keys, d}, this->random), dV({keys, d_v}, this->random);
    Laid<T> fast_P(table, P, KeyGradients::P), fast_dS(table, dS, KeyGradients::dS);
    Laid<T> fast_K(table, K, KeyGradients::K), fast_V(table, V, KeyGradients::V);
    Matrix<T> fast_dK = dK, fast_dV = dV;
    run<T>(step, std::array{P.view(), dS.view(), dK.view(), dV.view(), Q.view(), K.view(), V.view(), lse.view(),
                            D.view(), dO.view(), View<T>(), View<T>(), View<T>(), View<T>()});
    run<T>(table, step,
           std::array{fast_P.view, fast_dS.view, fast_dK.view(), fast_dV.view(), Q.view(), fast_K.view, fast_V.view,
                      lse.view(), D.view(), dO.view(), View<T>(), View<T>(), View<T>(), View<T>()});
    // exp(score - lse) takes in the rounding of lse, unless lse is so large that the difference is formed first.
    double rounding = 1;
    const double far = sizeof(T) == 4 ? 0x1p20 : 0x1p49;
    for (index_t r = 0; r < rows; ++r)
      if (const double x = std::abs(static_cast<double>(lse.view()(r, 0))); x < far)
        rounding = std::max(rounding, x / 100);
    const double most = this->allowed * rounding;
    EXPECT_LT(difference(fast_P.plain(table), P), most);
    // A weight below the smallest normal number is 0 in a fast implementation, and so is its product with an infinity.
    if (std::ranges::any_of(P.words, [](T w) { return std::fpclassify(w) == FP_SUBNORMAL; })) return;
    ++compared;
    EXPECT_LT(difference(fast_dS.plain(table), dS), most);
    EXPECT_LT(difference(fast_dK, dK, skips), most);
    EXPECT_LT(difference(fast_dV, dV, skips), most);
  });
  if (this->IsSkipped() || this->HasFailure()) return;
  EXPECT_GE(compared, test::cases(150) * 13 / 15);
}

TYPED_TEST(ImplementationsTest, ProductsAgreeForAnyTransposeAndStride) {
  using T = TypeParam;
  this->on_every_isa([&](const Implementations<T>& table) {
    const index_t rows = this->size(), cols = this->size(), k = 3 * this->size();
    const bool ta = this->draw(0, 1) == 1, tb = this->draw(0, 1) == 1, tc = this->draw(0, 3) == 0;
    const auto shape = [](index_t r, index_t c, bool t) { return t ? Shape{c, r} : Shape{r, c}; };
    Matrix<T> A(shape(rows, k, ta), this->random, 1, this->draw(0, 3)),
        B(shape(k, cols, tb), this->random, 1, this->draw(0, 3));
    Matrix<T> C(shape(rows, cols, tc), this->random, 1, this->draw(0, 3)), fast = C;
    const auto way = [&](View<T> v) { return tc ? v.transposed() : v; };
    const GemmOver over{ta, tb, this->draw(0, 1) == 1};
    run<T>(over, std::array{way(C.view()), A.view(), B.view()});
    ASSERT_TRUE((table.template of<GemmOver>()(over, std::array{way(fast.view()), A.view(), B.view()})));
    EXPECT_LT(difference(fast, C), this->allowed);
    const Gemm gemm{ta, tb};
    run<T>(gemm, std::array{way(C.view()), A.view(), B.view()});
    ASSERT_TRUE((table.template of<Gemm>()(gemm, std::array{way(fast.view()), A.view(), B.view()})));
    EXPECT_LT(difference(fast, C), this->allowed);
    EXPECT_EQ(fast.words.back(), C.words.back()) << "words beyond the matrix stay";
  });
}

TYPED_TEST(ImplementationsTest, ProductsMayLeaveOutWhatAMaskHides) {
  using T = TypeParam;
  this->on_every_isa([&](const Implementations<T>& table) {
    const index_t rows = this->size(), keys = this->size(), d = this->size(), row0 = this->draw(0, 9), col0 = 7;
    const Place place{this->mask(row0, col0, rows), row0, col0};
    Matrix<T> A({rows, keys}, this->random, 1, 2), B({keys, d}, this->random, 1, 1), C({rows, d}, this->random);
    for (index_t r = 0; r < rows; ++r)
      for (index_t j = 0; j < keys; ++j)
        if (!place.cols_of(r, keys).holds(j)) A.view()(r, j) = T(0);
    Matrix<T> fast = C;
    const GemmOver over{false, false, this->draw(0, 1) == 1, place};
    run<T>(over, std::array{C.view(), A.view(), B.view()});
    const index_t last = place.cols_of(Range{0, rows}, keys).end;
    for (index_t j = last; j < keys; ++j)  // what all rows are blind to is not even read
      for (index_t t = 0; t < d; ++t) B.view()(j, t) = std::numeric_limits<T>::quiet_NaN();
    ASSERT_TRUE((table.template of<GemmOver>()(over, std::array{fast.view(), A.view(), B.view()})));
    EXPECT_LT(difference(fast, C), this->allowed);
  });
}

TYPED_TEST(ImplementationsTest, ScoresAgree) {
  using T = TypeParam;
  this->on_every_isa([&](const Implementations<T>& table) {
    const index_t rows = this->size(), keys = this->size(), d = this->size(), row0 = this->draw(0, 9);
    Matrix<T> Q({rows, d}, this->random), K({keys, d}, this->random, 1, 2), S({rows, keys}, 3), fast = S;
    const Scores scores{0.25, {this->mask(row0, 7, rows), row0, 7}};
    run<T>(scores, std::array{S.view(), Q.view(), K.view()});
    ASSERT_TRUE((table.template of<Scores>()(scores, std::array{fast.view(), Q.view(), K.view()})));
    EXPECT_LT(difference(fast, S), this->allowed);
  });
}

/// Runs of a few keys, across the words of 64 bits that hide others.
TYPED_TEST(ImplementationsTest, ScoresUnderAPatternAgree) {
  using T = TypeParam;
  this->on_every_isa([&](const Implementations<T>& table) {
    const index_t rows = this->size(), keys = this->size(), d = this->draw(1, 20), row0 = this->draw(0, 9),
                  col0 = this->draw(0, 70), share = this->draw(0, 10);
    RunLists lists;
    for (index_t i = 0; i < row0 + rows; ++i) {
      std::vector<Range> seen;
      for (index_t j = 0; j < col0 + keys; ++j)
        if (this->draw(0, 9) < share) seen.push_back({j, j + 1});
      lists.append(1, seen);
    }
    const Pattern pattern(lists, col0 + keys);
    const Place place{{.pattern = &pattern}, row0, col0};
    Matrix<T> Q({rows, d}, this->random), K({keys, d}, this->random, 1, 2), S({rows, keys}, 3), fast_S = S;
    const Scores scores{0.25, place};
    run<T>(scores, std::array{S.view(), Q.view(), K.view()});
    ASSERT_TRUE((table.template of<Scores>()(scores, std::array{fast_S.view(), Q.view(), K.view()})));
    EXPECT_LT(difference(fast_S, S), this->allowed);
    Matrix<T> P({rows, keys}, this->random), D({rows, 1}, this->random), dP({rows, keys}, this->random, 1, 2),
        fast_dP = dP;
    const ScoreGradient gradient{Score::softmax, 0.5, place};
    run<T>(gradient, std::array{dP.view(), P.view(), D.view()});
    ASSERT_TRUE((table.template of<ScoreGradient>()(gradient, std::array{fast_dP.view(), P.view(), D.view()})));
    EXPECT_LT(difference(fast_dP, dP), this->allowed);
  });
}

TYPED_TEST(ImplementationsTest, PassesOverRowsAgree) {
  using T = TypeParam;
  this->on_every_isa([&](const Implementations<T>& table) {
    const index_t rows = this->size(), keys = this->size(), d_v = this->size(), row0 = this->draw(0, 9);
    Matrix<T> S({rows, keys}, this->random, 3, this->draw(0, 5)), O({rows, d_v}, this->random, 1, this->draw(0, 5));
    Matrix<T> m({rows, 1}, this->random, 3), l({rows, 1}, this->random), dP({rows, keys}, this->random, 1, 2);
    for (index_t i = 0; i < rows; ++i) l.view()(i, 0) = std::abs(l.view()(i, 0));
    const Place place{this->mask(row0, 7, rows), row0, 7};
    for (index_t i = 0; i < rows; ++i)
      for (index_t j = 0; j < keys; ++j)
        if (!place.cols_of(i, keys).holds(j)) S.view()(i, j) = -std::numeric_limits<T>::infinity();
    if (this->draw(0, 1) == 0)
      for (index_t i = 0; i < rows; i += 3) m.view()(i, 0) = -std::numeric_limits<T>::infinity(), l.view()(i, 0) = 0;
    Matrix<T> P = S, lse = m, D = l;
    {
      Matrix<T> alone = S, fast_alone = S, ln({rows, 1}), fast_ln({rows, 1});
      run<T>(BlockSoftmax{}, std::array{alone.view(), ln.view()});
      ASSERT_TRUE((table.template of<BlockSoftmax>()(BlockSoftmax{}, std::array{fast_alone.view(), fast_ln.view()})));
      EXPECT_LT(difference(fast_alone, alone), this->allowed);
      EXPECT_LT(difference(fast_ln, ln, false, 1), this->allowed);  // a maximum and a logarithm may cancel
      Matrix<T> fast_S = S, fast_O = O, fast_m = m, fast_l = l;
      run<T>(OnlineSoftmax{}, std::array{S.view(), O.view(), m.view(), l.view()});
      ASSERT_TRUE((table.template of<OnlineSoftmax>()(
          OnlineSoftmax{}, std::array{fast_S.view(), fast_O.view(), fast_m.view(), fast_l.view()})));
      EXPECT_LT(difference(fast_S, S), this->allowed);
      EXPECT_LT(difference(fast_O, O), this->allowed);
      EXPECT_EQ(difference(fast_m, m), 0);
      EXPECT_LT(difference(fast_l, l), this->allowed);
    }
    for (index_t i = 0; i < rows; i += 6) lse.view()(i, 0) = 5;  // where -inf stays, beside any scores, weights are 0
    Matrix<T> fast_P = P, fast_dP = dP;
    const Weights weights{Score::softmax, 0.5};
    run<T>(weights, std::array{P.view(), lse.view()});
    ASSERT_TRUE((table.template of<Weights>()(weights, std::array{fast_P.view(), lse.view()})));
    EXPECT_LT(difference(fast_P, P), this->allowed);
    const ScoreGradient gradient{Score::softmax, 0.5, place};
    run<T>(gradient, std::array{dP.view(), P.view(), D.view()});
    ASSERT_TRUE((table.template of<ScoreGradient>()(gradient, std::array{fast_dP.view(), P.view(), D.view()})));
    EXPECT_LT(difference(fast_dP, dP), this->allowed);
  });
}

/// The weights of one key: hidden, of a row that saw no key, far from lse, or NaN.
TYPED_TEST(ImplementationsTest, WeightsOfAKeyAgree) {
  using T = TypeParam;
  this->on_every_isa([&](const Implementations<T>& table) {
    const index_t rows = this->size(), d_v = this->size();
    Matrix<T> O({rows, d_v}, this->random, 1, this->draw(0, 5)), z({rows, 1}, this->random);
    Matrix<T> S({rows, 1}, this->random, 3, this->draw(0, 5)), lse({rows, 1}, this->random, 3);
    Matrix<T> V({1, d_v}, this->random);
    const T infinity = std::numeric_limits<T>::infinity();
    for (index_t i = this->draw(0, 5); i < rows; i += 6) S.view()(i, 0) = -infinity;
    for (index_t i = this->draw(0, 5); i < rows; i += 6) lse.view()(i, 0) = -infinity;
    for (index_t i = this->draw(0, 5); i < rows; i += 6) S.view()(i, 0) = lse.view()(i, 0) = T(0x1p25);
    if (this->draw(0, 1) == 0)
      for (index_t i = this->draw(0, 5); i < rows; i += 7) S.view()(i, 0) = std::numeric_limits<T>::quiet_NaN();
    Matrix<T> fast_O = O, fast_z = z;
    const Drop drop{this->draw(0, 1) == 0 ? 0 : 0.4,
                    this->draw(0, 99),
                    this->draw(0, 9),
                    this->draw(1, 3),
                    this->draw(0, 9),
                    this->draw(0, 9),
                    this->draw(0, 99)};
    const WeightsAccumulate k{Score::softmax, drop};
    run<T>(k, std::array{O.view(), z.view(), S.view(), lse.view(), V.view()});
    ASSERT_TRUE((table.template of<WeightsAccumulate>()(
        k, std::array{fast_O.view(), fast_z.view(), S.view(), lse.view(), V.view()})));
    EXPECT_LT(difference(fast_O, O), this->allowed);
    EXPECT_LT(difference(fast_z, z), this->allowed);
  });
}

TYPED_TEST(ImplementationsTest, PassesOverRowsOfAnyScoresAgree) {
  using T = TypeParam;
  this->on_every_isa([&](const Implementations<T>& table) {
    const index_t rows = this->size(), d_v = this->size();
    constexpr T kMinusInfinity = -std::numeric_limits<T>::infinity();
    Matrix<T> O({rows, d_v}), m({rows, 1}), l({rows, 1});
    run<T>(SoftmaxInit{}, std::array{O.view(), m.view(), l.view()});
    Matrix<T> fast_O = O, fast_m = m, fast_l = l;
    const double power = this->power();
    for (int block = 0; block < 3; ++block) {
      const index_t keys = this->size();
      Matrix<T> S = this->whole({rows, keys}, power), V({keys, d_v}, this->random);
      this->spoil(S);
      for (index_t i = 0; i < rows; i += 5)  // a mask, and behind it whatever the row holds
        for (index_t j = this->draw(0, keys); j < keys; ++j) S.view()(i, j) = kMinusInfinity;
      Matrix<T> alone = S, fast_alone = S, ln({rows, 1}), fast_ln({rows, 1});
      run<T>(BlockSoftmax{}, std::array{alone.view(), ln.view()});
      ASSERT_TRUE((table.template of<BlockSoftmax>()(BlockSoftmax{}, std::array{fast_alone.view(), fast_ln.view()})));
      EXPECT_LT(difference(fast_alone, alone), this->allowed);
      EXPECT_LT(difference(fast_ln, ln, false, 1), this->allowed);  // a maximum and a logarithm may cancel
      Matrix<T> fast = S;
      run<T>(OnlineSoftmax{}, std::array{S.view(), O.view(), m.view(), l.view()});
      ASSERT_TRUE((table.template of<OnlineSoftmax>()(
          OnlineSoftmax{}, std::array{fast.view(), fast_O.view(), fast_m.view(), fast_l.view()})));
      Matrix<T> weights = fast;
      for (index_t i = 0; i < rows; ++i)  // one weight of NaN makes l and the row of O so: the others do not matter
        if (std::isnan(fast_l.view()(i, 0)))
          for (index_t j = 0; j < keys; ++j) weights.view()(i, j) = S.view()(i, j);
      EXPECT_LT(difference(weights, S), this->allowed);
      run<T>(Gemm{}, std::array{O.view(), S.view(), V.view()});
      run<T>(Gemm{}, std::array{fast_O.view(), fast.view(), V.view()});
    }
    EXPECT_LT(difference(fast_l, l), this->allowed);
    run<T>(SoftmaxFinish{}, std::array{O.view(), m.view(), l.view()});
    run<T>(table, SoftmaxFinish{}, std::array{fast_O.view(), fast_m.view(), fast_l.view()});
    EXPECT_LT(difference(fast_O, O), this->allowed);
    EXPECT_LT(difference(fast_m, m), this->allowed);

    Matrix<T> P = this->whole({rows, 33}, power);
    this->spoil(P, false);
    for (index_t i = 0; i < rows; i += 5)  // rows that see nothing
      for (index_t j = 0; j < 33; ++j) P.view()(i, j) = kMinusInfinity;
    Matrix<T> lse({rows, 1}), fast_P = P;
    for (index_t i = 0; i < rows; ++i) lse.view()(i, 0) = i % 5 == 0 ? kMinusInfinity : static_cast<T>(1.5 * power);
    const Weights weights{Score::softmax, 0.5};
    run<T>(weights, std::array{P.view(), lse.view()});
    ASSERT_TRUE((table.template of<Weights>()(weights, std::array{fast_P.view(), lse.view()})));
    EXPECT_LT(difference(fast_P, P), this->allowed);
  });
}

// docs/numerics.md: where one key has all the weight, dP - D is 0, not noise.
TYPED_TEST(ImplementationsTest, RowDotsAndValueGradientsSumInOneOrder) {
  using T = TypeParam;
  this->on_every_isa([&](const Implementations<T>& table) {
    const index_t rows = this->size(), d_v = 3 * this->size();
    Matrix<T> dO({rows, d_v}, this->random), V({1, d_v}, this->random), O({rows, d_v}), D({rows, 1}), dP({rows, 1});
    for (index_t i = 0; i < rows; ++i)
      for (index_t t = 0; t < d_v; ++t) O.view()(i, t) = V.view()(0, t);
    Matrix<T> P({rows, 1}), dV({1, d_v});
    ASSERT_TRUE((table.template of<RowDots>()(RowDots{}, std::array{D.view(), dO.view(), O.view()})));
    ASSERT_TRUE((table.template of<ValueGradients>()(ValueGradients{},
                                                     std::array{dP.view(), dV.view(), P.view(), V.view(), dO.view()})));
    for (index_t i = 0; i < rows; ++i) EXPECT_EQ(D.view()(i, 0), dP.view()(i, 0)) << i;
  });
}

TEST(Implementations, PackedTilesAreRefusedByKernelsWithoutABodyForThem) {
  on_every_vector_isa<float>(1, [](const Implementations<float>& table) {
    Laid<float> tile(table, Matrix<float>({20, 7}), Layout::query_panels);
    EXPECT_THROW(run<float>(table, Zero{}, std::array{tile.view}), std::logic_error);
  });
}

}  // namespace
}  // namespace redblue::kernel
