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

TEST(Cli, PebblePlaysSchedulesOfOneStopParallel) {
  const Workplace w;
  const Args fft{"--graph", "fft", "--stages", "2"};
  ASSERT_EQ(w.run(Args{"solve", "--M", "3", "--once", "--processors", "2", "--output", "a.txt"} + fft).exit_code, 0);
  ASSERT_EQ(w.run({"pebble", "--check", "a.txt", "--to-osp", "a.osp", "--to-hdag", "a.hdag"}).exit_code, 0);
  const Finished f = w.run({"pebble", "--hdag", "a.hdag", "--osp", "a.osp", "--M", "3", "--once", "--json"});
  ASSERT_EQ(f.exit_code, 0) << f.err;
  EXPECT_EQ(f.json()["io"], 12);
  EXPECT_EQ(f.json()["rules"], "place once processors=2");
  const Finished moves = w.run({"pebble", "--check", "a.txt", "--moves"});
  EXPECT_THAT(moves.out, HasSubstr(", processor 1\n"));
}

TEST(Cli, PebbleChecksAGivenPartition) {
  const Workplace w;
  const Args tree{"pebble", "--graph", "tree", "--k", "2", "--depth", "2"};
  std::ofstream(w / "good.txt") << "# the root first\nv[0,0]\nv[1,0] v[1,1]\n";
  const Finished f = w.run(tree + Args{"--M", "2", "--parts", "good.txt", "--json"});
  ASSERT_EQ(f.exit_code, 0) << f.err;
  EXPECT_EQ(f.json()["partition"]["parts"][1]["dominator"], 2);
  EXPECT_EQ(f.json()["partition"]["least_parts"], 1);
  EXPECT_THAT(w.run(tree + Args{"--M", "2", "--parts", "good.txt"}).out, HasSubstr("a 2M-partition of 2 parts"));
  std::ofstream(w / "bad.txt") << "v[0,0] v[1,0]\n";
  const Finished bad = w.run(tree + Args{"--M", "2", "--parts", "bad.txt"});
  EXPECT_EQ(bad.exit_code, 1);
  EXPECT_EQ(bad.err, "redblue: bad.txt: v[1,1] is in no part\n");
  EXPECT_EQ(w.run(tree + Args{"--parts", "bad.txt"}).exit_code, 2);
}

TEST(Cli, PebbleCutsThePlayOfAScheduleIntoAPartition) {
  const Workplace w;
  ASSERT_EQ(w.run({"pebble", "--schedule", "flash", "--nq", "3", "--nk", "3", "--d", "1", "--M", "6", "--once",
                   "--output", "flash.txt"})
                .exit_code,
            0);
  const Finished f = w.run({"pebble", "--check", "flash.txt", "--partition", "--json"});
  ASSERT_EQ(f.exit_code, 0) << f.err;
  EXPECT_EQ(f.json()["io"], 27);
  EXPECT_EQ(f.json()["partition"]["S"], 12);
  const std::size_t parts = f.json()["partition"]["parts"].size();
  EXPECT_TRUE(1 < parts && parts <= 27 / 6 + 1) << parts;
  EXPECT_THAT(w.run({"pebble", "--check", "flash.txt", "--partition"}).out, HasSubstr("(2M = 12)"));
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
  EXPECT_THAT(says({"--graph", "tree", "--k", "3", "--depth", "2", "--partition"}),
              HasSubstr("--partition cuts a play"));
  EXPECT_THAT(says({"--graph", "tree", "--k", "3", "--depth", "2", "--parts", "x"}), HasSubstr("give --M"));
  EXPECT_THAT(says({"--hdag", "none"}), HasSubstr("none"));
  EXPECT_THAT(says({"--hdag", "."}), HasSubstr("cannot read '.'"));
  EXPECT_THAT(says({"--hdag", "/dev/zero"}), HasSubstr("it is no text, for byte 1 is zero"));
  EXPECT_THAT(says({"--graph", "tree", "--k", "2", "--depth", "1", "--to-osp", "x"}),
              HasSubstr("give --check or --osp"));
  std::ofstream(w / "cut.osp") << "%% PebblingSchedule for 1 processors and 1 supersteps.\nSend dow";
  EXPECT_THAT(says({"--graph", "tree", "--k", "2", "--depth", "1", "--osp", "cut.osp"}), HasSubstr("cut.osp: line 2:"));
  std::ofstream(w / "cycle.hdag") << "2 2 4\n0\n1\n0\n1\n0 0\n0 1\n1 1\n1 0\n";
  EXPECT_THAT(says({"--hdag", "cycle.hdag"}), HasSubstr("the graph has a cycle of 2 nodes: 0 -> 1 -> 0"));
  std::ofstream(w / "cut.txt") << "redblue pebbling certificate 1\nschedule x\n";
  EXPECT_THAT(says({"--check", "cut.txt"}), HasSubstr("it was cut"));
}

}  // namespace
}  // namespace redblue::test
