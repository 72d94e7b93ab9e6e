#pragma once
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

/// Computations as graphs of single words: the CDAGs (computational directed acyclic graphs) of Hong & Kung, "I/O
/// complexity: the red-blue pebble game", STOC 1981. This room knows graphs and the game; it knows attention only in
/// the files that generate its graphs.
namespace redblue::pebbling {

using Node = std::uint32_t;

/// What a node computes from its parents a, b, c, ... in their order, with the constant k of the node.
enum class Op : std::uint8_t {
  input,         ///< nothing: its value is given
  unknown,       ///< a function that the graph does not name, as in graphs from files
  sum,           ///< a + b + ...
  difference,    ///< a - b
  product,       ///< k a b ...; with no constant, k = 1
  quotient,      ///< a / b
  multiply_add,  ///< a + k b c
  maximum,       ///< the largest of a, b, ...
  exp,           ///< exp(k a), exp(k a - b) if there is b
  log,           ///< log(a)
  copy,          ///< a
  constant,      ///< k: it has no parents, and is computed at any time
  formula,       ///< what its formula says (formula.hpp)
};
std::string_view name_of(Op op);
/// The operation of that name.
std::optional<Op> find_op(std::string_view name);

/// The value of a node, in fp64. Throws Error for input and unknown, and for formula, whose nodes Graph::evaluate
/// knows.
double evaluate(Op op, double k, std::span<const double> parents);

/// A graph whose nodes are numbered so that parents come before their children: it has no cycle, by its making.
class Graph {
 public:
  /// A node whose value is given.
  Node add_input(std::string name);
  /// A node computed from these, which the graph has already. Throws Error if it does not have one of them, if their
  /// number is not one that the operation takes, if one is given twice and the operation is unknown, or for a constant
  /// other than 1 of an operation that has none.
  Node add(Op op, std::span<const Node> parents, std::string name = {}, double k = 1);
  Node add(Op op, std::initializer_list<Node> parents, std::string name = {}, double k = 1) {
    return add(op, std::span<const Node>(parents.begin(), parents.size()), std::move(name), k);
  }
  /// A node that this formula of its parents gives (formula.hpp), kept with its numbers in their shortest form. Throws
  /// Error as add does, and if it is no formula of these parents.
  Node add_formula(std::span<const Node> parents, const std::string& formula, std::string name = {});
  void rename(Node v, std::string name) { names_[v] = std::move(name); }
  /// The value of this node is asked for: at the end it has a blue pebble.
  void mark_output(Node v);

  Node size() const { return static_cast<Node>(ops_.size()); }
  /// A parent that stands twice is counted twice.
  std::size_t edges() const { return parents_.size(); }
  Op op(Node v) const { return ops_[v]; }
  double constant(Node v) const { return constants_[v]; }
  /// Its formula; empty if its operation says what it computes.
  const std::string& formula(Node v) const { return formulas_[formula_of_[v]]; }
  /// The value of the node, given those of its parents, in fp64. Throws Error for input and unknown.
  double evaluate(Node v, std::span<const double> parents) const;
  const std::string& name(Node v) const { return names_[v]; }
  bool is_input(Node v) const { return ops_[v] == Op::input; }
  bool is_output(Node v) const { return outputs_[v]; }
  /// In the order that the operation reads them. A node may stand there twice (a square).
  std::span<const Node> parents(Node v) const {
    return {parents_.data() + first_parent_[v], first_parent_[v + 1] - first_parent_[v]};
  }

 private:
  Node append(Op op, std::string name, double k);

  std::vector<Op> ops_;
  std::vector<double> constants_;
  std::vector<bool> outputs_;
  std::vector<std::string> names_;
  struct KnownFormula {
    std::uint32_t place;  ///< in formulas_
    std::size_t parents;  ///< that it asks for
  };
  std::vector<std::string> formulas_{std::string()};  ///< each once
  std::map<std::string, KnownFormula> known_formulas_;
  std::vector<std::uint32_t> formula_of_;
  std::vector<std::size_t> first_parent_{0};
  std::vector<Node> parents_;
};

/// The node in messages: its name, or "node 7".
std::string label(const Graph& g, Node v);

/// The parents of a node, each once, in rising order.
std::vector<Node> different_parents(const Graph& g, Node v);

/// The children of each node, each once, in rising order.
std::vector<std::vector<Node>> children_of(const Graph& g);

/// The nodes whose values outputs are or come from.
std::vector<bool> needed_nodes(const Graph& g);

/// The number of different parents of the node that has most, among those that outputs need.
std::size_t largest_in_degree(const Graph& g);

}  // namespace redblue::pebbling
