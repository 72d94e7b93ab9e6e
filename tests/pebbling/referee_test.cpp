#include "redblue/pebbling/referee.hpp"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <map>
#include <set>

#include "pebbling/graphs.hpp"
#include "support/refusal.hpp"

namespace redblue::test {
namespace {

using pebbling::Cost;
using pebbling::Graph;
using pebbling::IllegalMove;
using pebbling::Move;
using pebbling::Node;
using pebbling::Op;
using pebbling::parse_rules;
using pebbling::Referee;
using pebbling::Rules;
using Kind = Move::Kind;

/// (a b) (c d): 7 nodes.
Graph tree_of_seven() {
  Graph g;
  for (const char* const name : {"a", "b", "c", "d"}) g.add_input(name);
  g.add(Op::product, {0, 1}, "l");
  g.add(Op::product, {2, 3}, "r");
  g.mark_output(g.add(Op::product, {4, 5}, "o"));
  return g;
}

Cost play(const Graph& g, const std::string& rules, std::size_t M, const std::vector<Move>& moves) {
  Referee referee(g, parse_rules(rules), M);
  for (const Move& move : moves) referee.play(move);
  referee.finish();
  return referee.cost();
}

TEST(Referee, counts_a_tree_with_three_pebbles) {
  const Graph g = tree_of_seven();
  const std::vector<Move> place = {{Kind::read, 0},   {Kind::read, 1},    {Kind::compute, 4}, {Kind::write, 4},
                                   {Kind::remove, 0}, {Kind::remove, 1},  {Kind::remove, 4},  {Kind::read, 2},
                                   {Kind::read, 3},   {Kind::compute, 5}, {Kind::remove, 2},  {Kind::remove, 3},
                                   {Kind::read, 4},   {Kind::compute, 6}, {Kind::write, 6}};
  EXPECT_EQ(play(g, "place once", 3, place), (Cost{5, 2, 3, 3}));
  const std::vector<Move> slide = {{Kind::read, 0},     {Kind::read, 1},     {Kind::slide, 4, 0},
                                   {Kind::remove, 1},   {Kind::read, 2},     {Kind::read, 3},
                                   {Kind::slide, 5, 3}, {Kind::slide, 6, 4}, {Kind::write, 6}};
  EXPECT_EQ(play(g, "slide once", 3, slide), (Cost{4, 1, 3, 3}));
  const std::vector<Move> partial = {
      {Kind::read, 0},      {Kind::update, 4, 0}, {Kind::remove, 0},    {Kind::read, 1},
      {Kind::update, 4, 1}, {Kind::remove, 1},    {Kind::read, 2},      {Kind::update, 5, 2},
      {Kind::remove, 2},    {Kind::read, 3},      {Kind::update, 5, 3}, {Kind::remove, 3},
      {Kind::update, 6, 4}, {Kind::remove, 4},    {Kind::update, 6, 5}, {Kind::write, 6}};
  EXPECT_EQ(play(g, "partial", 3, partial), (Cost{4, 1, 6, 3}));
}

TEST(Referee, names_the_first_illegal_move) {
  const Graph g = tree_of_seven();
  const auto says = [&](const std::string& rules, const std::vector<Move>& moves) {
    return refusal_of([&] { play(g, rules, 3, moves); });
  };
  const std::vector<Move> left = {{Kind::read, 0}, {Kind::read, 1}, {Kind::compute, 4}};
  const auto then = [&](std::initializer_list<Move> more) {
    std::vector<Move> moves = left;
    moves.insert(moves.end(), more);
    return moves;
  };
  EXPECT_EQ(says("place", {{Kind::read, 4}}), "move 1: read l: it has no blue pebble");
  EXPECT_EQ(says("place", {{Kind::write, 0}}), "move 1: write a: it has no red pebble");
  EXPECT_EQ(says("place", {{Kind::remove, 0}}), "move 1: remove a: it has no red pebble");
  EXPECT_EQ(says("place", {{Kind::read, 7}}), "move 1: read node 7: the graph has 7 nodes");
  EXPECT_EQ(says("place", {{Kind::compute, 0}}), "move 1: compute a: it is an input");
  EXPECT_EQ(says("place", {{Kind::read, 0}, {Kind::compute, 4}}), "move 2: compute l: its parent b is not red");
  EXPECT_EQ(says("place", then({{Kind::read, 2}})), "move 4: read c: all 3 red pebbles are in use");
  EXPECT_EQ(says("place once", then({{Kind::compute, 4}})), "move 4: compute l: it was computed before");
  EXPECT_EQ(says("place", then({{Kind::slide, 4, 0}})), "move 4: slide l: the rules 'place' do not allow it");
  EXPECT_EQ(says("place", {{Kind::update, 4, 0}}), "move 1: update l: the rules 'place' do not allow it");
  EXPECT_EQ(says("slide", {{Kind::slide, 4, 2}}), "move 1: slide l: node 2 is not a parent of it");
  EXPECT_EQ(says("place", then({})), "the end, after 3 moves: o is an output and has no blue pebble");
  EXPECT_EQ(says("place", {{Kind::read, 0, 0, 1}}), "move 1: read a: there is no processor 1; the game has 1");
  EXPECT_EQ(says("place processors=2", {{Kind::read, 0}, {Kind::read, 1, 0, 1}, {Kind::compute, 4, 0, 1}}),
            "move 3: compute l on processor 1: its parent a is not red");
  EXPECT_EQ(says("partial", left), "move 3: compute l: with partial computations edges are computed, by update");
}

TEST(Referee, keeps_partly_computed_words) {
  const Graph g = tree_of_seven();
  Referee game(g, parse_rules("partial"), 3);
  const auto refused = [&](const Move& move) { return refusal_of([&] { game.play(move); }); };
  game.play({Kind::read, 0});
  game.play({Kind::update, 4, 0});
  EXPECT_EQ(refused({Kind::update, 4, 0}), "move 3: update l: its edge from a is computed already");
  EXPECT_EQ(refused({Kind::update, 4, 2}), "move 3: update l: node 2 is not a parent of it");
  EXPECT_EQ(refused({Kind::update, 4, 1}), "move 3: update l: b is not red");
  EXPECT_EQ(refused({Kind::update, 6, 4}), "move 3: update o: l is not whole yet");
  EXPECT_EQ(refused({Kind::remove, 4}), "move 3: remove l: it is partly computed and not blue");
  game.play({Kind::write, 4});
  game.play({Kind::remove, 4});
  EXPECT_FALSE(game.is_computed(4));
  game.play({Kind::read, 1});
  EXPECT_EQ(refused({Kind::update, 4, 1}),
            "move 6: update l: it is partly computed and blue only; it must be read first");
  game.play({Kind::read, 4});
  EXPECT_TRUE(game.is_blue(4));
  game.play({Kind::update, 4, 1});
  EXPECT_FALSE(game.is_blue(4));
  EXPECT_TRUE(game.is_computed(4));
  EXPECT_EQ(refused({Kind::remove, 4}), "move 8: remove l: it is not blue, and an edge from it is not computed yet");
  EXPECT_EQ(game.cost(), (Cost{3, 1, 2, 3}));
}

TEST(Referee, asks_for_whole_outputs_and_unused_inputs) {
  Graph g;
  const Node a = g.add_input("a");
  const Node b = g.add_input("b");
  const Node c = g.add_input("c");
  g.mark_output(g.add(Op::sum, {a, b}, "v"));
  EXPECT_EQ(refusal_of([&] { play(g, "partial", 2, {{Kind::read, a}, {Kind::update, 3, a}, {Kind::write, 3}}); }),
            "the end, after 3 moves: v is an output and is not whole");
  std::vector<Move> moves = {{Kind::read, a}, {Kind::read, b}, {Kind::compute, 3}, {Kind::write, 3}};
  EXPECT_EQ(play(g, "place once", 3, moves).io(), 3U);
  EXPECT_EQ(refusal_of([&] { play(g, "place unused-inputs", 4, moves); }),
            "the end, after 4 moves: c is an input and was never read");
  moves.push_back({Kind::read, c});
  EXPECT_EQ(play(g, "place unused-inputs", 4, moves).io(), 4U);
}

TEST(Referee, follows_a_graph_that_grows) {
  for (const char* const rules : {"place once", "partial"}) {
    Graph g;
    Referee game(g, parse_rules(rules), 3);
    const bool partial = std::string(rules) == "partial";
    const Node a = g.add_input("a");
    EXPECT_TRUE(game.is_blue(a));
    game.play({Kind::read, a});
    const Node v = g.add(Op::copy, {a});
    g.mark_output(v);
    EXPECT_FALSE(game.is_computed(v));
    game.play(partial ? Move{Kind::update, v, a} : Move{Kind::compute, v});
    EXPECT_NE(refusal_of([&] { game.finish(); }), "accepted");
    game.play({Kind::write, v});
    game.finish();
    EXPECT_EQ(game.cost(), (Cost{1, 1, 1, 2}));
  }
}

/// The rules of docs/pebbling.md once more, in sets.
struct Model {
  const Graph& g;
  Rules rules;
  std::size_t M;
  std::map<std::size_t, std::set<Node>> red{};
  std::set<Node> blue{};
  std::set<Node> computed{};
  std::set<Node> read{};
  std::set<std::pair<Node, Node>> done{};

