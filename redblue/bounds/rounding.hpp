#pragma once
#include <cmath>

#include "redblue/bounds/bound.hpp"

namespace redblue::bound {

inline constexpr std::string_view kAny = "any schedule";
inline constexpr std::string_view kPA = "PA (plain algebra, recomputation included)";
inline constexpr std::string_view kStrictPA = "PA, every dQ and dK product containing a complete dS";
inline constexpr std::string_view kTwoKindsPA =
    "PA, each pair word of one kind: of S for dV, of complete dP for dQ and dK";
inline constexpr std::string_view kDistinct = "Q, K, V distinct arrays, each word read as it is";

/// The least integer not below x - error. If the exact value is an integer, the result is this integer and never one
/// more. `scale` is the largest magnitude that entered x; 2^-60 of it covers a handful of roundings of 2^-64.
inline Words ceil_words(long double x, long double scale) {
  const long double lowered = std::ceil(x - std::ldexp(scale, -60));
  if (lowered >= std::ldexp(1.0L, 126)) redblue::detail::throw_overflow("bound");
  return lowered <= 0 ? Words(0) : Words::from_int128(static_cast<redblue::detail::int128>(lowered));
}

/// ceil(2 c s width N / sqrt M - s^2 N - rest): the form of every bound that charges a start of a pair s^2.
inline Words start_line(long double c, long double s, long double width, long double N, long double M,
                        long double rest) {
  const long double products = 2 * c * s * width * N / std::sqrt(M);
  return ceil_words(products - s * s * N - rest, std::max({products, s * s * N, rest}));
}

}  // namespace redblue::bound
