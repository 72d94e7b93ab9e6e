#include "redblue/methods/maths/random_features.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <vector>

#include "redblue/methods/maths/hashing.hpp"

namespace redblue::test {

namespace {
double product(const RandomFeaturesTable& t, index_t a, index_t b) {
  double sum = 0;
  for (index_t i = 0; i < t.d; ++i) sum += t.row<double>(a)[i] * t.row<double>(b)[i];
  return sum;
}
}  // namespace

TEST(RandomFeatures, AreOrthogonalInBlocks) {
  for (const index_t d : {1, 5, 32}) {
    const auto t = random_features(2 * d + 1, d, 3);
    for (index_t a = 0; a < t->features; ++a)
      for (index_t b = a / d * d; b < a; ++b) EXPECT_NEAR(product(*t, a, b), 0, 1e-10) << d << ' ' << a << ' ' << b;
  }
}

/// Of n entries N(0, 1) the mean and the variance, within 6 standard deviations; lengths as of vectors of d such.
TEST(RandomFeatures, AreNormal) {
  constexpr index_t kFeatures = 4096, kD = 16;
  const auto t = random_features(kFeatures, kD, 11);
  double sum = 0, squares = 0, fourths = 0, lengths = 0;
  for (const double x : t->f64) sum += x, squares += x * x, fourths += x * x * x * x;
  for (index_t a = 0; a < kFeatures; ++a) lengths += std::pow(product(*t, a, a), 2);
  const double n = kFeatures * kD;
  EXPECT_NEAR(sum / n, 0, 6 / std::sqrt(n));
  EXPECT_NEAR(squares / n, 1, 6 * std::sqrt(2 / n));
  EXPECT_NEAR(fourths / n, 3, 6 * std::sqrt(96 / n));
  EXPECT_NEAR(lengths / kFeatures, kD * (kD + 2), 20);  // E |w|^4; its standard deviation is about 3
}

TEST(RandomFeatures, DependOnTheSeedAndTheirPlaceOnly) {
  const auto few = random_features(8, 4, 1), many = random_features(16, 4, 1), other = random_features(8, 4, 2);
  for (std::size_t i = 0; i < few->f64.size(); ++i) EXPECT_EQ(few->f64[i], many->f64[i]);
  EXPECT_NE(few->f64, other->f64);
  for (int round = 0; round < 6; ++round) random_features(4, 4, 100 + round);  // pushes them out
  EXPECT_EQ(random_features(8, 4, 1)->f64, few->f64);
}

TEST(RandomSigns, AreEven) {
  index_t negative = 0, alike = 0;
  constexpr index_t kRows = 200, kKeys = 500;
  for (index_t a = 0; a < kRows; ++a)
    for (index_t j = 0; j < kKeys; ++j) {
      negative += random_sign_is_negative(5, a, j) ? 1 : 0;
      alike += random_sign_is_negative(5, a, j) == random_sign_is_negative(6, a, j) ? 1 : 0;
    }
  const double n = kRows * kKeys, deviation = std::sqrt(n) / 2;
  EXPECT_NEAR(static_cast<double>(negative), n / 2, 6 * deviation);
  EXPECT_NEAR(static_cast<double>(alike), n / 2, 6 * deviation);
}

/// Each set of the right size is as likely as any other; the numbers ascend.
TEST(RandomSubset, IsUniform) {
  std::map<std::vector<index_t>, int> seen;
  constexpr int kDraws = 6000;
  for (index_t seed = 0; seed < kDraws; ++seed) {
    const std::vector<index_t> some = random_subset(2, 5, seed);
    ASSERT_EQ(some.size(), 2U);
    EXPECT_TRUE(some[0] >= 0 && some[0] < some[1] && some[1] < 5);
    ++seen[some];
  }
  EXPECT_EQ(seen.size(), 10U);
  for (const auto& [set, times] : seen)
    EXPECT_NEAR(times, kDraws / 10, 6 * std::sqrt(kDraws * 0.09)) << set[0] << set[1];
  for (const index_t n : {1, 7, 100}) {
    const std::vector<index_t> all = random_subset(n, n, 3);
    for (index_t j = 0; j < n; ++j) EXPECT_EQ(all[static_cast<std::size_t>(j)], j);
  }
}

TEST(Segments, CoverAllRowsOnce) {
  for (index_t n = 1; n <= 20; ++n)
    for (index_t L = 1; L <= n; ++L) {
      index_t row = 0;
      for (index_t a = 0; a < L; ++a) {
        EXPECT_EQ(segment(a, L, n).begin, row);
        EXPECT_GT(segment(a, L, n).size(), 0);
        row = segment(a, L, n).end;
      }
      EXPECT_EQ(row, n);
    }
}

}  // namespace redblue::test
