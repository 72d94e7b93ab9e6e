#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <limits>
#include <random>

#include "kernels/tiles.hpp"
#include "redblue/kernels/attention.hpp"
#include "redblue/kernels/materialised.hpp"

/// A few queries: lengths of rows that steps divide and others, and keys that fill vectors and pieces or do not.
namespace redblue::kernel {
namespace {

/// Small whole numbers, whose products and sums are exact in any order. NaN fills what lies between rows and behind
/// them.
Matrix<float> whole_numbers(Shape shape, std::mt19937& random) {
  Matrix<float> m(shape, 3);
  std::fill(m.words.begin(), m.words.end(), std::numeric_limits<float>::quiet_NaN());
  std::uniform_int_distribution<int> draw(-3, 3);
  for (index_t i = 0; i < shape.rows; ++i)
    for (index_t t = 0; t < shape.cols; ++t) m.view()(i, t) = static_cast<float>(draw(random));
  return m;
}

TEST(FewQueries, HaveTheScoresOfEachAlone) {
  std::mt19937 random{20261130};
  on_every_isa([&](const Implementations<float>& table) {
    if (table.isa == Isa::portable) return;
    for (index_t rows = 1; rows <= table.few_rows; ++rows)
      for (const index_t d : {1, 2, 4, 6, 12, 16, 32, 40, 64, 512, 514})
        for (const index_t keys : {1, 15, 16, 17, 37}) {
          SCOPED_TRACE(testing::Message() << rows << " queries, " << keys << " keys, d = " << d);
          Matrix<float> Q = whole_numbers({rows, d}, random), K = whole_numbers({keys, d}, random), S({rows, keys}, 2);
          const Scores scores{0.25, {}};
          ASSERT_TRUE(table.of<Scores>()(scores, std::array{S.view(), Q.view(), K.view()}));
          for (index_t r = 0; r < rows; ++r)
            for (index_t j = 0; j < keys; ++j) {
              float sum = 0;
              for (index_t t = 0; t < d; ++t) sum += Q.view()(r, t) * K.view()(j, t);
              ASSERT_EQ(S.view()(r, j), sum / 4) << "query " << r << ", key " << j;
            }
        }
  });
}

TEST(FewQueries, AddTheValuesOfAllKeys) {
  std::mt19937 random{20261201};
  on_every_isa([&](const Implementations<float>& table) {
    if (table.isa == Isa::portable) return;
    for (index_t rows = 1; rows <= table.few_rows; ++rows)
      for (const index_t d_v : {1, 16, 40, 64, 96, 128, 200})
        for (const index_t keys : {1, 16, 37, 130}) {
          SCOPED_TRACE(testing::Message() << rows << " queries, " << keys << " keys, d_v = " << d_v);
          constexpr index_t kWords = 2;
          Matrix<float> Q = whole_numbers({rows, kWords}, random), K = whole_numbers({keys, kWords}, random);
          Matrix<float> V = whole_numbers({keys, d_v}, random), O = whole_numbers({rows, d_v}, random),
                        S({rows, keys}, 2);
          Matrix<float> sums({rows, d_v}, 0);
          for (index_t r = 0; r < rows; ++r)
            for (index_t t = 0; t < d_v; ++t) {
              float sum = O.view()(r, t);
              for (index_t j = 0; j < keys; ++j)
                sum += (Q.view()(r, 0) * K.view()(j, 0) + Q.view()(r, 1) * K.view()(j, 1)) * V.view()(j, t);
              sums.view()(r, t) = sum;
            }
          const OnlineAttention step{{1, {}}, Score::identity};
          const View<float> none;
          ASSERT_TRUE(table.of<OnlineAttention>()(
              step, std::array{S.view(), O.view(), none, none, Q.view(), K.view(), V.view(), none, none}));
          for (index_t r = 0; r < rows; ++r)
            for (index_t t = 0; t < d_v; ++t) ASSERT_EQ(O.view()(r, t), sums.view()(r, t)) << "word " << r << ", " << t;
        }
  });
}

}  // namespace
}  // namespace redblue::kernel
