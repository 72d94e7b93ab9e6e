#include "redblue/pebbling/graphs/hdag.hpp"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "pebbling/graphs.hpp"
#include "redblue/pebbling/graphs/catalog.hpp"
#include "support/refusal.hpp"

namespace redblue::test {
namespace {

using pebbling::Graph;
using pebbling::Node;
using pebbling::parse_hdag;

TEST(Hdag, reads_the_format) {
  // Indices in any order, weights or none, comments, and nodes whose parents come after them.
  const Graph g = parse_hdag(
      "%% header\n% more\n2 4 5\n1 7\n0 1 % weights\n\n3 1 1\n0\n1 1\r\n2 1\n0 3\n0 1\n1 1\n1 0\n0 0 % the end\n");
  EXPECT_EQ(g.size(), 4U);
  EXPECT_TRUE(g.is_input(0));  // node 2, alone
  EXPECT_FALSE(g.is_output(0));
  EXPECT_TRUE(g.is_input(1));                                // node 3
  EXPECT_EQ(different_parents(g, 2), std::vector<Node>{1});  // node 1
  EXPECT_EQ(different_parents(g, 3), (std::vector<Node>{1, 2}));
  EXPECT_TRUE(g.is_output(3));
}

TEST(Hdag, names_the_line_that_is_wrong) {
  const auto says = [](const char* text) { return refusal_of([&] { parse_hdag(text); }); };
  EXPECT_EQ(says(""), "the text ends after line 0, where the line of sizes is missing");
  EXPECT_EQ(says("%x\n1 2\n"), "line 2: the line of sizes begins with 3 whole numbers");
  EXPECT_EQ(says("1 2 3 4\n"), "line 1: the line of sizes has 3 numbers, no more");
  EXPECT_EQ(says("1 -2 3\n"), "line 1: the line of sizes begins with 3 whole numbers");
  EXPECT_EQ(says("1 99999999999 3\n"), "line 1: the line of sizes is 99999999999; it must be below 16777217");
  EXPECT_EQ(says("1 16777216 3\n"), "the text ends after line 1, where hyperedge is missing");
  EXPECT_EQ(says("1 2 2\n0\n0\n0\n0 0\n0 1"), "line 4: node 0 comes twice");
  EXPECT_EQ(says("1 2 2\n0\n0\n1\n0 0\n0 2"), "line 6: a pin is 2; it must be below 2");
  EXPECT_EQ(says("1 2 2\n0\n0\n1\n0 0\n0 0"), "line 6: node 0 is pinned to hyperedge 0 twice");
  EXPECT_EQ(says("1 2 2\n0\n0\n1\n0 0\n0 1\n0 1"), "line 7: the last pin stands before this line: 0 1");
  EXPECT_EQ(says("2 2 4\n0\n1\n0\n1\n0 0\n0 1\n1 1\n1 0"), "the graph has a cycle of 2 nodes: 0 -> 1 -> 0");
}

RC_GTEST_PROP(Hdag, keeps_the_graph, ()) {
  const Graph any = any_graph();
  Graph g;  // with outputs as the format has them, and no constants
  const auto children = children_of(any);
  for (Node v = 0; v < any.size(); ++v) {
    if (any.parents(v).empty())
      g.add_input("");
    else
      g.add(pebbling::Op::unknown, different_parents(any, v));
    if (children[v].empty() && !g.is_input(v)) g.mark_output(v);
  }
  const Graph back = parse_hdag(to_hdag(g));
  RC_ASSERT(back.size() == g.size());
  for (Node v = 0; v < g.size(); ++v) {
    RC_ASSERT(different_parents(back, v) == different_parents(g, v));
    RC_ASSERT(back.is_input(v) == g.is_input(v));
    RC_ASSERT(back.is_output(v) == g.is_output(v));
  }
}

/// No text ends the program: each is read, or refused with a sentence.
RC_GTEST_PROP(Hdag, survives_any_change, ()) {
  std::string text = to_hdag(pebbling::make_graph("gemm", {{"m", "1"}, {"k", "2"}, {"n", "2"}}).graph);
  const int changes = *rc::gen::inRange(1, 4);
  for (int k = 0; k < changes; ++k)
    text[*rc::gen::inRange<std::size_t>(0, text.size())] =
        *rc::gen::element('0', '1', '9', ' ', '\n', '-', '%', '\0', 'x');
  try {
    parse_hdag(text);
  } catch (const Error& e) {
    RC_ASSERT(std::string(e.what()).size() > 10);
  }
}

TEST(Hdag, says_what_the_format_cannot) {
  const auto graph = [](const char* lse) {
    return pebbling::make_graph("attention", {{"nq", "1"}, {"nk", "2"}, {"d", "1"}, {"lse", lse}}).graph;
  };
  EXPECT_EQ(
      refusal_of([&] { to_hdag(graph("inner")); }),
      "l[0] is an output and has children: .hdag knows as outputs the nodes without children, and no others; .dot "
      "knows all");
  EXPECT_EQ(parse_hdag(to_hdag(graph("sink"))).size(), graph("sink").size());
}

TEST(Hdag, a_million_nodes_are_no_trouble) {
  const Graph g = pebbling::make_graph("grid", {{"rows", "1000"}, {"columns", "1000"}}).graph;
  EXPECT_EQ(parse_hdag(to_hdag(g)).edges(), g.edges());
}

}  // namespace
}  // namespace redblue::test
