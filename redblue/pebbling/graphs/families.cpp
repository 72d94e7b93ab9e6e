#include "redblue/pebbling/graphs/families.hpp"

#include <fmt/format.h>

#include <vector>

namespace redblue::pebbling {
namespace {

/// Where the power is beyond 2^60, the result is a smaller number that is beyond it, too.
Words to_the_power(Words base, Words exponent) {
  Words result = 1;
  for (Words k = 0; k < exponent && base != 1 && result <= Words(index_t{1} << 60); k += 1) result = result * base;
  return result;
}

/// x[0], x[1], ..
std::vector<Node> vector_of_inputs(Graph& g, std::size_t number) {
  std::vector<Node> inputs(number);
  for (std::size_t i = 0; i < number; ++i) inputs[i] = g.add_input(fmt::format("x[{}]", i));
  return inputs;
}

/// rows x columns inputs with names such as A[1,2].
std::vector<std::vector<Node>> matrix_of_inputs(Graph& g, const char* name, Node rows, Node columns) {
  std::vector<std::vector<Node>> matrix(rows);
  for (Node i = 0; i < rows; ++i)
    for (Node j = 0; j < columns; ++j) matrix[i].push_back(g.add_input(fmt::format("{}[{},{}]", name, i, j)));
  return matrix;
}

/// A square matrix of nodes, row by row.
struct Square {
  std::size_t n;
  std::vector<Node> nodes;
  /// One of its quarters.
  Square quarter(std::size_t row, std::size_t column) const {
    Square q{n / 2, {}};
    for (std::size_t i = 0; i < q.n; ++i)
      for (std::size_t j = 0; j < q.n; ++j) q.nodes.push_back(nodes[(row * q.n + i) * n + column * q.n + j]);
    return q;
  }
};

Square combine(Graph& g, Op op, const Square& a, const Square& b) {
  Square c{a.n, {}};
  for (std::size_t k = 0; k < a.nodes.size(); ++k) c.nodes.push_back(g.add(op, {a.nodes[k], b.nodes[k]}));
  return c;
}

/// Strassen, "Gaussian elimination is not optimal", 1969.
Square strassen_product(Graph& g, const Square& a, const Square& b) {
  if (a.n == 1) return {1, {g.add(Op::product, {a.nodes[0], b.nodes[0]})}};
  const auto plus = [&](const Square& x, const Square& y) { return combine(g, Op::sum, x, y); };
  const auto minus = [&](const Square& x, const Square& y) { return combine(g, Op::difference, x, y); };
  const Square a11 = a.quarter(0, 0), a12 = a.quarter(0, 1), a21 = a.quarter(1, 0), a22 = a.quarter(1, 1);
  const Square b11 = b.quarter(0, 0), b12 = b.quarter(0, 1), b21 = b.quarter(1, 0), b22 = b.quarter(1, 1);
  const Square m1 = strassen_product(g, plus(a11, a22), plus(b11, b22));
  const Square m2 = strassen_product(g, plus(a21, a22), b11);
  const Square m3 = strassen_product(g, a11, minus(b12, b22));
  const Square m4 = strassen_product(g, a22, minus(b21, b11));
  const Square m5 = strassen_product(g, plus(a11, a12), b22);
  const Square m6 = strassen_product(g, minus(a21, a11), plus(b11, b12));
  const Square m7 = strassen_product(g, minus(a12, a22), plus(b21, b22));
  const Square quarters[2][2] = {{plus(minus(plus(m1, m4), m5), m7), plus(m3, m5)},
                                 {plus(m2, m4), plus(plus(minus(m1, m2), m3), m6)}};
  Square c{a.n, {}};
  const std::size_t half = a.n / 2;
  for (std::size_t i = 0; i < a.n; ++i)
    for (std::size_t j = 0; j < a.n; ++j)
      c.nodes.push_back(quarters[i / half][j / half].nodes[(i % half) * half + j % half]);
  return c;
}

}  // namespace

Graph k_ary_tree(Node k, Node depth) {
  Graph g;
  std::vector<Node> level = vector_of_inputs(g, static_cast<std::size_t>(to_the_power(k, depth).to_index()));
  for (Node d = depth; d-- > 0;) {
    std::vector<Node> above;
    for (std::size_t i = 0; i < level.size(); i += k)
      above.push_back(g.add(Op::sum, std::span(level).subspan(i, k), fmt::format("v[{},{}]", d, i / k)));
    level = std::move(above);
  }
  g.mark_output(level[0]);
  return g;
}
Words k_ary_tree_nodes(Words k, Words depth) { return k == 1 ? depth + 1 : (to_the_power(k, depth + 1) - 1) / (k - 1); }

Graph matrix_vector(Node rows, Node columns, Sums sums) {
  Graph g;
  const auto a = matrix_of_inputs(g, "A", rows, columns);
  const std::vector<Node> x = vector_of_inputs(g, columns);
  for (Node i = 0; i < rows; ++i) {
    const auto terms = factors(columns, [&](std::size_t j) { return Factors{a[i][j], x[j]}; });
    g.mark_output(add_products(g, sums, terms, fmt::format("y[{}]", i)));
  }
  return g;
}
Words matrix_vector_nodes(Words rows, Words columns, Sums sums) {
  return rows * columns + columns + rows * products_nodes(sums, columns);
}

Graph pyramid(Node height) {
  Graph g;
  std::vector<Node> row = vector_of_inputs(g, std::size_t{height} + 1);
  for (Node level = 1; level <= height; ++level) {
    for (Node i = 0; i + level <= height; ++i)
      row[i] = g.add(Op::sum, {row[i], row[i + 1]}, fmt::format("v[{},{}]", level, i));
  }
  g.mark_output(row[0]);
  return g;
}
Words pyramid_nodes(Words height) { return (height + 1) * (height + 2) / 2; }

Graph grid(Node rows, Node columns) {
  Graph g;
  std::vector<Node> above(columns);
  for (Node i = 0; i < rows; ++i)
    for (Node j = 0; j < columns; ++j) {
      const std::string name = fmt::format("v[{},{}]", i, j);
      if (i == 0 && j == 0)
        above[j] = g.add_input(name);
      else if (i == 0)
        above[j] = g.add(Op::copy, {above[j - 1]}, name);
      else if (j == 0)
        above[j] = g.add(Op::copy, {above[j]}, name);
      else
        above[j] = g.add(Op::sum, {above[j], above[j - 1]}, name);
    }
  g.mark_output(above[columns - 1]);
  return g;
}
Words grid_nodes(Words rows, Words columns) { return rows * columns; }

Graph fft(Node stages) {
  Graph g;
  const std::size_t points = std::size_t{1} << stages;
  std::vector<Node> words = vector_of_inputs(g, points);
  for (Node s = 0; s < stages; ++s) {
    const std::size_t span = std::size_t{1} << s;
    std::vector<Node> next(points);
    for (std::size_t i = 0; i < points; ++i) {
      const std::string name = fmt::format("v[{},{}]", s + 1, i);
      next[i] = (i & span) == 0 ? g.add(Op::sum, {words[i], words[i + span]}, name)
                                : g.add(Op::difference, {words[i - span], words[i]}, name);
    }
    words = std::move(next);
  }
  for (const Node v : words) g.mark_output(v);
  return g;
}
Words fft_nodes(Words stages) { return (stages + 1) * to_the_power(2, stages); }

Graph zipper(Node group, Node length) {
  Graph g;
  std::vector<Node> groups[2];
  for (const std::size_t side : {0U, 1U})
    for (Node i = 0; i < group; ++i)
      groups[side].push_back(g.add_input(fmt::format("{}[{}]", side == 0 ? 'a' : 'b', i)));
  Node last = 0;
  for (Node i = 0; i < length; ++i) {
    std::vector<Node> parents = groups[i % 2];
    if (i > 0) parents.insert(parents.begin(), last);
    last = g.add(Op::sum, parents, fmt::format("v[{}]", i));
  }
  g.mark_output(last);
  return g;
}
Words zipper_nodes(Words group, Words length) { return group * 2 + length; }

Graph gemm(Node m, Node k, Node n, Sums sums) {
  Graph g;
  const auto a = matrix_of_inputs(g, "A", m, k);
  const auto b = matrix_of_inputs(g, "B", k, n);
  for (Node i = 0; i < m; ++i)
    for (Node j = 0; j < n; ++j) {
      const auto terms = factors(k, [&](std::size_t t) { return Factors{a[i][t], b[t][j]}; });
      g.mark_output(add_products(g, sums, terms, fmt::format("C[{},{}]", i, j)));
    }
  return g;
}
Words gemm_nodes(Words m, Words k, Words n, Sums sums) { return m * k + k * n + m * n * products_nodes(sums, k); }

Graph strassen(Node levels) {
  Graph g;
  const std::size_t n = std::size_t{1} << levels;
  const auto inputs = [&](const char* name) {
    Square s{n, {}};
    for (const auto& row : matrix_of_inputs(g, name, static_cast<Node>(n), static_cast<Node>(n)))
      s.nodes.insert(s.nodes.end(), row.begin(), row.end());
    return s;
  };
  const Square a = inputs("A");
  const Square b = inputs("B");
  for (const Node v : strassen_product(g, a, b).nodes) g.mark_output(v);
  return g;
}
/// T(l) = 7 T(l-1) + 18 * 4^(l-1), T(0) = 1, beside the inputs.
Words strassen_nodes(Words levels) {
  const Words seven = to_the_power(7, levels);
  const Words four = to_the_power(4, levels);
  return seven + (seven - four) * 6 + four * 2;
}

}  // namespace redblue::pebbling
