#include <algorithm>
#include <fstream>

#include "cli/cli.hpp"

namespace redblue::test {
namespace {

using testing::HasSubstr;

TEST(Cli, SolvesAGraphAndPebbleAcceptsThePlay) {
  const Workplace w;
  const Args graph{"--graph", "attention", "--nq", "2", "--nk", "2", "--d", "1", "--once"};
  const Finished f = w.run(Args{"solve"} + graph + Args{"--M", "5", "--json", "--partition", "--output", "c.txt"});
  ASSERT_EQ(f.exit_code, 0) << f.err;
  const auto result = f.json()["results"][0];
  EXPECT_EQ(f.json()["unavoidable"], 8);
  EXPECT_EQ(result["lower"], 11);
  EXPECT_EQ(result["upper"], 11);
  EXPECT_EQ(result["proved"], true);
  EXPECT_EQ(result["partition"]["least_parts"], 1);
  EXPECT_EQ(w.run({"pebble", "--check", "c.txt", "--json"}).json()["io"], 11);
  const Finished every = w.run(Args{"solve", "--json"} + graph);
  ASSERT_EQ(every.json()["results"].size(), 5u);  // M = 4 to 8
  EXPECT_EQ(every.json()["results"][4]["upper"], 8);
  EXPECT_THAT(w.run(Args{"solve"} + graph + Args{"--M", "5"}).out, HasSubstr("M = 5: 11 words is the least"));
}

TEST(Cli, SolveLeavesABracketWithoutTime) {
  const Workplace w;
  const Finished f = w.run({"solve", "--graph", "attention", "--nq", "3", "--nk", "3", "--d", "1", "--once", "--M", "6",
                            "--seconds", "0", "--json"});
  ASSERT_EQ(f.exit_code, 0) << f.err;
  const auto result = f.json()["results"][0];
  EXPECT_EQ(result["proved"], false);
  EXPECT_LE(result["lower"], 22);
  EXPECT_GE(result["upper"], 22);
}

TEST(Cli, SolveGivesABracketForALargeGraph) {
  const Finished f =
      Workplace().run({"solve", "--graph", "fft", "--stages", "5", "--M", "8", "--processors", "2", "--json"});
  ASSERT_EQ(f.exit_code, 0) << f.err;
  const auto result = f.json()["results"][0];
  EXPECT_EQ(result["lower"], 64);
  EXPECT_GT(result["upper"], 64);
  EXPECT_THAT(result["no_search"].get<std::string>(), HasSubstr("at most 64"));
}

TEST(Cli, SolveBoundsNothingByNothing) {
  const Workplace w;
  std::ofstream(w / "empty.dot") << "digraph {}";
  const Finished f = w.run({"solve", "--dot", "empty.dot", "--M", "3", "--partition", "--json"});
  ASSERT_EQ(f.exit_code, 0) << f.err;
  EXPECT_EQ(f.json()["results"][0]["partition"]["bound"], 0);
  EXPECT_THAT(w.run({"solve", "--dot", "empty.dot", "--M", "3", "--partition"}).out, HasSubstr("= 0 words"));
}

TEST(Cli, SolveSaysBeforeItSearchesThatItCannotWrite) {
  const Workplace w;
  const Args hard{"solve", "--graph", "attention", "--nq", "3",         "--nk", "3",
                  "--d",   "1",       "--M",       "6",    "--seconds", "600"};
  EXPECT_THAT(w.run(hard + Args{"--output", "none/c.txt"}).err, HasSubstr("cannot create a file in 'none'"));
  EXPECT_THAT(w.run(hard + Args{"--output", "/dev/full"}).err, HasSubstr("it is not a regular file"));
  EXPECT_THAT(w.run(hard + Args{"--partition", "--processors", "2"}).err, HasSubstr("by one processor"));
  std::ofstream(w / "blank.dot") << "digraph {a [label=\"a b\"]; a -> c}";
  EXPECT_THAT(w.run({"solve", "--dot", "blank.dot", "--M", "2", "--output", "c.txt"}).err,
              HasSubstr("a certificate cannot hold the name 'a b'"));
}

TEST(Cli, SolveRefusesInOneSentence) {
  const Workplace w;
  const auto says = [&](const Args& more) {
    const Finished f = w.run(Args{"solve"} + more);
    EXPECT_EQ(f.exit_code, 2) << f.out;
    EXPECT_EQ(std::ranges::count(f.err, '\n'), 1) << f.err;
    return f.err;
  };
  EXPECT_THAT(says({}), HasSubstr("a graph comes from one of"));
  EXPECT_THAT(says({"--graph", "tree", "--k", "3", "--depth", "2", "--M", "3"}), HasSubstr("infeasible"));
  EXPECT_THAT(says({"--graph", "fft", "--stages", "5"}), HasSubstr("at most 64"));
  EXPECT_THAT(says({"--graph", "fft", "--stages", "5", "--M", "8", "--rules", "partial"}), HasSubstr("at most 64"));
  EXPECT_THAT(says({"--graph", "tree", "--k", "2", "--depth", "2", "--moves"}), HasSubstr("say its --M"));
  EXPECT_THAT(says({"--graph", "tree", "--k", "2", "--depth", "2", "--output", "c"}), HasSubstr("say its --M"));
  EXPECT_THAT(says({"--graph", "tree", "--k", "2", "--depth", "2", "--seconds", "nan"}), HasSubstr("--seconds"));
  EXPECT_THAT(says({"--graph", "fft", "--stages", "3", "--processors", "3"}), HasSubstr("at most 21"));
  EXPECT_THAT(says({"--graph", "tree", "--k", "2", "--depth", "2", "--rules", "partial", "--partition"}),
              HasSubstr("whole nodes"));
}

}  // namespace
}  // namespace redblue::test
