// The loops of loops.hpp for a vector type V. One file per instruction set includes this header, each with its own
// compiler flags. So everything here has internal linkage, and the header includes no code of the standard library.
#pragma once
#include <cstdint>
#include <utility>

namespace {

template <class V>
double sum(typename V::Type v) {
  typename V::Element parts[V::lanes];
  V::store(parts, v);
  double total = 0;
  for (const auto p : parts) total += static_cast<double>(p);
  return total;
}

/// sizeof...(I) chains x <- x a + b. They start apart, else the compiler would compute one for all.
template <class V, std::size_t... I>
double multiply_add(std::int64_t steps, std::index_sequence<I...>) {
  using T = typename V::Element;
  const auto a = V::set1(T(0.999)), b = V::set1(T(0.001));
  typename V::Type x[] = {V::set1(T(1) + T(I))...};
  for (std::int64_t s = 0; s < steps; ++s) ((x[I] = V::fma(x[I], a, b)), ...);
  return (sum<V>(x[I]) + ...);
}
template <class V>
double multiply_add(std::int64_t steps) {
  return multiply_add<V>(steps, std::make_index_sequence<V::chains>());
}

/// 2^r for |r| <= 1/2, lowest power first, interpolated at Chebyshev's points: relative error 1.1e-7 and 7e-16.
template <class T>
inline constexpr T kExp2[] = {};
template <>
inline constexpr float kExp2<float>[] = {1.0000000754548972f,  0.6931471880262288f,   0.2402210748530834f,
                                         0.05550357114219078f, 0.009676031918322054f, 0.0013390863364671234f};
template <>
inline constexpr double kExp2<double>[] = {1.0,
                                           0.6931471805599453,
                                           0.24022650695910158,
                                           0.055504108664821625,
                                           0.009618129107587256,
                                           0.001333355814640647,
                                           0.00015403530463724353,
                                           1.5252733841556773e-05,
                                           1.3215432535912375e-06,
                                           1.0178057087733941e-07,
                                           7.074194297288521e-09,
                                           4.4558179083360645e-10};

template <class V>
typename V::Type exp2_of(typename V::Type t) {
  constexpr auto& c = kExp2<typename V::Element>;
  constexpr int degree = sizeof(c) / sizeof(*c) - 1;
  t = V::max(t, V::set1(V::lowest_exponent));  // what is smaller becomes 2^lowest, as good as 0 in a sum
  const auto n = V::round(t), r = V::sub(t, n);
  auto p = V::set1(c[degree]);
#pragma GCC unroll 16
  for (int k = degree - 1; k >= 0; --k) p = V::fma(p, r, V::set1(c[k]));
  return V::times_power_of_two(p, n);
}

template <class V>
double exp2_loop(const void* from, void* to, std::int64_t n, std::int64_t passes) {
  using T = typename V::Element;
  const T* const x = static_cast<const T*>(from);
  T* const y = static_cast<T*>(to);
  const auto scale = V::set1(T(0.125)), minus_max = V::set1(T(-1));
  auto total0 = V::set1(0), total1 = V::set1(0);
  for (std::int64_t pass = 0; pass < passes; ++pass) {
    for (std::int64_t i = 0; i < n; i += 2 * V::lanes) {
      const auto y0 = exp2_of<V>(V::fma(V::load(x + i), scale, minus_max));
      const auto y1 = exp2_of<V>(V::fma(V::load(x + i + V::lanes), scale, minus_max));
      V::store(y + i, y0);
      V::store(y + i + V::lanes, y1);
      total0 = V::add(total0, y0);
      total1 = V::add(total1, y1);
    }
  }
  return sum<V>(V::add(total0, total1));
}

template <class V, std::size_t... I>
double read_loop(const void* from, std::int64_t bytes, std::int64_t passes, std::index_sequence<I...>) {
  const auto* const x = static_cast<const typename V::Element*>(from);
  const auto n = bytes / static_cast<std::int64_t>(sizeof *x);
  typename V::Type total[] = {(static_cast<void>(I), V::set1(0))...};
  for (std::int64_t pass = 0; pass < passes; ++pass)
    for (std::int64_t i = 0; i < n; i += static_cast<std::int64_t>(sizeof...(I)) * V::lanes)
      ((total[I] = V::add(total[I], V::load(x + i + static_cast<std::int64_t>(I) * V::lanes))), ...);
  return (sum<V>(total[I]) + ...);
}
template <class V>
double read_loop(const void* from, std::int64_t bytes, std::int64_t passes) {
  return read_loop<V>(from, bytes, passes, std::make_index_sequence<8>());
}

}  // namespace
