#pragma once
#include <fmt/format.h>

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "redblue/language/error.hpp"
#include "redblue/pebbling/graphs/attention.hpp"

namespace redblue::pebbling {

/// What the graphs of attention have in common.
struct AttentionBuilder {
  explicit AttentionBuilder(const Attention& problem) : x(problem) {}

  std::vector<std::vector<Node>> inputs(const char* name, Node rows, Node columns) {
    std::vector<std::vector<Node>> matrix(rows);
    for (Node i = 0; i < rows; ++i)
      for (Node t = 0; t < columns; ++t) matrix[i].push_back(graph.add_input(fmt::format("{}[{},{}]", name, i, t)));
    return matrix;
  }
  void add_inputs_of_forward() {
    Q = inputs("Q", x.n_q, x.d);
    K = inputs("K", x.n_k, x.d);
    V = inputs("V", x.n_k, x.d_v);
  }
  std::vector<Node> keys_of(Node i) const {
    std::vector<Node> keys;
    for (Node j = 0; j < x.n_k; ++j)
      if (x.visible(i, j)) keys.push_back(j);
    return keys;
  }
  double scale() const { return 1 / std::sqrt(static_cast<double>(x.d)); }
  Node score(const std::vector<Node>& q, const std::vector<Node>& k, const std::string& name) {
    return dot(q, k, name, scale());
  }
  Node dot(const std::vector<Node>& a, const std::vector<Node>& b, const std::string& name, double k = 1) {
    const auto terms = factors(a.size(), [&](std::size_t t) { return Factors{a[t], b[t]}; });
    return add_products(graph, x.sums, terms, name, k);
  }
  /// P (dP - D).
  Node weighted(Node p, Node dp, Node D, const std::string& name) {
    const Node parents[3] = {p, dp, D};
    if (x.sums == Sums::fma) return graph.add_formula(parents, "x0 x1 x2 - *", name);
    return graph.add(Op::product, {p, graph.add(Op::difference, {dp, D})}, name);
  }
  Graph finished() {
    for (Node v = 0; v < graph.size(); ++v)
      if (graph.is_output(v)) return std::move(graph);
    throw Error("no query sees a key: there is nothing to compute");
  }

  const Attention& x;
  Graph graph{};
  std::vector<std::vector<Node>> Q{}, K{}, V{};
};

}  // namespace redblue::pebbling
