#include "redblue/pebbling/search/solver.hpp"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <string>
#include <vector>

#include "pebbling/graphs.hpp"
#include "pebbling/plain_search.hpp"
#include "redblue/pebbling/graphs/catalog.hpp"
#include "redblue/pebbling/referee.hpp"
#include "support/refusal.hpp"

namespace redblue::test {
namespace {

using pebbling::Arguments;
using pebbling::Graph;
using pebbling::make_graph;
using pebbling::Node;
using pebbling::Op;
using pebbling::Optimum;
using pebbling::parse_rules;
using pebbling::Rules;
using pebbling::solve;

Graph family(const std::string& name, const Arguments& arguments) { return make_graph(name, arguments).graph; }

std::size_t least(const Graph& g, const std::string& rules, std::size_t M) {
  const Optimum optimum = solve(g, parse_rules(rules), M);
  EXPECT_TRUE(optimum.proved()) << rules << ", M = " << M;
  return optimum.upper;
}

/// Of a graph with M from `first` on, until only inputs and outputs move.
std::vector<std::size_t> curve(const Graph& g, const std::string& rules, std::size_t first) {
  const std::size_t inputs_and_outputs = [&] {
    std::size_t count = 0;
    for (Node v = 0; v < g.size(); ++v) count += (g.is_input(v) ? 1 : 0) + (g.is_output(v) ? 1 : 0);
    return count;
  }();
  std::vector<std::size_t> result;
  for (std::size_t M = first; result.empty() || result.back() > inputs_and_outputs; ++M)
    result.push_back(least(g, rules, M));
  return result;
}

Graph attention(int n_q, int n_k, int d, const std::string& sums) {
  return family("attention",
                {{"nq", std::to_string(n_q)}, {"nk", std::to_string(n_k)}, {"d", std::to_string(d)}, {"sums", sums}});
}
Graph tree(int k, int depth) { return family("tree", {{"k", std::to_string(k)}, {"depth", std::to_string(depth)}}); }
Graph square_grid(int n) { return family("grid", {{"rows", std::to_string(n)}, {"columns", std::to_string(n)}}); }

using Curve = std::vector<std::size_t>;

TEST(PebblingSolver, TreesMoveWhatPappSobczykAndYzelmanSay) {
  EXPECT_EQ(least(tree(2, 2), "place once", 3), 7u);
  EXPECT_EQ(least(tree(2, 2), "partial", 3), 5u);
  // k^d + 2 k^(d-1) - 1 with k + 1 pebbles, one-shot and placing
  EXPECT_EQ(least(tree(2, 3), "place once", 3), 15u);
  EXPECT_EQ(least(tree(2, 3), "partial", 3), 11u);
  EXPECT_EQ(least(tree(3, 2), "place once", 4), 14u);
  EXPECT_EQ(least(tree(3, 2), "partial", 4), 10u);
  EXPECT_EQ(least(tree(2, 4), "place once", 3), 31u);
  EXPECT_EQ(least(tree(3, 3), "place once", 4), 44u);
  EXPECT_EQ(least(tree(4, 2), "place once", 5), 23u);
}

TEST(PebblingSolver, AMatrixTimesAVectorDependsOnHowItsRowsAreSummed) {
  const auto product = [](const std::string& sums) {
    return family("matrix-vector", {{"rows", "3"}, {"columns", "3"}, {"sums", sums}});
  };
  EXPECT_EQ(least(product("k-ary"), "place once", 6), 17u);
  EXPECT_EQ(least(product("chain"), "place once", 6), 15u);
  EXPECT_EQ(least(product("k-ary"), "partial", 6), 15u);
}

TEST(PebblingSolver, RecomputationHelpsAGridAndNotAttention) {
  EXPECT_EQ(least(square_grid(4), "place once", 3), 14u);
  EXPECT_EQ(least(square_grid(4), "place", 3), 11u);
  EXPECT_EQ(curve(attention(2, 2, 1, "fma"), "place once", 4), (Curve{16, 11, 10, 9, 8}));
  EXPECT_EQ(curve(attention(2, 2, 1, "chain"), "place once", 3), (Curve{24, 15, 11, 10, 9, 8}));
  EXPECT_EQ(least(attention(2, 2, 1, "fma"), "place", 5), 11u);
  for (const char* const rules : {"place once", "place"}) {
    EXPECT_EQ(curve(attention(1, 2, 1, "fma"), rules, 4), (Curve{8, 6})) << rules;
    EXPECT_EQ(curve(family("gemm", {{"m", "2"}, {"k", "2"}, {"n", "2"}}), rules, 4), (Curve{17, 14, 13, 12})) << rules;
  }
}

TEST(PebblingSolver, LargerGraphsAreNoTrouble) {
  EXPECT_EQ(curve(attention(2, 2, 2, "fma"), "place once", 5), (Curve{24, 22, 20, 16}));
  EXPECT_EQ(curve(attention(3, 3, 1, "fma"), "place once", 8), (Curve{16, 14, 13, 12}));
  EXPECT_EQ(curve(family("fft", {{"stages", "3"}}), "place once", 3), (Curve{40, 31, 27, 24, 22, 20, 18, 16}));
}

TEST(PebblingSolver, SeveralProcessorsKeepMore) {
  const Graph fft = family("fft", {{"stages", "2"}});
  EXPECT_EQ(least(fft, "place once", 3), 14u);
  EXPECT_EQ(least(fft, "place once processors=2", 3), 12u);
  EXPECT_EQ(least(square_grid(5), "place once", 3), 25u);
  EXPECT_EQ(least(square_grid(5), "place once processors=2", 3), 23u);
  for (const char* const rules : {"place processors=2", "place once processors=2", "slide once processors=2"})
    EXPECT_EQ(least(square_grid(3), rules, 3), least_io(square_grid(3), parse_rules(rules), 3)) << rules;
}

TEST(PebblingSolver, PlainSearchAgrees) {
  for (const char* const text :
       {"place once", "slide once", "place", "slide", "partial", "place once unused-inputs", "place once processors=2",
        "slide once processors=2", "place processors=2", "slide processors=3"})
    EXPECT_TRUE(rc::check(std::string("the optimum under ") + text, [text] {
      const Rules rules = parse_rules(text);
      Graph g = any_graph(rules.processors > 1 ? 6 : rules.recompute ? 7 : 8);
      if (rules.compute == Rules::Compute::partial)
        for (Node v = 0; v < g.size(); ++v)
          if (children_of(g)[v].empty()) g.mark_output(v);
      const std::size_t M = least_memory(g, rules) + *rc::gen::inRange<std::size_t>(0, 2);
      const Optimum optimum = solve(g, rules, M);
      RC_ASSERT(optimum.proved());
      RC_ASSERT(least_io(g, rules, M) == optimum.upper);
      pebbling::Referee referee(g, rules, M);
      for (const pebbling::Move& move : optimum.moves) referee.play(move);
      referee.finish();
      RC_ASSERT(referee.cost().io() == optimum.upper);
    }));
}

TEST(PebblingSolver, ALimitLeavesABracketThatHoldsTheOptimum) {
  pebbling::SolverLimits limits;
  limits.seconds = 0;
  std::vector<std::size_t> told;
  limits.progress = [&](std::size_t lower, std::size_t upper) {
    EXPECT_LE(lower, upper);
    told.push_back(upper);
  };
  const Graph g = attention(3, 3, 1, "fma");
  const Optimum optimum = solve(g, parse_rules("place once"), 8, limits);
  EXPECT_FALSE(optimum.proved());
  EXPECT_LE(optimum.lower, 16u);
  EXPECT_GE(optimum.upper, 16u);
  EXPECT_FALSE(told.empty());
}

TEST(PebblingSolver, WhatItCannotDoItSays) {
  const Graph grid = square_grid(3);
  EXPECT_NE(refusal_of<CapacityError>([&] { solve(grid, parse_rules("place once"), 2); }).find("infeasible"),
            std::string::npos);
  EXPECT_EQ(refusal_of<Unsupported>([&] { solve(square_grid(6), parse_rules("place processors=2"), 4); }),
            "outputs of this graph need 36 nodes; with 2 processors the exact solver takes at most 32");
  EXPECT_NE(refusal_of<Unsupported>([&] { solve(square_grid(9), parse_rules("place once"), 4); }).find("at most 64"),
            std::string::npos);
  EXPECT_NE(refusal_of<Unsupported>([&] { solve(square_grid(7), parse_rules("partial"), 4); }).find("64"),
            std::string::npos);
}

}  // namespace
}  // namespace redblue::test
