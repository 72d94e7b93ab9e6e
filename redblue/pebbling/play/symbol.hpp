#pragma once
#include <compare>
#include <cstdint>
#include <limits>
#include <map>
#include <tuple>
#include <type_traits>
#include <vector>

/// Words that remember what they were computed from. A kernel that runs on them leaves, in each word that it writes, an
/// expression of the words that it had at first: its scalar graph, with no second text of its maths.
namespace redblue::pebbling {

/// The number of an expression in the Expressions that records.
using Expr = std::int32_t;
inline constexpr Expr kNoExpr = -1;

/// k times an expression, or the known number k. The order of comparison means nothing.
class Symbol {
 public:
  constexpr Symbol() = default;
  template <class N>
    requires std::is_arithmetic_v<N>
  constexpr Symbol(N k) : k_(static_cast<double>(k)) {}  // NOLINT(google-explicit-constructor): as for numbers
  constexpr Symbol(double k, Expr e) : k_(k), e_(e) {}

  constexpr bool is_known() const { return e_ == kNoExpr; }
  constexpr double k() const { return k_; }
  constexpr Expr expr() const { return e_; }
  /// What it is for the numbers at hand.
  double value() const;

  constexpr Symbol operator-() const { return {-k_, e_}; }
  friend Symbol operator+(Symbol a, Symbol b);
  friend Symbol operator-(Symbol a, Symbol b) { return a + -b; }
  friend Symbol operator*(Symbol a, Symbol b);
  friend Symbol operator/(Symbol a, Symbol b);
  Symbol& operator+=(Symbol b) { return *this = *this + b; }
  Symbol& operator-=(Symbol b) { return *this = *this - b; }
  Symbol& operator*=(Symbol b) { return *this = *this * b; }
  Symbol& operator/=(Symbol b) { return *this = *this / b; }

  // Kernels ask whether a word is 0 or -inf: of a computed one the answer is no, whatever its value happens to be. By
  // size words compare as their values do: what is asked so is whether a guard against rounding acts.
  friend constexpr bool operator==(Symbol a, Symbol b) { return a.e_ == b.e_ && a.k_ == b.k_; }
  friend bool operator<(Symbol a, Symbol b) { return a.value() < b.value(); }
  friend bool operator>(Symbol a, Symbol b) { return b < a; }

 private:
  double k_ = 0;
  Expr e_ = kNoExpr;
};
Symbol exp(Symbol a);
Symbol log(Symbol a);
Symbol tanh(Symbol a);
/// A known number: its value without sign. Only guards against rounding ask for it.
inline Symbol abs(Symbol a) { return a.value() < 0 ? -a.value() : a.value(); }
bool signbit(Symbol a);
Symbol max_or_nan(Symbol a, Symbol b);

struct Expression {
  enum class Kind : std::uint8_t { leaf, undefined, sum, product, quotient, maximum, exp, log, tanh };
  Kind kind;
  std::vector<Symbol> args;  ///< none of a product has a factor, none of a sum is known
  double constant = 0;       ///< a sum: one term more
  double value = 0;

  /// The only terms that it adds, if it is a sum.
  bool is(Kind k) const { return kind == k; }
};

/// The expressions that symbols are made of while it exists. Equal ones have one number.
class Expressions {
 public:
  Expressions();
  ~Expressions();
  Expressions(const Expressions&) = delete;
  Expressions& operator=(const Expressions&) = delete;
  /// The one that records now, on this thread.
  static Expressions& now();

  /// A word with this value.
  Symbol leaf(double value);
  /// A word that nobody has written.
  Symbol undefined();
  Symbol make(Expression::Kind kind, std::vector<Symbol> args, double constant = 0);
  const Expression& operator[](Expr e) const { return all_[static_cast<std::size_t>(e)]; }
  Expr size() const { return static_cast<Expr>(all_.size()); }

 private:
  using Key = std::tuple<Expression::Kind, double, std::vector<std::pair<double, Expr>>>;
  Symbol add(Expression e);

  std::vector<Expression> all_;
  std::map<Key, Expr> known_;
  Expressions* outer_;
};

/// The terms of a sum, the known one last; of anything else, itself.
std::vector<Symbol> terms_of(Symbol s);
Symbol sum_of(const std::vector<Symbol>& terms);

}  // namespace redblue::pebbling

template <>
struct std::numeric_limits<redblue::pebbling::Symbol> : std::numeric_limits<double> {};
