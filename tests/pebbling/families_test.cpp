#include "redblue/pebbling/graphs/families.hpp"

#include <gtest/gtest.h>

#include <bit>

#include "pebbling/values.hpp"
#include "redblue/pebbling/graphs/catalog.hpp"
#include "redblue/pebbling/rules.hpp"
#include "support/refusal.hpp"

namespace redblue::test {
namespace {

using pebbling::Graph;
using pebbling::Node;
using pebbling::Sums;

constexpr Sums kEverySum[] = {Sums::fma, Sums::chain, Sums::tree, Sums::k_ary};

TEST(Families, matrix_products_have_their_values_and_sizes) {
  for (const Sums sums : kEverySum)
    for (const auto& [m, k, n] : {std::array<Node, 3>{1, 1, 1}, {2, 3, 4}, {3, 5, 1}, {1, 4, 2}}) {
      const Graph g = pebbling::gemm(m, k, n, sums);
      EXPECT_EQ(g.size(), pebbling::gemm_nodes(m, k, n, sums));
      const Values values(g);
      EXPECT_EQ(values.repeated_names(), 0);
      for (Node i = 0; i < m; ++i)
        for (Node j = 0; j < n; ++j) {
          double c = 0;
          for (Node t = 0; t < k; ++t) c += Values::input("A", i, t) * Values::input("B", t, j);
          EXPECT_NEAR(values.at("C", i, j), c, 1e-14) << name_of(sums);
        }
      const Graph y = pebbling::matrix_vector(m, k, sums);
      EXPECT_EQ(y.size(), pebbling::matrix_vector_nodes(m, k, sums));
      const Values product(y);
      for (Node i = 0; i < m; ++i) {
        double c = 0;
        for (Node t = 0; t < k; ++t) c += Values::input("A", i, t) * Values::input(fmt::format("x[{}]", t));
        EXPECT_NEAR(product.at(fmt::format("y[{}]", i)), c, 1e-14);
      }
    }
  EXPECT_EQ(pebbling::matrix_vector(3, 3, Sums::k_ary).size(), 24U);
}

TEST(Families, strassen_multiplies) {
  for (Node levels = 0; levels <= 3; ++levels) {
    const Graph g = pebbling::strassen(levels);
    EXPECT_EQ(g.size(), pebbling::strassen_nodes(levels));
    const Values values(g);
    const std::size_t n = std::size_t{1} << levels;
    ASSERT_EQ(values.outputs().size(), n * n);
    std::vector<double> expected;
    for (std::size_t i = 0; i < n; ++i)
      for (std::size_t j = 0; j < n; ++j) {
        double c = 0;
        for (std::size_t t = 0; t < n; ++t) c += Values::input("A", i, t) * Values::input("B", t, j);
        expected.push_back(c);
      }
    // Outputs come in the order of their nodes, which is that of the quarters at every level: compare as multisets.
    std::vector<double> found = values.outputs();
    std::sort(found.begin(), found.end());
    std::sort(expected.begin(), expected.end());
    for (std::size_t k = 0; k < found.size(); ++k) EXPECT_NEAR(found[k], expected[k], 1e-12);
  }
  EXPECT_EQ(pebbling::strassen(1).size(), 33U);
}

TEST(Families, fft_transforms) {
  for (Node stages = 0; stages <= 4; ++stages) {
    const Graph g = pebbling::fft(stages);
    EXPECT_EQ(g.size(), pebbling::fft_nodes(stages));
    const Values values(g);
    const unsigned n = 1U << stages;
    for (unsigned k = 0; k < n; ++k) {
      double sum = 0;
      for (unsigned i = 0; i < n; ++i)
        sum += (std::popcount(i & k) % 2 == 0 ? 1 : -1) * Values::input(fmt::format("x[{}]", i));
      EXPECT_NEAR(values.outputs()[k], sum, 1e-13);
    }
  }
}

TEST(Families, the_others_have_their_sizes_and_shapes) {
  for (Node k = 1; k <= 4; ++k)
    for (Node depth = 0; depth <= 4; ++depth) {
      const Graph g = pebbling::k_ary_tree(k, depth);
      EXPECT_EQ(g.size(), pebbling::k_ary_tree_nodes(k, depth));
      EXPECT_EQ(pebbling::largest_in_degree(g), depth == 0 ? 0 : k);
      EXPECT_EQ(g.edges() + 1, g.size());
    }
  for (Node height = 0; height <= 5; ++height) {
    const Graph g = pebbling::pyramid(height);
    EXPECT_EQ(g.size(), pebbling::pyramid_nodes(height));
    EXPECT_EQ(g.edges(), Words(height) * (height + 1));
  }
  for (Node rows = 1; rows <= 4; ++rows)
    for (Node columns = 1; columns <= 4; ++columns) {
      const Graph g = pebbling::grid(rows, columns);
      EXPECT_EQ(g.size(), pebbling::grid_nodes(rows, columns));
      EXPECT_EQ(g.edges(), (rows - 1) * columns + rows * (columns - 1));
      EXPECT_EQ(Values(g).repeated_names(), 0);
    }
  for (Node group = 1; group <= 3; ++group)
    for (Node length = 1; length <= 4; ++length) {
      const Graph g = pebbling::zipper(group, length);
      EXPECT_EQ(g.size(), pebbling::zipper_nodes(group, length));
      EXPECT_EQ(g.edges(), group * length + length - 1);
      EXPECT_EQ(pebbling::largest_in_degree(g), group + (length > 1 ? 1U : 0U));
    }
}

TEST(Catalog, makes_graphs_by_name) {
  const pebbling::NamedGraph g = pebbling::make_graph("attention", {{"nq", "2"}, {"nk", "3"}, {"d", "1"}});
  EXPECT_EQ(g.text, "attention nq=2 nk=3 d=1 dv=1 mask=full sums=fma lse=none");
  EXPECT_EQ(g.problem, "forward nq=2 nk=3 d=1 dv=1 mask=full");
  EXPECT_EQ(g.graph.size(), 32U);
  EXPECT_EQ(pebbling::make_graph("fft", {{"stages", "3"}}).problem, "none");
  for (const pebbling::Family& family : pebbling::families()) {
    pebbling::Arguments arguments;
    for (const std::string_view name : family.parameters)
      for (const pebbling::Parameter& p : pebbling::parameters())
        if (p.name == name && p.standard.empty()) arguments[std::string(name)] = "2";
    const pebbling::NamedGraph small = pebbling::make_graph(std::string(family.name), arguments);
    for (const auto& [name, value] : arguments)
      EXPECT_NE(small.text.find(" " + name + "=" + value), std::string::npos) << small.text;
    EXPECT_GT(pebbling::least_memory(small.graph, {}), 1U) << family.name;
  }
}

TEST(Catalog, refuses_what_makes_no_graph) {
  const auto refused = [](const std::string& family, const pebbling::Arguments& a) {
    return refusal_of([&] { pebbling::make_graph(family, a); });
  };
  EXPECT_EQ(refused("fftt", {}), "there is no family of graphs fftt: did you mean fft?");
  EXPECT_EQ(refused("fft", {}), "graph fft needs stages (stages: 2^stages words)");
  EXPECT_EQ(refused("fft", {{"stages", "2"}, {"k", "2"}}), "graph fft has no parameter k; it has stages");
  EXPECT_EQ(refused("pyramid", {{"height", "-1"}}), "height = -1; it is a whole number from 0 to 16777216");
  EXPECT_EQ(refused("pyramid", {{"height", "1e3"}}), "height = 1e3; it is a whole number from 0 to 16777216");
  EXPECT_EQ(refused("pyramid", {{"height", "16777216"}}),
            "graph pyramid has 140737513521153 nodes here; 16777216 is the most");
  EXPECT_EQ(refused("fft", {{"stages", "64"}}), "stages = 64; a graph has at most 16777216 nodes");
  EXPECT_EQ(refused("tree", {{"k", "1000"}, {"depth", "24"}}).substr(0, 16), "graph tree has 1");
  EXPECT_EQ(refused("attention", {{"nq", "9999999"}, {"nk", "9999999"}, {"d", "1"}}),
            "nq nk = 99999980000001; a graph has at most 16777216 nodes");
  EXPECT_EQ(refused("attention", {{"nq", "2"}, {"nk", "2"}, {"d", "1"}, {"mask", "11/1"}}),
            "mask = 11/1 has not 2 rows of 2 keys");
  EXPECT_EQ(refused("attention", {{"nq", "2"}, {"nk", "2"}, {"d", "1"}, {"mask", "upper"}}),
            "mask = upper; it is full, causal, or a row of 0 and 1 for each query, such as 110/111");
  EXPECT_EQ(refused("attention", {{"nq", "1"}, {"nk", "2"}, {"d", "1"}, {"mask", "00"}}),
            "no query sees a key: there is nothing to compute");
  EXPECT_EQ(refused("online", {{"nq", "1"}, {"nk", "2"}, {"d", "1"}, {"lse", "inner"}}),
            "lse = inner: online attention has lse = sink or none");
  EXPECT_EQ(refused("gemm", {{"m", "1"}, {"k", "2"}, {"n", "1"}, {"sums", "chains"}}),
            "sums = chains: did you mean chain?");
}

}  // namespace
}  // namespace redblue::test
