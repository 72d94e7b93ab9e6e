#pragma once
#include <memory>
#include <vector>

#include "redblue/language/range.hpp"
#include "redblue/masks/philox.hpp"

/// The random numbers of approximate methods. Each depends on a seed and on its place alone (masks/philox.hpp), so a
/// schedule makes them where it needs them and reads none: they cost no words.
namespace redblue {

/// omega, `features` rows of d: blocks of d rows are orthogonal, of random directions, each as long as a vector of d
/// numbers N(0, 1).
struct RandomFeaturesTable {
  index_t features = 0, d = 0, seed = 0;
  bool orthogonal = true;  ///< false: rows of independent numbers N(0, 1)
  std::vector<double> f64;
  std::vector<float> f32;  ///< the same, rounded

  template <class T>
  const T* row(index_t a) const {
    if constexpr (sizeof(T) == sizeof(float))
      return f32.data() + a * d;
    else
      return f64.data() + a * d;
  }
};
/// To make a block orthogonal takes all of it, so the latest tables are kept for the next call.
std::shared_ptr<const RandomFeaturesTable> random_features(index_t features, index_t d, index_t seed);

/// `rows` rows of d numbers N(0, 1), each independent of all others.
std::shared_ptr<const RandomFeaturesTable> random_normals(index_t rows, index_t d, index_t seed);

/// Is entry (a, j) of a matrix of random signs negative?
inline bool random_sign_is_negative(index_t seed, index_t a, index_t j) {
  constexpr index_t kBits = 32, kWords = 4;
  const auto column = static_cast<std::uint64_t>(j);
  const PhiloxWords<std::uint32_t> words =
      philox(PhiloxWords<std::uint32_t>{static_cast<std::uint32_t>(column), static_cast<std::uint32_t>(column >> 32),
                                        static_cast<std::uint32_t>(a / (kBits * kWords)), 1},
             static_cast<std::uint64_t>(seed));
  return (words[static_cast<std::size_t>(a / kBits % kWords)] >> (a % kBits) & 1U) != 0;
}

/// The number from 0 to 1, neither of them, for the draw of pivot `step` of a block of keys.
inline double pivot_draw(index_t seed, index_t block, index_t step) {
  const auto place = static_cast<std::uint64_t>(block);
  const PhiloxWords<std::uint32_t> words =
      philox(PhiloxWords<std::uint32_t>{static_cast<std::uint32_t>(step), static_cast<std::uint32_t>(place),
                                        static_cast<std::uint32_t>(place >> 32), 2},
             static_cast<std::uint64_t>(seed));
  return (words[0] + (words[1] + 0.5) * 0x1p-32) * 0x1p-32;
}

/// Segment a of `segments` of n rows has rows floor(a n / segments) to floor((a + 1) n / segments) - 1.
constexpr Range segment(index_t a, index_t segments, index_t n) { return {a * n / segments, (a + 1) * n / segments}; }

}  // namespace redblue
