#pragma once
#include <limits>

namespace redblue::kernel::simd {

/// exp x = 2^(x log2 e)
template <class T>
inline constexpr T kLog2E = static_cast<T>(1.4426950408889634074);

/// 2 to this power is +inf.
template <class T>
inline constexpr T kMostPower = sizeof(T) == 4 ? T(160) : T(1100);

/// 2 to this power is the smallest normal number. Some processors take 50 times as long to form a smaller one, or a 0
/// in its place.
template <class T>
inline constexpr T kLeastPower = std::numeric_limits<T>::min_exponent - 1;

/// p with 2^f = 1 + f p for |f| <= 1/2: 1 + f p minimises the largest relative error (fp32: degree 5, 9.2e-8, by linear
/// programming; fp64: degree 11, 3.1e-18, by Remez' exchange).
template <class V>
[[gnu::always_inline]] inline V exp2_slope(V f) {
  constexpr bool narrow = sizeof(typename V::T) == 4;
  V p;
  if constexpr (narrow) {
    p = V::all(1.3264711595940477e-3F);
    p = fma(p, f, V::all(9.671512446801974e-3F));
    p = fma(p, f, V::all(5.5507337841258324e-2F));
    p = fma(p, f, V::all(0.24022242092028798F));
    p = fma(p, f, V::all(0.6931469775975423F));
  } else {
    p = V::all(4.4352809446103361611e-10);
    p = fma(p, f, V::all(7.0741056262456593708e-9));
    p = fma(p, f, V::all(1.0178198033328527662e-7));
    p = fma(p, f, V::all(1.3215433089594629037e-6));
    p = fma(p, f, V::all(1.52527334899608046e-5));
    p = fma(p, f, V::all(1.5403530462514613026e-4));
    p = fma(p, f, V::all(1.3333558146789950323e-3));
    p = fma(p, f, V::all(9.6181291075883350833e-3));
    p = fma(p, f, V::all(5.5504108664819921483e-2));
    p = fma(p, f, V::all(0.24022650695910156205));
    p = fma(p, f, V::all(0.69314718055994533046));
  }
  return p;
}

/// p with 2^f = 1 + f p for |f| <= 1/2: p minimises its own largest relative error, so f p is right beside 0, too.
/// (fp32: degree 5, 1.1e-8, by Remez' exchange. In fp64 the slope above errs by 3e-17 of itself.)
template <class V>
[[gnu::always_inline]] inline V exp2_less_one_slope(V f) {
  if constexpr (sizeof(typename V::T) == 8) return exp2_slope(f);
  V p = V::all(1.5403512618661003e-4F);
  p = fma(p, f, V::all(1.3390735475399872e-3F));
  p = fma(p, f, V::all(9.618237494183314e-3F));
  p = fma(p, f, V::all(5.550357433648187e-2F));
  p = fma(p, f, V::all(0.2402264979496441F));
  return fma(p, f, V::all(0.6931471879266856F));
}

/// 2^x for x <= kMostPower: 0 below the smallest normal number, so for -inf; NaN for NaN and for +inf. 2^0 = 1.
/// 2^x = 2^n 2^(x - n) with n = round(x). A factor `one` that differs from 1 by no more than some roundings is heeded
/// to within a third of them.
template <class V>
[[gnu::always_inline]] inline V exp2(V x, V one) {
  const V n = round(x), f = x - n;
  return scale_unless_below(fma(exp2_slope(f), f, one), n, x, V::all(kLeastPower<typename V::T>));
}
template <class V>
[[gnu::always_inline]] inline V exp2(V x) {
  return exp2(x, V::all(typename V::T(1)));
}

/// exp(-lse) of a row as 2^shift one: the shift alone errs by half a unit in its last place, and all weights of the row
/// with it. A row whose lse is -inf has weights 0.
template <class V>
struct ShiftByLse {
  using T = typename V::T;
  V shift, one;
  explicit ShiftByLse(T lse) : shift(V::all(lse)), one(V::all(T(1))) {
    if (lse == -std::numeric_limits<T>::infinity()) return;
    constexpr T kLog2ERest = static_cast<T>(1.442695040888963407359924681L - static_cast<long double>(kLog2E<T>));
    const V l = shift, product = l * V::all(kLog2E<T>);
    shift = V::zero() - product;
    const V rest = fma(l, V::all(kLog2ERest), fma(l, V::all(kLog2E<T>), shift));
    one = fma(rest, V::all(T(-0.693147180559945309417)), one);
  }
};

/// tanh x, given 2 x log2 e: e / (e + 2) with e = exp(2 |x|) - 1, which is formed without cancellation. Errors are
/// relative to tanh x. NaN for NaN.
template <class V>
inline V tanh_of_power(V power) {
  using T = typename V::T;
  constexpr T kMost = 58;  // tanh rounds to 1 from x = 20 on
  const V one = V::all(T(1)), size = max(power, V::zero() - power), u = min(V::all(kMost), size);
  const V n = round(u), f = u - n;
  const V e = scale_by_power(exp2_less_one_slope(f) * f, n) + (scale_by_power(one, n) - one);
  const V t = e / (e + V::all(T(2)));
  return where_equal(size, power, t, V::zero() - t);
}

/// log x for normal x > 0; NaN for NaN. x = 2^n y with y in [3/4, 3/2), and log y = 2 atanh t with t = (y - 1) / (y +
/// 1), |t| <= 1/5: its series ends where the next term is below half a unit in the last place.
template <class V>
inline V log(V x) {
  using T = typename V::T;
  const V y = mantissa(x), n = exponent(x), one = V::all(T(1));
  const V t = (y - one) / (y + one), square = t * t;
  V sum = V::zero();
  for (int k = sizeof(T) == 4 ? 9 : 23; k > 1; k -= 2) sum = fma(sum, square, V::all(T(1) / static_cast<T>(k)));
  return fma(n, V::all(T(0.693147180559945309417)), (t + t) * fma(sum, square, one)) + (x - x);
}

}  // namespace redblue::kernel::simd
