#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <limits>
#include <random>

#include "kernels/tiles.hpp"
#include "redblue/kernels/materialised.hpp"

/// Scores of a few queries, whose words share vectors: lengths of rows that steps divide and others, and keys that fill
/// vectors or do not.
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

}  // namespace
}  // namespace redblue::kernel
