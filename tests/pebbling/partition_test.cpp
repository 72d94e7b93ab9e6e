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
      RC_ASSERT(pebbling::least_parts(g, 2 * M) <= partition.parts.size());
      RC_ASSERT(pebbling::partition_bound(g, M) <= optimum.upper);
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
  EXPECT_NE(refusal_of<Error>(check({{3}, {1, 2}}, 2)).find("comes later"), std::string::npos);
  EXPECT_NE(refusal_of<Error>(check({{0, 1, 2, 3}}, 2)).find("is an input"), std::string::npos);
  EXPECT_NE(refusal_of<Error>(check({{1, 2}, {3}}, 1)).find("minimum set"), std::string::npos);
}

}  // namespace
}  // namespace redblue::test
