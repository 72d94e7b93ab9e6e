#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "cli/cli.hpp"

/// Plans for memories inside each other, as the program prints them.
namespace redblue::test {
namespace {

using ::testing::HasSubstr;

const Args kOfLevels = "--n 500 --d 16 --levels"_args;

TEST(PlanLevels, SayWhatMovesAtEveryBorder) {
  const Json one = Workplace().run("plan --n 500 --d 16 --M 1000 --json"_args).json();
  const Json nest = Workplace().run("plan --json"_args + kOfLevels + "disk,4000"_args).json();
  EXPECT_EQ(nest["schema"], "redblue.levels/1");
  ASSERT_EQ(nest["borders"].size(), 1U);
  EXPECT_EQ(nest["borders"][0]["io"], one["plans"][0]["io"]);
  const Json three = Workplace().run("plan --json"_args + kOfLevels + "disk,64KiB,8KiB,2KiB"_args).json();
  ASSERT_EQ(three["borders"].size(), 3U);
  for (const Json& b : three["borders"]) {
    EXPECT_GE(b["io"], b["bound"]["words"]);
    EXPECT_LE(b["held"], b["M"]);
  }
  const Finished text = Workplace().run("explain"_args + kOfLevels + "disk,64KiB,8KiB"_args);
  EXPECT_EQ(text.exit_code, 0) << text.err;
  EXPECT_THAT(text.out, HasSubstr("8KiB carries out, on tiles in 64KiB"));
}

/// What kernels need one panel at a time lies in the level below, and no tile is longer than its side of the problem.
TEST(PlanLevels, AreExplainedWithWhatTheyHold) {
  const Args args = "explain --n 1000 --d 64 --levels disk,1MiB,32KiB"_args;
  const Json all = Workplace().run(args + "--json"_args).json();
  index_t most = 0, below = 0;
  const std::function<void(const Json&)> visit = [&](const Json& lines) {
    for (const Json& line : lines) {
      if (line["kind"] == "loop") {
        visit(line["body"]);
        continue;
      }
      most = std::max(most, line["resident"].get<index_t>());
      below += line.value("level_below", false) ? 1 : 0;
    }
  };
  visit(all["lines"]);
  EXPECT_EQ(below, 1);
  EXPECT_LE(most, all["levels"]["borders"][0]["held"].get<index_t>());
  const Json tiles = all["schedule"]["tiling"];
  for (const auto& [name, size] : tiles.items()) EXPECT_LE(size.get<index_t>(), 1000) << name;
  EXPECT_THAT(Workplace().run(args).out, HasSubstr("alloc s (1000 x 1000, in the level below)"));
}

TEST(PlanLevels, HaveSecondDerivatives) {
  for (const std::string op : {"tangent", "second"}) {
    const Args of_op{"--op", op};
    const Json nest = Workplace().run("plan --json"_args + of_op + kOfLevels + "disk,64KiB,8KiB"_args).json();
    ASSERT_EQ(nest["borders"].size(), 2U);
    for (const Json& b : nest["borders"]) EXPECT_GE(b["io"], b["bound"]["words"]);
    const Finished text = Workplace().run("explain"_args + of_op + kOfLevels + "disk,64KiB,8KiB"_args);
    EXPECT_EQ(text.exit_code, 0) << text.err;
    EXPECT_THAT(text.out, HasSubstr("moving_weights"));
  }
}

TEST(PlanLevels, SayHowLongWhatMovesTakesWhateverTheyMinimise) {
  for (const char* const objective : {"words", "time"}) {
    const Json nest = Workplace()
                          .run("plan --json"_args + kOfLevels +
                               Args{"DRAM,64KiB,8KiB", "--objective", objective, "--machine",
                                    in_sources("/tests/data/hardware.json")})
                          .json();
    const Json& borders = nest["borders"];
    ASSERT_EQ(borders.size(), 2U);
    // One core reads 20 GB/s of main memory, and 150 GB/s of the smallest cache that holds 64 KiB.
    const auto number = [](const Json& x) { return x.get<double>(); };
    EXPECT_DOUBLE_EQ(number(borders[0]["seconds"]), number(borders[0]["bytes"]) / 20e9);
    EXPECT_DOUBLE_EQ(number(borders[1]["seconds"]), number(borders[1]["bytes"]) / 150e9);
    EXPECT_DOUBLE_EQ(
        number(nest["seconds"]),
        std::max(number(borders[0]["seconds"]), number(borders[1]["seconds"]) + number(nest["compute_seconds"])));
  }
}

TEST(PlanLevels, RefuseWhatMakesNoSense) {
  const auto refusal = [](const Args& levels) {
    const Finished f = Workplace().run("plan"_args + kOfLevels + levels);
    EXPECT_EQ(f.exit_code, 2) << f.err;
    return f.err;
  };
  EXPECT_THAT(refusal("disk"_args), HasSubstr("two levels or more"));
  EXPECT_THAT(refusal("4MiB,1MiB"_args), HasSubstr("'4MiB' is no name"));
  EXPECT_THAT(refusal("disk,1MiB,2MiB"_args), HasSubstr("is not smaller than level 1MiB"));
  EXPECT_THAT(refusal("disk,1MiB --M 100"_args), HasSubstr("--M with --levels"));
  EXPECT_THAT(refusal("disk,1MiB --ranks 2"_args), HasSubstr("--levels and --ranks"));
}

}  // namespace
}  // namespace redblue::test
