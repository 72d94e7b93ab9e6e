#include "redblue/pebbling/graphs/graph.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>

#include "pebbling/graphs.hpp"
#include "redblue/language/error.hpp"
#include "support/refusal.hpp"

namespace redblue::test {
namespace {

using pebbling::Graph;
using pebbling::Node;
using pebbling::Op;

TEST(Graph, keeps_parents_in_the_order_that_the_operation_reads_them) {
  Graph g;
  const Node a = g.add_input("a");
  const Node b = g.add_input("b");
  const Node v = g.add(Op::multiply_add, {b, a, a}, "v", 0.5);
  EXPECT_EQ(std::vector<Node>(g.parents(v).begin(), g.parents(v).end()), (std::vector<Node>{b, a, a}));
  EXPECT_EQ(pebbling::different_parents(g, v), (std::vector<Node>{a, b}));
  EXPECT_EQ(g.constant(v), 0.5);
  EXPECT_EQ(g.edges(), 3U);
  EXPECT_TRUE(g.is_input(a));
  EXPECT_FALSE(g.is_input(v));
}

TEST(Graph, refuses_what_is_no_graph) {
  Graph g;
  const Node a = g.add_input("a");
  const Node b = g.add_input("b");
  EXPECT_EQ(refusal_of([&] { g.add(Op::sum, {a, 2}); }), "node 2 has parent 2, which does not come before it");
  EXPECT_EQ(refusal_of([&] { g.add(Op::sum, std::span<const Node>()); }), "sum takes one or more parents, not 0");
  EXPECT_EQ(refusal_of([&] { g.add(Op::log, {a, b}); }), "log takes 1 parent, not 2");
  EXPECT_EQ(refusal_of([&] { g.add(Op::quotient, {a}); }), "quotient takes 2 parents, not 1");
  EXPECT_EQ(refusal_of([&] { g.add(Op::exp, {a, a, a}); }), "exp takes 1 to 2 parents, not 3");
  EXPECT_EQ(refusal_of([&] { g.add(Op::input, std::span<const Node>()); }),
            "an input has no parents and is not computed");
  EXPECT_EQ(refusal_of([&] { g.add(Op::unknown, {a, b, a}); }), "node 2 has parent 0 twice");
  EXPECT_EQ(refusal_of([&] { g.mark_output(2); }), "node 2 cannot be an output of a graph of 2 nodes");
  EXPECT_EQ(g.size(), 2U);
  EXPECT_EQ(g.edges(), 0U);
}

TEST(Graph, formulas_are_kept_as_redblue_writes_them_and_asked_for_their_parents) {
  Graph g;
  const Node a = g.add_input("a");
  const std::vector<Node> one{a}, two{a, a};
  EXPECT_EQ(g.formula(g.add_formula(two, "x00 2.50 * x1 +")), "x0 2.5 * x1 +");
  EXPECT_EQ(g.formula(g.add_formula(two, "x0 2.5 * x1 +")), "x0 2.5 * x1 +");
  EXPECT_THAT(refusal_of([&] { g.add_formula(one, "x0 2.5 * x1 +"); }), testing::HasSubstr("token 4, x1, is wrong"));
  EXPECT_EQ(g.size(), 3U);
}

TEST(Graph, operations_have_values) {
  const auto value = [](Op op, double k, std::vector<double> parents) { return pebbling::evaluate(op, k, parents); };
  EXPECT_EQ(value(Op::sum, 1, {1, 2, 4}), 7);
  EXPECT_EQ(value(Op::difference, 1, {1, 3}), -2);
  EXPECT_EQ(value(Op::product, 2, {3, 5, 7}), 210);
  EXPECT_EQ(value(Op::quotient, 1, {3, 4}), 0.75);
  EXPECT_EQ(value(Op::multiply_add, 2, {1, 3, 5}), 31);
  EXPECT_EQ(value(Op::maximum, 1, {-3, -1, -2}), -1);
  EXPECT_EQ(value(Op::exp, 2, {0.5}), std::exp(1.0));
  EXPECT_EQ(value(Op::exp, 2, {0.5, 3}), std::exp(-2.0));
  EXPECT_EQ(value(Op::log, 1, {2}), std::log(2.0));
  EXPECT_EQ(value(Op::copy, 1, {2}), 2);
  EXPECT_EQ(refusal_of([&] { value(Op::unknown, 1, {2}); }), "the operation does not say what its nodes compute");
}

TEST(Graph, finds_operations_by_name) {
  for (int k = 0; k <= static_cast<int>(Op::copy); ++k) {
    const Op op = static_cast<Op>(k);
    EXPECT_EQ(pebbling::find_op(pebbling::name_of(op)), op);
  }
  EXPECT_EQ(pebbling::find_op("cosine"), std::nullopt);
}

TEST(Graph, counts_the_parents_of_nodes_that_outputs_need) {
  Graph g;
  const Node a = g.add_input("a");
  const Node b = g.add_input("b");
  const Node c = g.add_input("c");
  const Node v = g.add(Op::product, {a, a, b});
  g.add(Op::sum, {a, b, c});
  EXPECT_EQ(pebbling::largest_in_degree(g), 0U);
  g.mark_output(v);
  EXPECT_EQ(pebbling::largest_in_degree(g), 2U);
  EXPECT_EQ(pebbling::needed_nodes(g), (std::vector<bool>{true, true, false, true, false}));
}

RC_GTEST_PROP(Graph, children_have_their_parents, ()) {
  const Graph g = any_graph();
  const auto children = pebbling::children_of(g);
  std::set<std::pair<Node, Node>> down;
  std::set<std::pair<Node, Node>> up;
  for (Node v = 0; v < g.size(); ++v) {
    RC_ASSERT(std::is_sorted(children[v].begin(), children[v].end()));
    for (const Node c : children[v]) RC_ASSERT(down.emplace(v, c).second);
    for (const Node p : g.parents(v)) up.emplace(p, v);
  }
  RC_ASSERT(down == up);
}

}  // namespace
}  // namespace redblue::test
