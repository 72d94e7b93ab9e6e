#include "redblue/pebbling/osp.hpp"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "pebbling/graphs.hpp"
#include "pebbling/players.hpp"
#include "redblue/pebbling/graphs/catalog.hpp"
#include "redblue/pebbling/graphs/families.hpp"
#include "redblue/pebbling/graphs/hdag.hpp"
#include "redblue/pebbling/search/solver.hpp"
#include "support/refusal.hpp"

namespace redblue::test {
namespace {

using pebbling::Certificate;
using pebbling::Graph;
using pebbling::parse_osp;
using pebbling::parse_rules;

Graph small_tree() { return pebbling::make_graph("tree", {{"k", "2"}, {"depth", "1"}}).graph; }

TEST(PebblingOsp, HasATextInSupersteps) {
  const Certificate c = plain_certificate(small_tree(), parse_rules("place"), "tree", "none");
  const std::string text =
      "%% PebblingSchedule for 1 processors and 2 supersteps.\n"
      "Send down 0 to proc 0 in superstep 0\n"
      "Send down 1 to proc 0 in superstep 0\n"
      "Compute 2 on proc 0 in superstep 1\n"
      "Send up 2 from proc 0 in superstep 1\n"
      "Evict 2 from proc 0 in superstep 1\n"
      "Evict 0 from proc 0 in superstep 1\n"
      "Evict 1 from proc 0 in superstep 1\n";
  EXPECT_EQ(to_osp(c), text);
  EXPECT_EQ(parse_osp(c.graph, text).moves, c.moves);
}

/// A play comes back as it was; one of several processors with moves of different processors in another order.
RC_GTEST_PROP(PebblingOsp, comes_back_from_its_text, ()) {
  const std::string rules = *rc::gen::element<std::string>("place", "place once", "place once processors=3");
  Certificate c = plain_certificate(any_graph(), parse_rules(rules));
  bool has_constant = false;
  for (pebbling::Node v = 0; v < c.graph.size(); ++v) has_constant |= c.graph.op(v) == pebbling::Op::constant;
  if (has_constant) {
    RC_ASSERT(refusal_of([&] { to_osp(c); }).find("is a constant") != std::string::npos);
    return;
  }
  if (*rc::gen::arbitrary<bool>()) {
    c.moves = solve(c.graph, c.rules, c.M, {.seconds = 1}).moves;
    pebbling::Referee referee(c.graph, c.rules, c.M);
    for (const pebbling::Move& move : c.moves) referee.play(move);
    c.cost = referee.cost();
  }
  const std::string text = to_osp(c);
  const auto [processors, moves] = parse_osp(c.graph, text);
  RC_ASSERT(processors == c.rules.processors);
  if (processors == 1) RC_ASSERT(moves == c.moves);
  c.moves = moves;
  verify(c);
  RC_ASSERT(to_osp(c) == text);
}

TEST(PebblingOsp, NodesOfAFileKeepTheirNumbers) {
  // Node 0 is computed from 1 and 2.
  const Graph g = pebbling::parse_hdag("2 3 4\n0\n1\n0\n1\n2\n0 1\n0 0\n1 2\n1 0\n");
  const auto moves = parse_osp(g,
                               "%% PebblingSchedule for 1 processors and 1 supersteps.\n"
                               "Send down 1 to proc 0 in superstep 0\nCompute 0 on proc 0 in superstep 0\n")
                         .moves;
  EXPECT_TRUE(g.is_input(moves[0].node));
  EXPECT_FALSE(g.is_input(moves[1].node));
}

TEST(PebblingOsp, SaysWhatIsWrong) {
  const Graph g = small_tree();
  const std::string head = "%% PebblingSchedule for 2 processors and 1 supersteps.\n";
  const auto says = [&](const std::string& text) { return refusal_of([&] { parse_osp(g, text); }); };
  EXPECT_EQ(says(""), "the schedule is empty");
  EXPECT_NE(says("Compute 2 on proc 0 in superstep 0\n").find("line 1: a schedule of OneStopParallel begins with"),
            std::string::npos);
  EXPECT_NE(says(head + "Compute 2 on proc 0 in super").find("line 2: a move is"), std::string::npos);
  EXPECT_NE(says(head + "Send up 2 to proc 0 in superstep 0").find("line 2: a move is"), std::string::npos);
  EXPECT_EQ(says(head + "\nCompute 3 on proc 0 in superstep 0"), "line 3: there is no node 3; the graph has 3 nodes");
  EXPECT_EQ(says(head + "Compute 2 on proc 2 in superstep 0"), "line 2: there is no processor 2 among 2");
  EXPECT_EQ(says(head + "Compute 2 on proc 1 in superstep 1"), "line 2: superstep 1 comes after superstep 0 of 1");
  EXPECT_NE(says("%% PebblingSchedule for 65 processors and 1 supersteps.\n").find("1 to 64"), std::string::npos);
  Certificate c = plain_certificate(small_tree(), parse_rules("slide"), "tree", "none");
  EXPECT_NE(refusal_of([&] { to_osp(c); }).find("play with --rules place"), std::string::npos);
}

}  // namespace
}  // namespace redblue::test
