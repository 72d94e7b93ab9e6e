#include "redblue/pebbling/graphs/dot.hpp"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "pebbling/graphs.hpp"
#include "redblue/pebbling/graphs/catalog.hpp"
#include "support/refusal.hpp"

namespace redblue::test {
namespace {

using pebbling::Graph;
using pebbling::Node;
using pebbling::Op;
using pebbling::parse_dot;

bool same(const Graph& a, const Graph& b) {
  if (a.size() != b.size()) return false;
  for (Node v = 0; v < a.size(); ++v) {
    if (a.op(v) != b.op(v) || a.constant(v) != b.constant(v) || a.formula(v) != b.formula(v)) return false;
    if (a.name(v) != b.name(v) || a.is_output(v) != b.is_output(v)) return false;
    if (!std::ranges::equal(a.parents(v), b.parents(v))) return false;
  }
  return true;
}

RC_GTEST_PROP(Dot, keeps_the_graph, ()) {
  Graph g = any_graph();
  g.rename(0, *rc::gen::element<std::string>("", "a b", "\"", "\\", "\\\"x", "[]->{}", "a//b", "#"));
  RC_ASSERT(same(parse_dot(to_dot(g)), g));
}

TEST(Dot, keeps_the_graphs_of_attention) {
  for (const char* const family : {"attention", "online", "backward", "gradient"}) {
    const Graph g =
        pebbling::make_graph(family, {{"nq", "2"}, {"nk", "3"}, {"d", "2"}, {"dv", "1"}, {"mask", "011/110"}}).graph;
    EXPECT_TRUE(same(parse_dot(to_dot(g)), g)) << family;
  }
}

TEST(Dot, reads_what_others_write) {
  const Graph g = parse_dot(R"(/* a
    comment */ strict digraph "any name" {
      rankdir = LR; node [shape=box, style="a;b"]
# a line of a preprocessor
      c -> d -> e [weight=2]  // parents may come later
      a -> "c"; -1.5 -> e
      b [color=red; penwidth=2]
      a -> e; a -> e
  })");
  // c d e a -1.5 b, of which c, d, e wait for their parents
  ASSERT_EQ(g.size(), 6U);
  EXPECT_EQ(g.name(0), "a");
  EXPECT_TRUE(g.is_input(0));
  std::size_t outputs = 0;
  for (Node v = 0; v < g.size(); ++v) {
    outputs += g.is_output(v) ? 1 : 0;
    if (g.name(v) == "e") {
      EXPECT_EQ(g.parents(v).size(), 3U);
    }
    if (g.name(v) == "b") {
      EXPECT_TRUE(g.is_input(v) && !g.is_output(v));
    }
  }
  EXPECT_EQ(outputs, 1U);
}

TEST(Dot, names_what_is_wrong) {
  const auto says = [](const char* text) { return refusal_of([&] { parse_dot(text); }); };
  EXPECT_EQ(says(""), "line 1: a digraph is expected: the text ends");
  EXPECT_EQ(says("graph { a -- b }"), "line 1: a digraph is expected before graph");
  EXPECT_EQ(says("digraph {\n a -- b }"), "line 2: an edge of a digraph is ->, not --");
  EXPECT_EQ(says("digraph {\n a -> }"), "line 2: a node is missing before }");
  EXPECT_EQ(says("digraph { a"), "line 1: a node is missing: the text ends");
  EXPECT_EQ(says("digraph { a:n -> b }"), "line 1: : has no meaning here");
  EXPECT_EQ(says("digraph { subgraph x { a } }"), "line 1: subgraphs are not read");
  EXPECT_EQ(says("digraph { a [label=\"x"), "line 1: a quoted text has no end");
  EXPECT_EQ(says("digraph { /* "), "line 1: a comment has no end");
  EXPECT_EQ(says("digraph { } x"), "line 1: the graph has ended, but the text goes on");
  EXPECT_EQ(says("digraph { a -> b [k=2]; b [op=cosine] }"), "line 1: there is no operation cosine");
  EXPECT_EQ(says("digraph { b [k=two] }"), "line 1: k = two is no number");
  EXPECT_EQ(says("digraph { a -> b; b [op=quotient] }"), "quotient takes 2 parents, not 1");
  EXPECT_EQ(says("digraph { a -> a }"), "the graph has a cycle of 1 node: a -> a");
  EXPECT_EQ(says("digraph { x -> a -> b -> c -> a }"), "the graph has a cycle of 3 nodes: c -> a -> b -> c");
}

RC_GTEST_PROP(Dot, survives_any_change, ()) {
  std::string text = to_dot(pebbling::make_graph("backward", {{"nq", "1"}, {"nk", "2"}, {"d", "1"}}).graph);
  const int changes = *rc::gen::inRange(1, 4);
  for (int k = 0; k < changes; ++k)
    text[*rc::gen::inRange<std::size_t>(0, text.size())] =
        *rc::gen::element('0', '"', '\\', ' ', '\n', '-', '[', ']', '{', '}', '\0', '=', '/', '*', '\xff');
  try {
    parse_dot(text);
  } catch (const Error& e) {
    RC_ASSERT(std::string(e.what()).size() > 10);
  }
}

}  // namespace
}  // namespace redblue::test
