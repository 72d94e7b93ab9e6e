#pragma once
#include <compare>
#include <concepts>
#include <string>
#include <type_traits>

#include "redblue/language/types.hpp"

namespace redblue {

namespace detail {
__extension__ using int128 = __int128;
[[noreturn]] void throw_overflow(const char* operation);
}  // namespace detail

/// A count of words, exact up to 2^127, with every operation checked for overflow: n = 2^40 gives n^2 = 2^80 scores,
/// which 64 bits cannot hold.
class Words {
 public:
  constexpr Words() = default;
  template <std::integral I>
  constexpr Words(I value) : value_(value) {}  // NOLINT(google-explicit-constructor): a word count is a number
  static constexpr Words from_int128(detail::int128 value) {
    Words w;
    w.value_ = value;
    return w;
  }

  constexpr detail::int128 value() const { return value_; }
  constexpr double to_double() const { return static_cast<double>(value_); }
  constexpr long double to_long_double() const { return static_cast<long double>(value_); }
  /// Throws InvalidProblem when the count does not fit 63 bits.
  index_t to_index() const;
  std::string str() const;

  friend constexpr Words operator+(Words a, Words b) {
    if (__builtin_add_overflow(a.value_, b.value_, &a.value_)) detail::throw_overflow("+");
    return a;
  }
  friend constexpr Words operator-(Words a, Words b) {
    if (__builtin_sub_overflow(a.value_, b.value_, &a.value_)) detail::throw_overflow("-");
    return a;
  }
  friend constexpr Words operator*(Words a, Words b) {
    if (__builtin_mul_overflow(a.value_, b.value_, &a.value_)) detail::throw_overflow("*");
    return a;
  }
  /// Rounds towards zero, as for int.
  friend constexpr Words operator/(Words a, Words b) {
    if (((a.value_ | b.value_) >> 63) == 0)  // processors divide 64 bits, libraries 128
      return static_cast<index_t>(a.value_) / static_cast<index_t>(b.value_);
    return from_int128(a.value_ / b.value_);
  }
  constexpr Words& operator+=(Words b) { return *this = *this + b; }
  constexpr Words& operator-=(Words b) { return *this = *this - b; }
  friend constexpr auto operator<=>(Words a, Words b) { return a.value_ <=> b.value_; }
  friend constexpr bool operator==(Words a, Words b) { return a.value_ == b.value_; }

 private:
  detail::int128 value_ = 0;
};

}  // namespace redblue
