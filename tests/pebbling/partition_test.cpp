#include "redblue/pebbling/search/partition.hpp"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <string>
#include <vector>

#include "pebbling/graphs.hpp"
#include "redblue/pebbling/graphs/families.hpp"
#include "redblue/pebbling/search/solver.hpp"
#include "support/refusal.hpp"

namespace redblue::test {
namespace {

using pebbling::Graph;
using pebbling::Node;
using pebbling::Optimum;
using pebbling::parse_rules;
using pebbling::Rules;
using pebbling::solve;

TEST(PebblingPartition, AnOptimalPlayGivesOneAndItsBoundHolds) {
  for (const char* const text : {"place once", "place", "slide"})
    EXPECT_TRUE(rc::check(std::string("partitions under ") + text, [text] {
      const Rules rules = parse_rules(text);
      const Graph g = any_graph(9);
      const std::size_t M = least_memory(g, rules);
      const Optimum optimum = solve(g, rules, M);
      const pebbling::Partition partition = partition_of(g, rules, M, optimum.moves);
      check_partition(g, partition, 2 * M);
      const std::size_t parts = pebbling::least_parts(g, 2 * M);
      RC_ASSERT(parts <= partition.parts.size());
      RC_ASSERT(pebbling::partition_bound(M, parts) <= optimum.upper);
    }));
}

TEST(PebblingPartition, ADominatorIsASmallestCut) {
  const Graph g = pebbling::grid(4, 4);
  const std::vector<Node> corner{15}, diagonal{6, 9, 12}, all{1, 2, 3, 4, 5};
  EXPECT_EQ(pebbling::minimum_dominator(g, corner), 1u);
  EXPECT_EQ(pebbling::minimum_dominator(g, all), 1u);  // the input
  const Graph fft = pebbling::fft(2);
  EXPECT_EQ(pebbling::minimum_dominator(fft, std::vector<Node>{8, 9, 10, 11}), 4u);
  EXPECT_EQ(pebbling::minimum_dominator(fft, std::vector<Node>{8}), 1u);
  EXPECT_EQ(pebbling::least_parts(fft, 4), 1u);
  EXPECT_EQ(pebbling::least_parts(fft, 2), 2u);  // two outputs each, with the two nodes that they come from
  EXPECT_EQ(pebbling::least_parts(fft, 1), 8u);
}

TEST(PebblingPartition, WhatIsWrongWithAPartitionIsSaid) {
  const Graph g = pebbling::grid(2, 2);  // 0 is the input, 3 the output
  using Parts = std::vector<std::vector<Node>>;
  const auto check = [&](const Parts& parts, std::size_t S) {
    return [&g, parts, S] { check_partition(g, {parts}, S); };
  };
  EXPECT_NO_THROW(check({{1, 2}, {3}}, 2)());
  EXPECT_NE(refusal_of<Error>(check({{1, 2}}, 2)).find("is in no part"), std::string::npos);
  EXPECT_NE(refusal_of<Error>(check({{1, 2}, {2, 3}}, 2)).find("and in part 2"), std::string::npos);
  EXPECT_NO_THROW(check({{3}, {1, 2}}, 2)());  // in another order they can be computed
  EXPECT_EQ(refusal_of<Error>(check({{1, 2}, {7}}, 2)), "part 2 has node 7, which is an input, or no output needs it");
  EXPECT_NE(refusal_of<Error>(check({{0, 1, 2, 3}}, 2)).find("is an input"), std::string::npos);
  EXPECT_NE(refusal_of<Error>(check({{1, 2}, {3}}, 1)).find("minimum set"), std::string::npos);
}

TEST(PebblingPartition, PartsThatNeedEachOtherAreRefused) {
  const Graph g = pebbling::k_ary_tree(1, 5);  // a chain of the input 0 and 1 to 5
  using Parts = std::vector<std::vector<Node>>;
  const auto says = [&](const Parts& parts) { return refusal_of<Error>([&] { check_partition(g, {parts}, 2); }); };
  EXPECT_EQ(says({{1, 2}, {3, 5}, {4}}), "2 parts need each other: part 3 needs part 2, which needs part 3");
  EXPECT_EQ(says({{5, 1}, {3}, {2}, {4}}),
            "4 parts need each other: part 1 needs part 4, which needs part 2, which needs part 3, which needs part 1");
}

TEST(PebblingPartition, ADominatorThatIsTooLargeIsRefused) {
  Graph g;
  std::vector<Node> copies;
  copies.reserve(3);
  for (const char* const name : {"a", "b", "c"}) copies.push_back(g.add(pebbling::Op::copy, {g.add_input(name)}));
  std::vector<Node> part = copies;
  part.push_back(g.add(pebbling::Op::sum, copies, "sum"));
  g.mark_output(part.back());
  EXPECT_EQ(refusal_of<Error>([&] { check_partition(g, {{part}}, 2); }),
            "part 1 has no dominator of fewer than 3 nodes; 2 are allowed");
  EXPECT_EQ(check_partition(g, {{part}}, 3)[0].dominator, 3u);
  EXPECT_EQ(check_partition(g, {{part}}, 3)[0].minimum, 1u);
}

TEST(PebblingPartition, ManyPartsOfManyNodesAreNoEndlessSearch) {
  const Graph g = pebbling::k_ary_tree(1, 200'000);
  pebbling::Partition each;
  each.parts.reserve(g.size());
  for (Node v = 1; v < g.size(); ++v) each.parts.push_back({v});
  EXPECT_NE(refusal_of<Unsupported>([&] { check_partition(g, each, 6); }).find("take too long"), std::string::npos);
}

TEST(PebblingPartition, HasAText) {
  Graph g;
  const Node a = g.add_input("a");
  const Node b = g.add(pebbling::Op::copy, {a}, "0");
  const Node c = g.add(pebbling::Op::copy, {b});
  g.mark_output(c);
  const auto parsed = [&](const char* text) { return pebbling::parse_partition(g, text).parts; };
  using Parts = std::vector<std::vector<Node>>;
  EXPECT_EQ(parsed("# names before numbers\n0\n\n 2\r"), (Parts{{b}, {c}}));
  EXPECT_EQ(parsed("2 0 a"), (Parts{{c, b, a}}));
  EXPECT_EQ(parsed(""), Parts{});
  EXPECT_EQ(refusal_of<Error>([&] { parsed("0\n3"); }), "line 2: the graph has no node 3");
  EXPECT_EQ(refusal_of<Error>([&] { parsed("-1"); }), "line 1: the graph has no node -1");
}

TEST(PebblingPartition, NothingToComputeHasNoBound) {
  EXPECT_EQ(pebbling::least_parts(Graph(), 6), 0u);
  EXPECT_EQ(pebbling::partition_bound(3, 0), 0u);
  EXPECT_EQ(pebbling::partition_bound(3, 2), 3u);
}

}  // namespace
}  // namespace redblue::test
