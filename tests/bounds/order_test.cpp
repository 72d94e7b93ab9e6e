#include "redblue/bounds/order.hpp"

#include <gtest/gtest.h>

#include <cmath>

namespace redblue::test {
namespace {

using bound::Nonzeros;
using bound::sparse_inputs_dividing_point;
using bound::sparse_inputs_order;

Nonzeros dense(long n, long d) { return {Words(n) * d, Words(d) * d, Words(n) * d, Words(n) * n}; }

TEST(SparseInputsOrder, OfDenseInputsIsThatOfTheirTheorem) {
  for (const long n : {64L, 4096L})
    for (const long d : {1L, 16L, 64L}) {
      const long double N = n, D = d;
      EXPECT_NEAR(static_cast<double>(sparse_inputs_dividing_point(dense(n, d))), static_cast<double>(D * D),
                  1e-9 * static_cast<double>(D * D));
      for (const long M : {d * d / 4 + 1, d * d, 16 * d * d}) {
        const long double small = (N * N * D + N * D * D) / std::sqrt(static_cast<long double>(M)),
                          large = (N * N * D * D + N * D * D * D) / M;
        EXPECT_NEAR(static_cast<double>(sparse_inputs_order(dense(n, d), M) / std::min(small, large)), 1, 1e-12);
      }
    }
}

TEST(SparseInputsOrder, ChangesItsTermAtTheDividingPoint) {
  const Nonzeros z{10000, 900, 20000, 700000};
  const long double M = sparse_inputs_dividing_point(z);
  const auto order = [&](long double m) { return sparse_inputs_order(z, static_cast<index_t>(m)); };
  EXPECT_GT(order(M / 4) / order(M / 2), 1.41L);  // as 1 / sqrt(M)
  EXPECT_LT(order(M / 4) / order(M / 2), 1.42L);
  EXPECT_GT(order(2 * M) / order(4 * M), 1.99L);  // as 1 / M
}

TEST(SparseInputsOrder, OfNoEntriesIsNothing) {
  EXPECT_EQ(sparse_inputs_order({}, 100), 0);
  EXPECT_EQ(sparse_inputs_dividing_point({}), 0);
}

}  // namespace
}  // namespace redblue::test
