#include "redblue/pebbling/graphs/formula.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>
#include <utility>
#include <vector>

#include "redblue/files/text.hpp"
#include "redblue/language/error.hpp"

namespace redblue::pebbling {
namespace {

template <class N>
std::optional<N> whole_token(std::string_view token) {
  N value{};
  const auto [stop, error] = std::from_chars(token.data(), token.data() + token.size(), value);
  return error == std::errc() && stop == token.data() + token.size() ? std::optional(value) : std::nullopt;
}

std::optional<double> of_two(std::string_view op, double a, double b) {
  if (op == "+") return a + b;
  if (op == "-") return a - b;
  if (op == "*") return a * b;
  if (op == "/") return a / b;
  if (op == "max") return std::max(a, b);
  return std::nullopt;
}
std::optional<double> of_one(std::string_view op, double a) {
  if (op == "exp") return std::exp(a);
  if (op == "log") return std::log(a);
  if (op == "tanh") return std::tanh(a);
  return std::nullopt;
}

/// Takes its arguments from the stack and leaves its value there. False if it is no token, or takes more than there is.
bool apply_token(std::string_view token, std::span<const double> parents, std::vector<double>& stack) {
  if (token.starts_with('x')) {
    const auto parent = whole_token<std::size_t>(token.substr(1));
    if (!parent || *parent >= parents.size()) return false;
    stack.push_back(parents[*parent]);
    return true;
  }
  if (const auto number = whole_token<double>(token); number && !std::isnan(*number)) {
    stack.push_back(*number);
    return true;
  }
  if (stack.empty()) return false;
  if (const auto value = of_one(token, stack.back())) {
    stack.back() = *value;
    return true;
  }
  if (stack.size() < 2) return false;
  const auto value = of_two(token, stack[stack.size() - 2], stack.back());
  if (!value) return false;
  stack.pop_back();
  stack.back() = *value;
  return true;
}

/// Calls f with each token.
template <class F>
void for_tokens(std::string_view formula, const F& f) {
  for (std::string_view rest = formula;;) {
    const std::size_t blank = rest.find(' ');
    f(rest.substr(0, blank));
    if (blank == std::string_view::npos) return;
    rest.remove_prefix(blank + 1);
  }
}

}  // namespace

double evaluate_formula(std::string_view formula, std::span<const double> parents) {
  std::vector<double> stack;
  std::size_t number = 0;
  for_tokens(formula, [&](std::string_view token) {
    ++number;
    if (!apply_token(token, parents, stack))
      throw Error(fmt::format("token {}, {}, is wrong in a formula of {} parents: {}", number, file::printable(token),
                              parents.size(), file::printable(formula)));
  });
  if (stack.size() != 1)
    throw Error(fmt::format("a formula leaves {} values, not 1: {}", stack.size(), file::printable(formula)));
  return stack[0];
}

Formula read_formula(std::string_view formula, std::size_t parents) {
  const std::vector<double> ones(parents, 1);
  evaluate_formula(formula, ones);
  Formula result;
  for_tokens(formula, [&](std::string_view token) {
    if (!result.text.empty()) result.text += ' ';
    if (const auto parent = token.starts_with('x') ? whole_token<std::size_t>(token.substr(1)) : std::nullopt) {
      result.text += fmt::format("x{}", *parent);
      result.parents = std::max(result.parents, *parent + 1);
    } else if (const auto number = whole_token<double>(token)) {
      result.text += fmt::format("{}", *number);
    } else {
      result.text += token;
    }
  });
  return result;
}

}  // namespace redblue::pebbling
