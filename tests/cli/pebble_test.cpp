#include <algorithm>
#include <fstream>

#include "cli/cli.hpp"

namespace redblue::test {
namespace {

using testing::HasSubstr;

TEST(Cli, PebblesAGraph) {
  const Workplace w;
  const Finished f = w.run({"pebble", "--graph", "attention", "--nq", "2", "--nk", "3", "--d", "1", "--rules", "slide",
                            "--json", "--to-dot", "a.dot"});
  ASSERT_EQ(f.exit_code, 0) << f.err;
  EXPECT_EQ(f.json()["nodes"], 32);
  EXPECT_EQ(f.json()["least_M"], 3);
  EXPECT_EQ(w.run({"pebble", "--dot", "a.dot", "--json"}).json()["operations"]["exp"], 6);
}

TEST(Cli, PebbleRefusesInOneSentence) {
  const Workplace w;
  const auto says = [&](const Args& more) {
    const Finished f = w.run(Args{"pebble"} + more);
    EXPECT_EQ(f.exit_code, 2) << f.out;
    EXPECT_EQ(std::ranges::count(f.err, '\n'), 1) << f.err;
    return f.err;
  };
  EXPECT_THAT(says({}), HasSubstr("a graph comes from one of --graph, --hdag and --dot"));
  EXPECT_THAT(says({"--graph", "tree", "--k", "3", "--depth", "2", "--M", "3"}), HasSubstr("infeasible"));
  EXPECT_THAT(says({"--graph", "tree", "--k", "3", "--depth", "99"}), HasSubstr("at most 16777216 nodes"));
  EXPECT_THAT(says({"--graph", "tree", "--k", "3", "--depth", "2", "--nq", "1"}), HasSubstr("no parameter nq"));
  EXPECT_THAT(says({"--hdag", "none"}), HasSubstr("none"));
  std::ofstream(w / "cycle.hdag") << "2 2 4\n0\n1\n0\n1\n0 0\n0 1\n1 1\n1 0\n";
  EXPECT_THAT(says({"--hdag", "cycle.hdag"}), HasSubstr("the graph has a cycle of 2 nodes: 0 -> 1 -> 0"));
  std::ofstream(w / "cut.txt") << "redblue pebbling certificate 1\nschedule x\n";
  EXPECT_THAT(says({"--check", "cut.txt"}), HasSubstr("it was cut"));
}

}  // namespace
}  // namespace redblue::test
