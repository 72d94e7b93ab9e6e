#pragma once
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "redblue/bounds/bound.hpp"

namespace redblue::bound {

inline constexpr std::string_view kAny = "any schedule";
inline constexpr std::string_view kPA = "PA (plain algebra, recomputation included)";
inline constexpr std::string_view kStrictPA = "PA, every dQ and dK product containing a complete dS";
inline constexpr std::string_view kTwoKindsPA =
    "PA, each pair word of one kind: of S for dV, of complete dP for dQ and dK";
inline constexpr std::string_view kDistinct = "Q, K, V distinct arrays, each word read as it is";

/// A value x of a line of a bound, and the largest magnitude that entered it.
template <class T>
struct Line {
  T x, scale;
  /// Less 2^-60 of the scale, which covers a handful of roundings of 2^-64.
  Line lowered() const { return {x - scale * T(0x1p-60), scale}; }
};

/// The least integer not below x. Where x is lowered, and the exact value is an integer, the result is this integer and
/// never one more.
inline Words ceil_words(long double x) {
  const long double lowered = std::ceil(x);
  if (lowered >= std::ldexp(1.0L, 126)) redblue::detail::throw_overflow("bound");
  return lowered <= 0 ? Words(0) : Words::from_int128(static_cast<redblue::detail::int128>(lowered));
}
inline Words ceil_words(long double x, long double scale) {
  return ceil_words(Line<long double>{x, scale}.lowered().x);
}

/// 2 c s width N / sqrt M - s^2 N - rest: the form of every bound that charges a start of a pair s^2.
template <class T>
Line<T> start_line(T c, T s, T width, T N, T root, T rest) {
  const T products = 2 * c * s * width * N / root;
  return {products - s * s * N - rest, std::max({products, s * s * N, rest})};
}
inline Words start_words(long double c, long double s, long double width, long double N, long double M,
                         long double rest) {
  return ceil_words(start_line(c, s, width, N, std::sqrt(M), rest).lowered().x);
}

/// The largest line(T(), k) for k from 0 to count - 1, as long doubles have it. Doubles, which are far faster, say
/// first which k come near.
template <int count, class MakeLine>
long double largest_line(const MakeLine& line) {
  constexpr double kErrors = 1e-12;  // of the scale: some thousand roundings
  std::array<double, count> near;
  double most = -std::numeric_limits<double>::infinity(), scale = 0;
  for (int k = 0; k < count; ++k) {
    const Line<double> one = line(double(), k);
    near[static_cast<std::size_t>(k)] = one.x;
    most = std::max(most, one.x);
    scale = std::max(scale, one.scale);
  }
  long double best = -std::numeric_limits<long double>::infinity();
  for (int k = 0; k < count; ++k)
    if (!(near[static_cast<std::size_t>(k)] < most - kErrors * scale))
      best = std::max<long double>(best, line(0.0L, k).x);
  return best;
}

}  // namespace redblue::bound
