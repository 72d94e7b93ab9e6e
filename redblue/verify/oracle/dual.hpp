#pragma once
#include <cmath>
#include <concepts>
#include <limits>

/// Numbers that know how they move: x + e x', with e e = 0. What is computed with them knows how it moves, too,
/// whatever it is, to the rounding errors of T (forward-mode differentiation).
namespace redblue::oracle {

template <std::floating_point T>
struct Dual {
  T value = 0, tangent = 0;

  Dual() = default;
  template <class Number>
    requires std::is_arithmetic_v<Number>
  Dual(Number value) : value(static_cast<T>(value)) {}  // NOLINT(google-explicit-constructor): numbers at rest
  Dual(T value, T tangent) : value(value), tangent(tangent) {}

  Dual operator-() const { return {-value, -tangent}; }
  Dual& operator+=(const Dual& x) { return *this = {value + x.value, tangent + x.tangent}; }
  Dual& operator-=(const Dual& x) { return *this = {value - x.value, tangent - x.tangent}; }
  Dual& operator*=(const Dual& x) { return *this = {value * x.value, tangent * x.value + value * x.tangent}; }
  Dual& operator/=(const Dual& x) {
    const T quotient = value / x.value;
    return *this = {quotient, (tangent - quotient * x.tangent) / x.value};
  }
  friend Dual operator+(Dual a, const Dual& b) { return a += b; }
  friend Dual operator-(Dual a, const Dual& b) { return a -= b; }
  friend Dual operator*(Dual a, const Dual& b) { return a *= b; }
  friend Dual operator/(Dual a, const Dual& b) { return a /= b; }
  friend bool operator==(const Dual& a, const Dual& b) { return a.value == b.value; }
  friend bool operator<(const Dual& a, const Dual& b) { return a.value < b.value; }
  friend bool operator>(const Dual& a, const Dual& b) { return a.value > b.value; }
};

template <class T>
Dual<T> exp(const Dual<T>& x) {
  const T e = std::exp(x.value);
  return {e, e * x.tangent};
}
template <class T>
Dual<T> log(const Dual<T>& x) {
  return {std::log(x.value), x.tangent / x.value};
}
template <class T>
Dual<T> tanh(const Dual<T>& x) {
  const T t = std::tanh(x.value);
  return {t, (1 - t * t) * x.tangent};
}
template <class T>
bool isnan(const Dual<T>& x) {
  return std::isnan(x.value);
}
template <class T>
bool isinf(const Dual<T>& x) {
  return std::isinf(x.value);
}

}  // namespace redblue::oracle

template <class T>
struct std::numeric_limits<redblue::oracle::Dual<T>> : std::numeric_limits<T> {};
