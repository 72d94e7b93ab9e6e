#pragma once
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "redblue/language/view.hpp"
#include "redblue/methods/maths/random_features.hpp"

/// What hashing methods sort rows by. Each number is formed here, once for all arithmetic types: products are added up
/// in f64 in one order, and what is kept is rounded to f32. So runs in f32 and in f64, with any kernels, sort equal
/// inputs alike; else a rounding could put a row into another cluster.
namespace redblue {

namespace detail {
inline constexpr index_t kHashPiece = 64;
/// Adds the products of these words, at most kHashPiece of each, to four sums in turn.
void add_hash_products(double* sums, const double* x, const double* a, index_t words);
}  // namespace detail

/// Row i of X times a, which has as many words; times itself where a is null.
template <class T>
double hash_product(const View<const T>& X, index_t i, const double* a) {
  double sums[4] = {};
  double x[detail::kHashPiece];
  for (index_t first = 0; first < X.cols(); first += detail::kHashPiece) {
    const index_t words = std::min(detail::kHashPiece, X.cols() - first);
    for (index_t t = 0; t < words; ++t) x[t] = static_cast<double>(X(i, first + t));
    detail::add_hash_products(sums, x, a == nullptr ? x : a + first, words);
  }
  return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

/// The bucket of row i of X, of 2^planes: which side of each of these planes it is on, read as a Gray code, so that
/// neighbouring buckets differ in one side.
template <class T>
index_t sign_bucket(const View<const T>& X, index_t i, const RandomFeaturesTable& planes) {
  index_t sides = 0;
  for (index_t a = 0; a < planes.features; ++a)
    if (hash_product<T>(X, i, planes.row<double>(a)) > 0) sides |= index_t{1} << a;
  index_t bucket = 0;
  for (; sides > 0; sides >>= 1) bucket ^= sides;
  return bucket;
}

/// The bucket of row i of X in round `round` of cross-polytope hashing (Andoni et al. 2015): of `half` products y with
/// rows of a table that has `half` for each round, and of -y, the place of the largest, the first of equals.
template <class T>
index_t rotation_bucket(const View<const T>& X, index_t i, const RandomFeaturesTable& rotations, index_t round,
                        index_t half) {
  double best = -1;
  index_t bucket = 0;
  for (index_t a = 0; a < half; ++a) {
    const double y = hash_product<T>(X, i, rotations.row<double>(round * half + a));
    const index_t place = y < 0 ? half + a : a;
    if (std::abs(y) > best || (std::abs(y) == best && place < bucket)) {
      best = std::abs(y);
      bucket = place;
    }
  }
  return bucket;
}

/// `samples` numbers from 0 to n - 1, drawn with replacement, in ascending order.
std::vector<index_t> random_ranks(index_t samples, index_t n, index_t seed);

/// `count` different numbers from 0 to n - 1, each set of them as likely as any other, in ascending order (Floyd's way,
/// Bentley & Floyd 1987).
std::vector<index_t> random_subset(index_t count, index_t n, index_t seed);

/// What SMYRF sorts by: a row x becomes (x, w, 0) as a key and (x, 0, w) as a query, |x|^2 + w^2 = S, times a vector of
/// normal numbers. `base` is the product with x, `normal` the vector's number at w. A NaN comes last, as infinity does.
inline float smyrf_key(double base, double square, double S, double normal) {
  const double left = S - square;
  const float key = static_cast<float>(base + normal * std::sqrt(left > 0 ? left : 0.0));
  return std::isnan(key) ? std::numeric_limits<float>::infinity() : key;
}

}  // namespace redblue
