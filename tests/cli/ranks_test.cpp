#include <map>
#include <tuple>

#include "cli/cli.hpp"

namespace redblue::test {
namespace {

using ::testing::HasSubstr;

class PlanRanks : public ::testing::Test, protected Workplace {
 protected:
  Finished plan(const Args& more) const {
    Args args{"plan", "--n", "4096", "--d", "64", "--heads", "8", "--kv-heads", "2"};
    args.insert(args.end(), more.begin(), more.end());
    return run(args);
  }
  std::string refusal(const Args& more) const {
    const Finished f = plan(more);
    EXPECT_EQ(f.exit_code, 2);
    EXPECT_EQ(f.out, "");
    return f.err;
  }
};

TEST_F(PlanRanks, PutItsChoiceBesideWhatPeopleUse) {
  const Finished f = run(
      {"plan", "--n", "1048576", "--d", "128", "--heads", "32", "--kv-heads", "4", "--dtype", "bf16", "--ranks", "64"});
  ASSERT_EQ(f.exit_code, 0) << f.err;
  for (const char* text : {"* nested", "4 x 16 x 1", "365297664", "ring", "1056964608", "all-gather", "2-D",
                           "654835712", "- Ulysses", "moves the fewest words of a rank"})
    EXPECT_THAT(f.out, HasSubstr(text));
}

/// Each message of the steps is an arrow, once, with its words.
TEST_F(PlanRanks, DrawTheMessagesOfAllRanks) {
  for (const char* transfer : {"exchange", "ring", "gather"}) {
    const Finished f = plan({"--ranks", "3", "--grid", "1x3x1", "--transfer", transfer, "--draw"});
    ASSERT_EQ(f.exit_code, 0) << f.err;
    EXPECT_TRUE(f.out.starts_with("sequenceDiagram\n  participant R0 as rank 0\n")) << f.out;
    const Json steps = plan({"--ranks", "3", "--grid", "1x3x1", "--transfer", transfer, "--steps"}).json();
    std::size_t messages = 0, arrows = 0;
    for (const Json& program : steps["programs"])
      for (const Json& step : program["steps"]) messages += step["verb"] == "send" ? 1 : 0;
    for (std::size_t at = f.out.find("-)"); at != std::string::npos; at = f.out.find("-)", at + 1)) ++arrows;
    EXPECT_EQ(arrows, messages) << transfer;
    EXPECT_THAT(f.out, HasSubstr("R2: K, V: "));
    EXPECT_THAT(f.out, HasSubstr("Note over R2: attend of "));
  }
}

TEST_F(PlanRanks, SayInJsonWhatTheirTableSays) {
  const Finished f = plan({"--ranks", "8", "--network", "5us,50GB/s,0.5", "--flops", "10T", "--json"});
  ASSERT_EQ(f.exit_code, 0) << f.err;
  const Json j = f.json();
  EXPECT_EQ(j["objective"], "time");
  EXPECT_EQ(j["network"]["overlap"], 0.5);
  double least = 1e9;
  for (const Json& row : j["layouts"]) {
    least = std::min(least, row["modelled_seconds"].get<double>());
    EXPECT_EQ(row["ratio"], row["words"].get<double>() / row["bound"]["words"].get<double>());
    EXPECT_GE(row["ratio"], 1);
    EXPECT_GT(row["simulated_seconds"], 0);
  }
  EXPECT_EQ(j["layouts"][0]["modelled_seconds"], least);
  const Json words = plan({"--ranks", "8", "--network", "5us,50GB/s", "--objective", "words", "--json"}).json();
  for (const Json& row : words["layouts"]) EXPECT_LE(words["layouts"][0]["words"], row["words"]);
}

TEST_F(PlanRanks, GiveTheStepsOfEveryRank) {
  const Finished f = plan({"--ranks", "4", "--steps", "--grid", "2x2x1", "--op", "backward"});
  ASSERT_EQ(f.exit_code, 0) << f.err;
  const Json j = f.json();
  ASSERT_EQ(j["programs"].size(), 4);
  std::map<std::tuple<int, int, std::string>, std::vector<long>> sent, received;
  long pairs = 0;
  for (const Json& program : j["programs"])
    for (const Json& step : program["steps"]) {
      const int rank = program["rank"];
      if (step["verb"] == "send") sent[{rank, step["peer"], step["cargo"]}].push_back(step["words"]);
      if (step["verb"] == "receive") received[{step["peer"], rank, step["cargo"]}].push_back(step["words"]);
      if (step["verb"] != "gradient") continue;
      const auto rows = [&](const char* side) { return step[side][0][1].get<long>() - step[side][0][0].get<long>(); };
      pairs += rows("queries") * rows("keys");
    }
  EXPECT_EQ(pairs, 2L * 4096 * 4096);  // of two groups of heads
  EXPECT_FALSE(sent.empty());
  EXPECT_EQ(sent, received);
  EXPECT_EQ(j["programs"][3]["queries"], Json::parse("[[3072, 4096]]"));
}

TEST_F(PlanRanks, SayWhatARankMovesInFastMemory) {
  const Json j = plan({"--ranks", "4", "--M", "16384", "--causal", "--json"}).json();
  EXPECT_EQ(j["M"], 16384);
  for (const Json& row : j["layouts"]) {
    const Json& local = row["local"];
    EXPECT_EQ(local["ratio"], local["io"].get<double>() / local["bound"]["words"].get<double>());
    EXPECT_GE(local["ratio"], 1);
    EXPECT_EQ(local["pairs"], row["pairs"]);
  }
  const std::string table = plan({"--ranks", "4", "--M", "16384", "--causal"}).out;
  EXPECT_THAT(table, HasSubstr("M = 16384 words"));
  EXPECT_THAT(table, HasSubstr(j["layouts"][0]["local"]["io"].dump()));
  EXPECT_THAT(table, HasSubstr(j["layouts"][0]["local"]["schedule"].get<std::string>() + " "));
  const Finished small = plan({"--ranks", "4", "--M", "4"});
  EXPECT_NE(small.exit_code, 0);
  EXPECT_THAT(small.err, HasSubstr("M = 4"));
}

/// A rank has 2 of 8 query heads and 1 of 2 key-value heads: their q, k and v of 3,072 rows of others stay.
TEST_F(PlanRanks, CountAGradientThatFindsItsHeads) {
  const std::vector<std::string> ulysses{"--ranks", "4", "--grid", "4x1x1", "--op", "backward", "--json"};
  std::vector<std::string> keeps = ulysses;
  keeps.emplace_back("--keeps-heads");
  const Json moved = plan(ulysses).json()["layouts"][0], kept = plan(keeps).json()["layouts"][0];
  EXPECT_EQ(moved["words"].get<long>() - kept["words"].get<long>(), 3072 * (2 * 64 + 64 + 64));
  EXPECT_EQ(kept["keeps_heads"], true);
  EXPECT_EQ(kept["bound"]["words"], 0);
  EXPECT_THAT(refusal({"--M", "1000", "--keeps-heads"}), HasSubstr("--keeps-heads is for --ranks"));
}

TEST_F(PlanRanks, ChooseAmongReproducibleLayouts) {
  const Json j = plan({"--ranks", "4", "--reproducible", "256", "--json"}).json();
  EXPECT_EQ(j["layouts"][0]["reproducible"], 256);
  EXPECT_EQ(j["layouts"][0]["transfer"], "gather");
  EXPECT_FALSE(j["layouts"][1].contains("reproducible"));
  EXPECT_THAT(refusal({"--ranks", "4", "--reproducible", "256", "--grid", "1x2x2"}), HasSubstr("with 2 columns"));
}

TEST_F(PlanRanks, RefuseWhatSaysNothing) {
  EXPECT_THAT(refusal({"--ranks", "4", "--M", "0"}), HasSubstr("M = 0: fast memory needs at least one word"));
  EXPECT_THAT(refusal({"--ranks", "4", "--M", "1000", "--steps"}), HasSubstr("--M with --steps"));
  EXPECT_THAT(refusal({"--ranks", "4", "--memory", "1MiB"}), HasSubstr("--memory with --ranks"));
  EXPECT_THAT(refusal({"--ranks", "4", "--schedule", "flash"}), HasSubstr("--schedule with --ranks"));
  EXPECT_THAT(refusal({"--ranks", "4", "--no-workspace"}), HasSubstr("--no-workspace with --ranks"));
  EXPECT_THAT(refusal({"--ranks", "4", "--threads", "2"}), HasSubstr("--threads with --ranks"));
  EXPECT_THAT(refusal({"--ranks", "4", "--format", "csv"}), HasSubstr("--format csv with --ranks"));
  EXPECT_THAT(refusal({"--ranks", "4", "--objective", "time"}), HasSubstr("give --network"));
  EXPECT_THAT(refusal({"--ranks", "4", "--flops", "1T"}), HasSubstr("--flops 1T is for --network"));
  EXPECT_THAT(refusal({"--ranks", "4", "--network", "5,50GB/s"}), HasSubstr("'5' is wrong"));
  EXPECT_THAT(refusal({"--ranks", "4", "--network", "5us,50GB"}), HasSubstr("'50GB' is wrong"));
  EXPECT_THAT(refusal({"--ranks", "4", "--network", "5us,50GB/s,2"}), HasSubstr("'2' is wrong"));
  EXPECT_THAT(refusal({"--ranks", "4", "--grid", "2x2"}), HasSubstr("--grid 2x2"));
  EXPECT_THAT(refusal({"--ranks", "4", "--grid", "2x2x2"}), HasSubstr("takes 8 ranks of 4"));
  EXPECT_THAT(refusal({"--ranks", "4", "--transfer", "rings"}), HasSubstr("--transfer rings"));
  EXPECT_THAT(refusal({"--ranks", "4", "--ownership", "block-cyclic"}), HasSubstr("give --block-rows"));
  EXPECT_THAT(refusal({"--ranks", "4", "--strided", "4"}), HasSubstr("ranks do not share patterns"));
  EXPECT_THAT(refusal({"--ranks", "0"}), HasSubstr("--ranks 0"));
  EXPECT_THAT(refusal({"--ranks", "1000", "--steps"}), HasSubstr("--steps with --ranks 1000"));
  EXPECT_THAT(refusal({"--ranks", "17", "--draw"}), HasSubstr("--draw with --ranks 17: give 16"));
  EXPECT_THAT(refusal({"--ranks", "4", "--draw", "--steps"}), HasSubstr("without --steps and --json"));
  EXPECT_THAT(refusal({"--M", "1000", "--draw"}), HasSubstr("--draw is for --ranks"));
  EXPECT_THAT(refusal({"--M", "1000", "--steps"}), HasSubstr("--steps is for --ranks"));
  EXPECT_THAT(refusal({"--M", "1000", "--network", "5us,50GB/s"}), HasSubstr("--network 5us,50GB/s is for --ranks"));
}

}  // namespace
}  // namespace redblue::test
