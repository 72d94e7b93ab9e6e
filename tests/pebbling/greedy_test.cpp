#include "redblue/pebbling/search/greedy.hpp"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <string>

#include "pebbling/graphs.hpp"
#include "redblue/pebbling/graphs/catalog.hpp"
#include "redblue/pebbling/referee.hpp"
#include "redblue/pebbling/search/solver.hpp"
#include "support/refusal.hpp"

namespace redblue::test {
namespace {

using pebbling::Graph;
using pebbling::Rules;

std::size_t greedy_io(const Graph& g, const Rules& rules, std::size_t M) {
  pebbling::Referee referee(g, rules, M);
  for (const pebbling::Move& move : greedy_play(g, rules, M)) referee.play(move);
  referee.finish();
  return referee.cost().io();
}

RC_GTEST_PROP(PebblingGreedy, plays_legally_and_never_below_the_optimum, ()) {
  const Graph g = any_graph();
  const Rules rules = pebbling::parse_rules(*rc::gen::element<std::string>(
      "place once", "slide once", "place", "slide once unused-inputs", "place processors=2"));
  const std::size_t M = least_memory(g, rules) + *rc::gen::inRange<std::size_t>(0, 4);
  const std::size_t io = greedy_io(g, rules, M);
  RC_ASSERT(io >= unavoidable_io(g, rules));
  if (rules.processors == 1 && !rules.recompute) RC_ASSERT(io >= solve(g, rules, M).lower);
  RC_ASSERT(greedy_io(g, rules, g.size() + 1) == unavoidable_io(g, rules));
}

TEST(PebblingGreedy, ALargeGraphIsNoTrouble) {
  const Graph g = pebbling::make_graph("grid", {{"rows", "300"}, {"columns", "300"}}).graph;
  const Rules rules = pebbling::parse_rules("slide once");
  EXPECT_GE(greedy_io(g, rules, 20), unavoidable_io(g, rules));
  EXPECT_EQ(greedy_io(g, rules, 400), unavoidable_io(g, rules));
  EXPECT_NE(refusal_of([&] { greedy_play(g, pebbling::parse_rules("partial"), 4); }), "accepted");
}

}  // namespace
}  // namespace redblue::test
