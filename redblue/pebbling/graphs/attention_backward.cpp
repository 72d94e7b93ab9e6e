#include <fmt/format.h>

#include <utility>
#include <vector>

#include "redblue/pebbling/graphs/attention.hpp"
#include "redblue/pebbling/graphs/attention_builder.hpp"

namespace redblue::pebbling {
namespace {

Words nodes_of_weighted(Sums sums) { return sums == Sums::fma ? 1 : 2; }

/// What a pair of query i and key j leaves for the gradients.
struct Pair {
  Node i;
  Node j;
  Node p;
  Node ds;
};

Words sums_over(const std::vector<Words>& counts, Sums sums, Words entries) {
  Words nodes = 0;
  for (const Words terms : counts)
    if (terms > 0) nodes += entries * products_nodes(sums, terms);
  return nodes;
}

/// Rows of `to`, an output: sums over the pairs of a row of k `weight` `from`.
template <class Row, class Weight, class From>
void add_gradient(AttentionBuilder& b, const char* to, Node rows, Node columns, const std::vector<Pair>& pairs,
                  double k, const Row& row_of, const Weight& weight_of, const From& from) {
  std::vector<std::vector<Pair>> of_row(rows);
  for (const Pair& pair : pairs) of_row[row_of(pair)].push_back(pair);
  for (Node r = 0; r < rows; ++r) {
    if (of_row[r].empty()) continue;
    for (Node t = 0; t < columns; ++t) {
      const auto terms = factors(of_row[r].size(), [&](std::size_t k) {
        const Pair& pair = of_row[r][k];
        return Factors{weight_of(pair), from(pair)[t]};
      });
      b.graph.mark_output(add_products(b.graph, b.x.sums, terms, fmt::format("{}[{},{}]", to, r, t), k));
    }
  }
}

}  // namespace

Graph attention_backward(const Attention& x) {
  AttentionBuilder b(x);
  Graph& g = b.graph;
  b.add_inputs_of_forward();
  const auto dO = b.inputs("dO", x.n_q, x.d_v);
  std::vector<Node> lse(x.n_q);
  std::vector<Node> D(x.n_q);
  for (Node i = 0; i < x.n_q; ++i) lse[i] = g.add_input(fmt::format("lse[{}]", i));
  for (Node i = 0; i < x.n_q; ++i) D[i] = g.add_input(fmt::format("D[{}]", i));
  std::vector<Pair> pairs;
  for (Node i = 0; i < x.n_q; ++i)
    for (const Node j : b.keys_of(i)) {
      const std::string at = fmt::format("[{},{}]", i, j);
      const Node p = g.add(Op::exp, {b.score(b.Q[i], b.K[j], "s" + at), lse[i]}, "p" + at);
      const Node dp = b.dot(dO[i], b.V[j], "dp" + at);
      pairs.push_back({i, j, p, b.weighted(p, dp, D[i], "ds" + at)});
    }
  const auto query = [](const Pair& pair) { return pair.i; };
  const auto key = [](const Pair& pair) { return pair.j; };
  const auto p = [](const Pair& pair) { return pair.p; };
  const auto ds = [](const Pair& pair) { return pair.ds; };
  add_gradient(b, "dV", x.n_k, x.d_v, pairs, 1, key, p, [&](const Pair& pair) { return dO[pair.i]; });
  add_gradient(b, "dQ", x.n_q, x.d, pairs, b.scale(), query, ds, [&](const Pair& pair) { return b.K[pair.j]; });
  add_gradient(b, "dK", x.n_k, x.d, pairs, b.scale(), key, ds, [&](const Pair& pair) { return b.Q[pair.i]; });
  return b.finished();
}

Words attention_backward_nodes(const Attention& x) {
  const Visibility pairs(x);
  const Words width = Words(x.d) + x.d_v;
  Words nodes = Words(x.n_q) * (width + 2) + Words(x.n_k) * width;
  nodes += pairs.pairs * (products_nodes(x.sums, x.d) + products_nodes(x.sums, x.d_v) + 1 + nodes_of_weighted(x.sums));
  return nodes + sums_over(pairs.of_query, x.sums, x.d) + sums_over(pairs.of_key, x.sums, width);
}

Graph attention_gradient(const Attention& x) {
  AttentionBuilder b(x);
  Graph& g = b.graph;
  const auto A1 = b.inputs("A1", x.n_q, x.d);
  const auto A2 = b.inputs("A2", x.n_k, x.d);
  const auto A3 = b.inputs("A3", x.n_k, x.d);
  const auto X = b.inputs("X", x.d, x.d);
  const auto Y = b.inputs("Y", x.d, x.d_v);
  const auto dO = b.inputs("dO", x.n_q, x.d_v);
  /// row r of a product with a d-row matrix on its right
  const auto times = [&](const std::vector<Node>& row, const std::vector<std::vector<Node>>& matrix, Node columns,
                         const char* name, Node r) {
    std::vector<Node> result;
    result.reserve(columns);
    for (Node t = 0; t < columns; ++t) {
      const auto terms = factors(x.d, [&](std::size_t u) { return Factors{row[u], matrix[u][t]}; });
      result.push_back(add_products(g, x.sums, terms, fmt::format("{}[{},{}]", name, r, t)));
    }
    return result;
  };
  std::vector<std::vector<Node>> h(x.n_k);
  std::vector<std::vector<Node>> U;
  std::vector<Node> seeing;
  for (Node i = 0; i < x.n_q; ++i) {
    const std::vector<Node> keys = b.keys_of(i);
    if (keys.empty()) continue;
    const std::vector<Node> S = times(A1[i], X, x.d, "S", i);
    std::vector<Node> e, f, q, ds;
    for (std::vector<Node>* const words : {&e, &f, &q, &ds}) words->reserve(keys.size());
    for (const Node j : keys) {
      if (h[j].empty()) h[j] = times(A3[j], Y, x.d_v, "h", j);
      e.push_back(g.add(Op::exp, {b.dot(S, A2[j], fmt::format("s[{},{}]", i, j))}, fmt::format("e[{},{}]", i, j)));
    }
    const Node l = add_sum(g, x.sums, e, fmt::format("l[{}]", i));
    for (std::size_t k = 0; k < keys.size(); ++k) {
      f.push_back(g.add(Op::quotient, {e[k], l}, fmt::format("f[{},{}]", i, keys[k])));
      q.push_back(b.dot(dO[i], h[keys[k]], fmt::format("q[{},{}]", i, keys[k])));
    }
    const Node v = b.dot(f, q, fmt::format("v[{}]", i));
    for (std::size_t k = 0; k < keys.size(); ++k)
      ds.push_back(b.weighted(f[k], q[k], v, fmt::format("p[{},{}]", i, keys[k])));
    std::vector<Node> row;
    row.reserve(x.d);
    for (Node t = 0; t < x.d; ++t) {
      const auto terms = factors(keys.size(), [&](std::size_t k) { return Factors{ds[k], A2[keys[k]][t]}; });
      row.push_back(add_products(g, x.sums, terms, fmt::format("U[{},{}]", i, t)));
    }
    U.push_back(std::move(row));
    seeing.push_back(i);
  }
  for (Node t = 0; t < x.d && !seeing.empty(); ++t)
    for (Node u = 0; u < x.d; ++u) {
      const auto terms = factors(seeing.size(), [&](std::size_t k) { return Factors{A1[seeing[k]][t], U[k][u]}; });
      g.mark_output(add_products(g, x.sums, terms, fmt::format("g[{},{}]", t, u)));
    }
  return b.finished();
}

Words attention_gradient_nodes(const Attention& x) {
  const Visibility pairs(x);
  const Words d = x.d;
  const Words d_v = x.d_v;
  Words queries = 0;
  Words keys = 0;
  for (const Words count : pairs.of_query) queries += count > 0 ? 1 : 0;
  for (const Words count : pairs.of_key) keys += count > 0 ? 1 : 0;
  Words nodes = Words(x.n_q) * (d + d_v) + Words(x.n_k) * d * 2 + d * (d + d_v);
  nodes += (queries * d + keys * d_v) * products_nodes(x.sums, d);  // S and h
  nodes += pairs.pairs * (products_nodes(x.sums, d) + products_nodes(x.sums, d_v) + 2 + nodes_of_weighted(x.sums));
  for (const Words count : pairs.of_query) nodes += sum_nodes(x.sums, count);
  nodes += sums_over(pairs.of_query, x.sums, d + 1);  // v and U
  return nodes + d * d * products_nodes(x.sums, queries);
}

}  // namespace redblue::pebbling
