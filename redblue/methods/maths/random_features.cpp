#include "redblue/methods/maths/random_features.hpp"

#include <array>
#include <cmath>
#include <deque>
#include <mutex>
#include <numbers>

namespace redblue {

namespace {

/// What the numbers of a place are for: each use has its own (random_sign_is_negative has another one still).
enum class Use : std::uint32_t { features = 0, normals = 2 };

/// Two numbers N(0, 1) of this place (Box & Muller 1958): one for a direction, one for a length.
std::array<double, 2> normals(index_t seed, index_t a, index_t t, Use use) {
  const PhiloxWords<std::uint32_t> w =
      philox(PhiloxWords<std::uint32_t>{static_cast<std::uint32_t>(t), static_cast<std::uint32_t>(a), 0,
                                        static_cast<std::uint32_t>(use)},
             static_cast<std::uint64_t>(seed));
  const auto uniform = [&](std::size_t i) { return (static_cast<double>(w[i]) + 0.5) * 0x1p-32; };
  const auto normal = [&](std::size_t i) {
    return std::sqrt(-2 * std::log(uniform(i))) * std::cos(2 * std::numbers::pi * uniform(i + 1));
  };
  return {normal(0), normal(2)};
}

/// Makes the `rows` rows of a block orthonormal, one after another (Gram & Schmidt, twice).
void orthonormalise(double* block, index_t rows, index_t d) {
  const auto product = [&](index_t a, index_t b) {
    double sum = 0;
    for (index_t t = 0; t < d; ++t) sum += block[a * d + t] * block[b * d + t];
    return sum;
  };
  for (index_t a = 0; a < rows; ++a) {
    for (int round = 0; round < 2; ++round)
      for (index_t b = 0; b < a; ++b) {
        const double along = product(a, b);
        for (index_t t = 0; t < d; ++t) block[a * d + t] -= along * block[b * d + t];
      }
    const double length = std::sqrt(product(a, a));
    for (index_t t = 0; t < d; ++t) block[a * d + t] /= length;
  }
}

void make_features(index_t features, index_t d, index_t seed, std::vector<double>& omega) {
  std::vector<double> lengths(static_cast<std::size_t>(features));
  for (index_t a = 0; a < features; ++a) {
    double squares = 0;
    for (index_t t = 0; t < d; ++t) {
      const auto [direction, length] = normals(seed, a, t, Use::features);
      omega[static_cast<std::size_t>(a * d + t)] = direction;
      squares += length * length;
    }
    lengths[static_cast<std::size_t>(a)] = std::sqrt(squares);
  }
  for (index_t a = 0; a < features; a += d) orthonormalise(omega.data() + a * d, std::min(d, features - a), d);
  for (index_t a = 0; a < features; ++a)
    for (index_t t = 0; t < d; ++t) omega[static_cast<std::size_t>(a * d + t)] *= lengths[static_cast<std::size_t>(a)];
}

void make_normals(index_t rows, index_t d, index_t seed, std::vector<double>& numbers) {
  for (index_t a = 0; a < rows; ++a)
    for (index_t t = 0; t < d; ++t) numbers[static_cast<std::size_t>(a * d + t)] = normals(seed, a, t, Use::normals)[0];
}

/// The latest tables are kept: to make one takes all of it.
std::shared_ptr<const RandomFeaturesTable> table_of(index_t rows, index_t d, index_t seed, bool orthogonal) {
  constexpr std::size_t kKept = 4;
  static std::mutex mutex;
  static std::deque<std::shared_ptr<const RandomFeaturesTable>> kept;
  const std::lock_guard lock(mutex);
  for (const auto& table : kept)
    if (table->features == rows && table->d == d && table->seed == seed && table->orthogonal == orthogonal)
      return table;
  if (kept.size() == kKept) kept.pop_front();
  auto table = std::make_shared<RandomFeaturesTable>();
  table->features = rows;
  table->d = d;
  table->seed = seed;
  table->orthogonal = orthogonal;
  table->f64.resize(static_cast<std::size_t>(rows * d));
  (orthogonal ? make_features : make_normals)(rows, d, seed, table->f64);
  table->f32.assign(table->f64.begin(), table->f64.end());
  kept.push_back(std::move(table));
  return kept.back();
}

}  // namespace

std::shared_ptr<const RandomFeaturesTable> random_features(index_t features, index_t d, index_t seed) {
  return table_of(features, d, seed, true);
}
std::shared_ptr<const RandomFeaturesTable> random_normals(index_t rows, index_t d, index_t seed) {
  return table_of(rows, d, seed, false);
}

}  // namespace redblue
