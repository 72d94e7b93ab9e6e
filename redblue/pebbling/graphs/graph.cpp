#include "redblue/pebbling/graphs/graph.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "redblue/language/error.hpp"
#include "redblue/pebbling/graphs/formula.hpp"

namespace redblue::pebbling {
namespace {

constexpr std::size_t kAnyNumber = std::numeric_limits<std::size_t>::max();

struct OpTraits {
  std::string_view name;
  std::size_t fewest_parents;
  std::size_t most_parents;
  bool has_constant = false;
};
constexpr std::array<OpTraits, 13> kOps = {{{"input", 0, 0},
                                            {"unknown", 1, kAnyNumber},
                                            {"sum", 1, kAnyNumber},
                                            {"difference", 2, 2},
                                            {"product", 1, kAnyNumber, true},
                                            {"quotient", 2, 2},
                                            {"multiply_add", 3, 3, true},
                                            {"maximum", 1, kAnyNumber},
                                            {"exp", 1, 2, true},
                                            {"log", 1, 1},
                                            {"copy", 1, 1},
                                            {"constant", 0, 0, true},
                                            {"formula", 1, kAnyNumber}}};

const OpTraits& traits_of(Op op) { return kOps[static_cast<std::size_t>(op)]; }

std::string numbers_of_parents(const OpTraits& op) {
  if (op.most_parents == kAnyNumber) return "one or more parents";
  if (op.most_parents == 1) return "1 parent";
  if (op.most_parents == 0) return "no parents";
  if (op.fewest_parents == op.most_parents) return fmt::format("{} parents", op.most_parents);
  return fmt::format("{} to {} parents", op.fewest_parents, op.most_parents);
}

void check_number_of_parents(Op op, std::size_t number) {
  const OpTraits& traits = traits_of(op);
  if (op == Op::input) throw Error("an input has no parents and is not computed");
  if (number < traits.fewest_parents || number > traits.most_parents)
    throw Error(fmt::format("{} takes {}, not {}", traits.name, numbers_of_parents(traits), number));
}

}  // namespace

std::string_view name_of(Op op) { return traits_of(op).name; }

std::optional<Op> find_op(std::string_view name) {
  const auto* const found = std::ranges::find(kOps, name, &OpTraits::name);
  if (found == kOps.end()) return std::nullopt;
  return static_cast<Op>(found - kOps.begin());
}

double evaluate(Op op, double k, std::span<const double> parents) {
  check_number_of_parents(op, parents.size());
  if (op == Op::constant) return k;
  double value = parents[0];
  const auto rest = parents.subspan(1);
  switch (op) {
    case Op::input:
    case Op::unknown:
    case Op::formula:
      throw Error("the operation does not say what its nodes compute");
    case Op::constant:
      return k;
    case Op::sum:
      for (const double x : rest) value += x;
      return value;
    case Op::difference:
      return value - parents[1];
    case Op::product:
      value *= k;
      for (const double x : rest) value *= x;
      return value;
    case Op::quotient:
      return value / parents[1];
    case Op::multiply_add:
      return value + k * parents[1] * parents[2];
    case Op::maximum:
      for (const double x : rest) value = std::max(value, x);
      return value;
    case Op::exp:
      return std::exp(rest.empty() ? k * value : k * value - parents[1]);
    case Op::log:
      return std::log(value);
    case Op::copy:
      return value;
  }
  throw Error("an operation that does not exist");
}

Node Graph::append(Op op, std::string name, double k) {
  if (ops_.size() >= std::numeric_limits<Node>::max())
    throw Error(fmt::format("a graph has at most {} nodes", std::numeric_limits<Node>::max()));
  ops_.push_back(op);
  constants_.push_back(k);
  outputs_.push_back(false);
  names_.push_back(std::move(name));
  formula_of_.push_back(0);
  first_parent_.push_back(parents_.size());
  return static_cast<Node>(ops_.size() - 1);
}

Node Graph::add_input(std::string name) { return append(Op::input, std::move(name), 1); }

Node Graph::add(Op op, std::span<const Node> parents, std::string name, double k) {
  check_number_of_parents(op, parents.size());
  if (!traits_of(op).has_constant && k != 1)
    throw Error(fmt::format("{} has no constant: 1 stands in its place, not {}", name_of(op), k));
  for (const Node p : parents)
    if (p >= size()) throw Error(fmt::format("node {} has parent {}, which does not come before it", size(), p));
  if (op == Op::unknown) {
    std::vector<Node> sorted(parents.begin(), parents.end());
    std::ranges::sort(sorted);
    const auto twice = std::ranges::adjacent_find(sorted);
    if (twice != sorted.end()) throw Error(fmt::format("node {} has parent {} twice", size(), *twice));
  }
  parents_.insert(parents_.end(), parents.begin(), parents.end());
  return append(op, std::move(name), k);
}

Node Graph::add_formula(std::span<const Node> parents, const std::string& formula, std::string name) {
  auto known = known_formulas_.find(formula);
  if (known == known_formulas_.end() || known->second.parents > parents.size()) {
    Formula read = read_formula(formula, parents.size());
    const auto next = static_cast<std::uint32_t>(formulas_.size());
    known = known_formulas_.try_emplace(std::move(read.text), KnownFormula{next, read.parents}).first;
    if (known->second.place == next) formulas_.push_back(known->first);
  }
  const Node v = add(Op::formula, parents, std::move(name));
  formula_of_[v] = known->second.place;
  return v;
}

double Graph::evaluate(Node v, std::span<const double> parents) const {
  return op(v) == Op::formula ? evaluate_formula(formula(v), parents) : pebbling::evaluate(op(v), constant(v), parents);
}

void Graph::mark_output(Node v) {
  if (v >= size()) throw Error(fmt::format("node {} cannot be an output of a graph of {} nodes", v, size()));
  outputs_[v] = true;
}

std::string label(const Graph& g, Node v) { return g.name(v).empty() ? fmt::format("node {}", v) : g.name(v); }

std::vector<Node> different_parents(const Graph& g, Node v) {
  const auto all = g.parents(v);
  std::vector<Node> parents(all.begin(), all.end());
  std::ranges::sort(parents);
  const auto repeated = std::ranges::unique(parents);
  parents.erase(repeated.begin(), repeated.end());
  return parents;
}

std::vector<std::vector<Node>> children_of(const Graph& g) {
  std::vector<std::vector<Node>> children(g.size());
  for (Node v = 0; v < g.size(); ++v)
    for (const Node p : different_parents(g, v)) children[p].push_back(v);
  return children;
}

std::vector<bool> needed_nodes(const Graph& g) {
  std::vector<bool> needed(g.size());
  for (Node v = g.size(); v-- > 0;) {
    if (g.is_output(v)) needed[v] = true;
    if (!needed[v]) continue;
    for (const Node p : g.parents(v)) needed[p] = true;
  }
  return needed;
}

std::size_t largest_in_degree(const Graph& g) {
  const std::vector<bool> needed = needed_nodes(g);
  std::size_t largest = 0;
  for (Node v = 0; v < g.size(); ++v)
    if (needed[v] && g.parents(v).size() > largest) largest = std::max(largest, different_parents(g, v).size());
  return largest;
}

}  // namespace redblue::pebbling