  std::set<Node> parents(Node v) const { return {g.parents(v).begin(), g.parents(v).end()}; }
  bool whole(Node v) const {
    if (rules.compute != Rules::Compute::partial || g.parents(v).empty()) return g.is_input(v) || computed.contains(v);
    for (const Node p : parents(v))
      if (!done.contains({p, v})) return false;
    return true;
  }
  bool all_edges_from(Node v) const {
    for (Node c = 0; c < g.size(); ++c)
      if (parents(c).contains(v) && !done.contains({v, c})) return false;
    return true;
  }
  /// Plays it and says whether it was legal.
  bool play(const Move& m) {
    const Model before = *this;
    if (legal(m)) return true;
    red = before.red;
    blue = before.blue;
    return false;
  }
  bool legal(const Move& m) {
    std::set<Node>& mine = red[m.processor];
    const std::set<Node> from = parents(m.node);
    const bool all_red = std::includes(mine.begin(), mine.end(), from.begin(), from.end());
    const bool may_compute = !g.is_input(m.node) && all_red && (rules.recompute || !computed.contains(m.node));
    switch (m.kind) {
      case Kind::read:
        if (!blue.contains(m.node)) return false;
        mine.insert(m.node);
        if (mine.size() > M) return false;
        read.insert(m.node);
        return true;
      case Kind::write:
        blue.insert(m.node);
        return mine.contains(m.node);
      case Kind::compute:
        if ((rules.compute == Rules::Compute::partial && !from.empty()) || !may_compute) return false;
        mine.insert(m.node);
        if (mine.size() > M) return false;
        computed.insert(m.node);
        return true;
      case Kind::slide:
        if (rules.compute != Rules::Compute::slide || !may_compute || !from.contains(m.parent)) return false;
        mine.erase(m.parent);
        mine.insert(m.node);
        computed.insert(m.node);
        return true;
      case Kind::update:
        if (rules.compute != Rules::Compute::partial || !from.contains(m.parent) || !mine.contains(m.parent))
          return false;
        if (!whole(m.parent) || done.contains({m.parent, m.node})) return false;
        if (blue.contains(m.node) && !mine.contains(m.node)) return false;
        mine.insert(m.node);
        if (mine.size() > M) return false;
        blue.erase(m.node);
        done.emplace(m.parent, m.node);
        return true;
      case Kind::remove:
        if (rules.compute == Rules::Compute::partial && !blue.contains(m.node) &&
            !(whole(m.node) && all_edges_from(m.node)))
          return false;
        return mine.erase(m.node) == 1;
    }
    return false;
  }
  bool finished() const {
    for (Node v = 0; v < g.size(); ++v) {
      if (g.is_output(v) && !(blue.contains(v) && whole(v))) return false;
      if (rules.read_unused_inputs && g.is_input(v) && !read.contains(v)) return false;
    }
    return true;
  }
};

RC_GTEST_PROP(Referee, agrees_with_the_rules_in_sets, ()) {
  const Graph g = any_graph(6);
  const Rules rules =
      parse_rules(*rc::gen::element<std::string>("place", "place once", "slide", "slide once unused-inputs", "partial",
                                                 "place once processors=2", "slide processors=3"));
  const auto M = *rc::gen::inRange<std::size_t>(2, 6);
  Referee referee(g, rules, M);
  Model model{g, rules, M};
  for (Node v = 0; v < g.size(); ++v)
    if (g.is_input(v)) model.blue.insert(v);
  Cost cost;
  for (int k = 0; k < 150; ++k) {
    const auto v = *rc::gen::inRange<Node>(0, g.size());
    // Mostly what goes on: a parent of the node, or any node.
    const auto from = g.parents(v);
    const bool likely = !from.empty() && *rc::gen::inRange(0, 8) > 0;
    const Node parent =
        likely ? from[*rc::gen::inRange<std::size_t>(0, from.size())] : *rc::gen::inRange<Node>(0, g.size());
    const auto kind = static_cast<Kind>(*rc::gen::inRange(0, 6));
    const Move move{kind, v, parent, static_cast<std::uint16_t>(*rc::gen::inRange<std::size_t>(0, rules.processors))};
    const bool legal = model.play(move);
    const Cost before = referee.cost();
    try {
      referee.play(move);
      RC_ASSERT(legal);
      cost.reads += kind == Kind::read;
      cost.writes += kind == Kind::write;
      cost.computed += kind == Kind::compute || kind == Kind::slide || kind == Kind::update;
    } catch (const IllegalMove&) {
      RC_ASSERT(!legal);
      RC_ASSERT(referee.cost() == before);
    }
    for (std::size_t p = 0; p < rules.processors; ++p) {
      cost.peak = std::max(cost.peak, model.red[p].size());
      RC_ASSERT(referee.red_pebbles(p) == model.red[p].size());
      for (Node u = 0; u < g.size(); ++u) RC_ASSERT(referee.is_red(u, p) == model.red[p].contains(u));
    }
    for (Node u = 0; u < g.size(); ++u) {
      RC_ASSERT(referee.is_blue(u) == model.blue.contains(u));
      RC_ASSERT(referee.is_computed(u) == model.whole(u));
    }
  }
  RC_ASSERT(referee.cost() == cost);
  bool finished = true;
  try {
    referee.finish();
  } catch (const IllegalMove&) {
    finished = false;
  }
  RC_ASSERT(finished == model.finished());
}

}  // namespace
}  // namespace redblue::test
