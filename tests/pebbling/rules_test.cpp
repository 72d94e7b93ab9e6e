#include "redblue/pebbling/rules.hpp"

#include <gtest/gtest.h>

#include "redblue/language/error.hpp"
#include "support/refusal.hpp"

namespace redblue::test {
namespace {

using pebbling::Graph;
using pebbling::Node;
using pebbling::Op;
using pebbling::parse_rules;
using pebbling::Rules;
using Compute = Rules::Compute;

TEST(Rules, have_one_line) {
  for (const Compute compute : {Compute::place, Compute::slide, Compute::partial})
    for (const bool recompute : {true, false})
      for (const bool unused : {true, false})
        for (const std::size_t processors : {1U, 2U, 64U}) {
          if (compute == Compute::partial && (recompute || processors > 1)) continue;
          const Rules rules{compute, recompute, unused, processors};
          EXPECT_EQ(parse_rules(to_text(rules)), rules) << to_text(rules);
        }
  EXPECT_EQ(to_text(Rules{Compute::slide, false, true, 2}), "slide once unused-inputs processors=2");
  EXPECT_EQ(to_text(Rules{Compute::partial, false}), "partial");
  EXPECT_EQ(to_text(Rules{}), "place");
}

TEST(Rules, refuse_what_they_do_not_know) {
  EXPECT_EQ(refusal_of([] { parse_rules(""); }), "rules are empty; they begin with place, slide or partial");
  EXPECT_EQ(refusal_of([] { parse_rules("glide"); }), "rules begin with place, slide or partial, not with glide");
  EXPECT_EQ(refusal_of([] { parse_rules("once"); }), "rules begin with place, slide or partial, not with once");
  EXPECT_EQ(refusal_of([] { parse_rules("place twice"); }),
            "rules do not know twice; after place, slide or partial may come once, unused-inputs and processors=P");
  EXPECT_EQ(refusal_of([] { parse_rules("place once once"); }), "rules say once twice");
  for (const char* const none : {"0", "65", "99999999999999999999", "x", "", "1x", "-1"})
    EXPECT_NE(refusal_of([&] { parse_rules(std::string("place processors=") + none); }), "accepted") << none;
  EXPECT_EQ(refusal_of([] { parse_rules("partial processors=2"); }),
            "partial computations are played by one processor, not by 2");
  EXPECT_EQ(refusal_of([] { check(Rules{Compute::partial, true}); }),
            "partial computations compute each edge once; they cannot be joined with recomputation");
}

TEST(Rules, state_the_least_memory) {
  Graph g;
  const Node a = g.add_input("a");
  const Rules place;
  const Rules slide{Compute::slide};
  const Rules partial{Compute::partial, false};
  g.mark_output(a);
  EXPECT_EQ(least_memory(g, place), 1U);
  EXPECT_EQ(least_memory(g, partial), 1U);
  const Node b = g.add_input("b");
  const Node c = g.add_input("c");
  g.mark_output(g.add(Op::product, {a, a, b, c}));
  EXPECT_EQ(least_memory(g, place), 4U);
  EXPECT_EQ(least_memory(g, slide), 3U);
  EXPECT_EQ(least_memory(g, partial), 2U);
  check_memory(g, slide, 3);
  EXPECT_EQ(refusal_of([&] { check_memory(g, slide, 2); }),
            "infeasible: M = 2 red pebbles cannot pebble this graph, which needs 3 under the rules 'slide'");
}

}  // namespace
}  // namespace redblue::test
