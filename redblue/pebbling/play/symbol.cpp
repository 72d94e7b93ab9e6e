#include "redblue/pebbling/play/symbol.hpp"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <utility>

namespace redblue::pebbling {
namespace {

thread_local Expressions* recording = nullptr;

double value_of(Expression::Kind kind, const std::vector<Symbol>& args, double constant) {
  using enum Expression::Kind;
  double value = kind == sum ? constant : args.at(0).value();
  switch (kind) {
    case leaf:
    case undefined:
      break;
    case sum:
      for (const Symbol& a : args) value += a.value();
      break;
    case product:
      for (std::size_t i = 1; i < args.size(); ++i) value *= args[i].value();
      break;
    case quotient:
      return value / args.at(1).value();
    case maximum:
      for (const Symbol& a : args) value = std::max(value, a.value());
      break;
    case exp:
      return std::exp(value);
    case log:
      return std::log(value);
    case tanh:
      return std::tanh(value);
  }
  return value;
}

/// Appends the arguments of `s` if it is of this kind, else itself.
void append_flat(std::vector<Symbol>& list, Expression::Kind kind, Symbol s) {
  const Expressions& all = Expressions::now();
  if (!s.is_known() && s.k() == 1 && all[s.expr()].is(kind))
    list.insert(list.end(), all[s.expr()].args.begin(), all[s.expr()].args.end());
  else
    list.push_back(s);
}

}  // namespace

Expressions::Expressions() : outer_(std::exchange(recording, this)) {}
Expressions::~Expressions() { recording = outer_; }
Expressions& Expressions::now() {
  if (recording == nullptr) throw std::logic_error("nobody records symbols");
  return *recording;
}

Symbol Expressions::add(Expression e) {
  all_.push_back(std::move(e));
  return {1, size() - 1};
}
Symbol Expressions::leaf(double value) { return add({Expression::Kind::leaf, {}, 0, value}); }
Symbol Expressions::undefined() {
  return add({Expression::Kind::undefined, {}, 0, std::numeric_limits<double>::quiet_NaN()});
}
Symbol Expressions::make(Expression::Kind kind, std::vector<Symbol> args, double constant) {
  Key key{kind, constant, {}};
  for (const Symbol& a : args) std::get<2>(key).emplace_back(a.k(), a.expr());
  const auto [at, is_new] = known_.try_emplace(std::move(key), size());
  if (is_new) {
    const double value = value_of(kind, args, constant);
    add({kind, std::move(args), constant, value});
  }
  return {1, at->second};
}

double Symbol::value() const { return is_known() ? k_ : k_ * Expressions::now()[e_].value; }

std::vector<Symbol> terms_of(Symbol s) {
  if (s.is_known() || !Expressions::now()[s.expr()].is(Expression::Kind::sum)) return {s};
  const Expression& sum = Expressions::now()[s.expr()];
  std::vector<Symbol> terms;
  terms.reserve(sum.args.size() + 1);
  for (const Symbol& a : sum.args) terms.emplace_back(s.k() * a.k(), a.expr());
  if (sum.constant != 0) terms.emplace_back(s.k() * sum.constant);
  return terms;
}

Symbol sum_of(const std::vector<Symbol>& terms) {
  std::vector<Symbol> unknown;
  double constant = 0;
  for (const Symbol& t : terms) {
    if (t.is_known())
      constant += t.k();
    else
      unknown.push_back(t);
  }
  if (unknown.empty()) return constant;
  if (unknown.size() == 1 && constant == 0) return unknown[0];
  return Expressions::now().make(Expression::Kind::sum, std::move(unknown), constant);
}

Symbol operator+(Symbol a, Symbol b) {
  if (a.is_known() && b.is_known()) return a.k_ + b.k_;
  std::vector<Symbol> terms = terms_of(a);
  for (const Symbol& t : terms_of(b)) terms.push_back(t);
  return sum_of(terms);
}

Symbol operator*(Symbol a, Symbol b) {
  if (a.is_known() && b.is_known()) return a.k_ * b.k_;
  if (b.is_known()) std::swap(a, b);
  if (a.is_known()) return a.k_ == 0 ? Symbol(0) : Symbol(a.k_ * b.k_, b.e_);
  std::vector<Symbol> factors;
  append_flat(factors, Expression::Kind::product, {1, a.e_});
  append_flat(factors, Expression::Kind::product, {1, b.e_});
  const Symbol product = Expressions::now().make(Expression::Kind::product, std::move(factors));
  return {a.k_ * b.k_, product.e_};
}

Symbol operator/(Symbol a, Symbol b) {
  if (a.is_known() && (a.k_ == 0 || b.is_known())) return a.k_ / (b.is_known() ? b.k_ : 1);
  if (b.is_known()) return {a.k_ / b.k_, a.e_};
  const Symbol above = a.is_known() ? Symbol(1) : Symbol(1, a.e_);
  const Symbol ratio = Expressions::now().make(Expression::Kind::quotient, {above, {1, b.e_}});
  return {a.k_ / b.k_, ratio.e_};
}

Symbol exp(Symbol a) {
  return a.is_known() ? Symbol(std::exp(a.k())) : Expressions::now().make(Expression::Kind::exp, {a});
}
Symbol log(Symbol a) {
  return a.is_known() ? Symbol(std::log(a.k())) : Expressions::now().make(Expression::Kind::log, {a});
}
Symbol tanh(Symbol a) {
  return a.is_known() ? Symbol(std::tanh(a.k())) : Expressions::now().make(Expression::Kind::tanh, {a});
}
bool signbit(Symbol a) { return std::signbit(a.value()); }

Symbol max_or_nan(Symbol a, Symbol b) {
  constexpr double kLeast = -std::numeric_limits<double>::infinity();
  if (a.is_known() && b.is_known()) return std::max(a.k(), b.k());
  if (a == Symbol(kLeast)) return b;
  if (b == Symbol(kLeast)) return a;
  std::vector<Symbol> list;
  append_flat(list, Expression::Kind::maximum, a);
  append_flat(list, Expression::Kind::maximum, b);
  return Expressions::now().make(Expression::Kind::maximum, std::move(list));
}

}  // namespace redblue::pebbling
