#include "redblue/pebbling/play/express.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string_view>

namespace redblue::pebbling {
namespace {

using Kind = Expression::Kind;

/// Writes an expression down.
class Writer {
 public:
  explicit Writer(const Holders& from) : from_(from) {}

  void write(Symbol s) {
    if (s.is_known()) return token(fmt::format("{}", s.k()));
    if (const auto held = from_.find(s.expr()); held != from_.end())
      token(fmt::format("x{}", number_of(held->second)));
    else
      write_parts(Expressions::now()[s.expr()]);
    if (s.k() != 1) token(fmt::format("{} *", s.k()));
  }
  Recipe recipe() && { return {.op = Op::formula, .parents = std::move(parents_), .formula = std::move(text_)}; }

 private:
  void token(std::string_view t) {
    if (!text_.empty()) text_ += ' ';
    text_ += t;
  }
  std::size_t number_of(Node parent) {
    const auto at = std::ranges::find(parents_, parent);
    if (at == parents_.end()) {
      parents_.push_back(parent);
      return parents_.size() - 1;
    }
    return static_cast<std::size_t>(at - parents_.begin());
  }
  void write_parts(const Expression& e) {
    switch (e.kind) {
      case Kind::sum:
        return write_sum(e);
      case Kind::product:
        return write_chain(e, "*");
      case Kind::quotient:
        return write_chain(e, "/");
      case Kind::maximum:
        return write_chain(e, "max");
      case Kind::exp:
        return write_chain(e, "exp");
      case Kind::log:
        return write_chain(e, "log");
      case Kind::tanh:
        return write_chain(e, "tanh");
      case Kind::leaf:
      case Kind::undefined:
        break;
    }
  }
  /// Between its arguments, or after its only one.
  void write_chain(const Expression& e, std::string_view op) {
    for (std::size_t i = 0; i < e.args.size(); ++i) {
      write(e.args[i]);
      if (i > 0 || e.args.size() == 1) token(op);
    }
  }
  void write_sum(const Expression& e) {
    for (std::size_t i = 0; i < e.args.size(); ++i) {
      const bool less = i > 0 && e.args[i].k() == -1;
      write(less ? -e.args[i] : e.args[i]);
      if (i > 0) token(less ? "-" : "+");
    }
    if (e.constant != 0) token(fmt::format("{} +", e.constant));
  }

  const Holders& from_;
  std::vector<Node> parents_;
  std::string text_;
};

/// The nodes that hold these expressions, if all are held.
std::optional<std::vector<Node>> nodes_of(std::span<const Symbol> list, const Holders& from) {
  std::vector<Node> nodes;
  for (const Symbol& s : list) {
    const auto held = from.find(s.expr());
    if (s.is_known() || held == from.end()) return std::nullopt;
    nodes.push_back(held->second);
  }
  return nodes;
}

bool have_no_factors(std::span<const Symbol> list) {
  return std::ranges::all_of(list, [](const Symbol& s) { return s.k() == 1; });
}

/// a + k b c, a + b + .. or a - b
std::optional<Recipe> plain_sum(const Expression& e, const Holders& from) {
  if (e.constant != 0) return std::nullopt;
  if (auto nodes = nodes_of(e.args, from)) {
    if (have_no_factors(e.args)) return Recipe{Op::sum, std::move(*nodes)};
    if (nodes->size() == 2 && e.args[0].k() == 1 && e.args[1].k() == -1)
      return Recipe{Op::difference, std::move(*nodes)};
  }
  if (e.args.size() != 2 || e.args[0].k() != 1) return std::nullopt;
  const auto a = nodes_of(std::span(e.args).first(1), from);
  const Expression& product = Expressions::now()[e.args[1].expr()];
  if (!a || !product.is(Kind::product) || product.args.size() != 2) return std::nullopt;
  const auto factors = nodes_of(product.args, from);
  if (!factors) return std::nullopt;
  return Recipe{Op::multiply_add, {a->front(), factors->front(), factors->back()}, e.args[1].k()};
}

/// exp(k a) or exp(k a - b)
std::optional<Recipe> plain_exp(Symbol exponent, const Holders& from) {
  if (auto node = nodes_of(std::span(&exponent, 1), from)) return Recipe{Op::exp, std::move(*node), exponent.k()};
  const Expression& e = Expressions::now()[exponent.expr()];
  if (exponent.k() != 1 || !e.is(Kind::sum) || e.constant != 0 || e.args.size() != 2 || e.args[1].k() != -1)
    return std::nullopt;
  auto nodes = nodes_of(e.args, from);
  if (!nodes) return std::nullopt;
  return Recipe{Op::exp, std::move(*nodes), e.args[0].k()};
}

/// Where one of the operations of graphs says it.
std::optional<Recipe> plain_recipe(Symbol s, const Holders& from) {
  if (s.is_known()) return Recipe{Op::constant, {}, s.k()};
  if (auto node = nodes_of(std::span(&s, 1), from))
    return Recipe{s.k() == 1 ? Op::copy : Op::product, std::move(*node), s.k()};
  const Expression& e = Expressions::now()[s.expr()];
  if (e.is(Kind::product)) {
    if (auto nodes = nodes_of(e.args, from)) return Recipe{Op::product, std::move(*nodes), s.k()};
    return std::nullopt;
  }
  if (s.k() != 1) return std::nullopt;
  if (e.is(Kind::sum)) return plain_sum(e, from);
  if (e.is(Kind::exp)) return plain_exp(e.args[0], from);
  const bool is_plain = e.is(Kind::quotient) || e.is(Kind::maximum) || e.is(Kind::log);
  if (!is_plain || !have_no_factors(e.args)) return std::nullopt;
  auto nodes = nodes_of(e.args, from);
  if (!nodes) return std::nullopt;
  return Recipe{e.is(Kind::quotient) ? Op::quotient : e.is(Kind::maximum) ? Op::maximum : Op::log, std::move(*nodes)};
}

}  // namespace

bool is_computable(Symbol s, const Holders& from, Expr but) {
  if (s.is_known()) return true;
  if (s.expr() != but && from.contains(s.expr())) return true;
  const Expression& e = Expressions::now()[s.expr()];
  if (e.is(Kind::leaf) || e.is(Kind::undefined)) return false;
  return std::ranges::all_of(e.args, [&](const Symbol& a) { return is_computable(a, from, but); });
}

Recipe recipe_for(Symbol s, const Holders& from) {
  if (auto plain = plain_recipe(s, from)) return std::move(*plain);
  Writer writer(from);
  writer.write(s);
  return std::move(writer).recipe();
}

}  // namespace redblue::pebbling
