#include <algorithm>

#include "cli/cli.hpp"

namespace redblue::test {
namespace {

using testing::HasSubstr;

Args flash(const Args& more) {
  return Args{"pebble", "--schedule", "flash", "--nq", "2", "--nk", "2", "--d", "1", "--M", "6"} + more;
}

TEST(Cli, PebblePlaysASchedule) {
  const Workplace w;
  const Finished f = w.run(flash({"--once", "--optimum", "--json", "--output", "flash.txt"}));
  ASSERT_EQ(f.exit_code, 0) << f.err;
  const auto flash_of = f.json()["schedules"][0];
  EXPECT_EQ(flash_of["io"], 14);
  EXPECT_EQ(flash_of["peak"], 6);
  EXPECT_EQ(flash_of["optimum"]["lower"], 11);
  EXPECT_EQ(flash_of["optimum"]["upper"], 11);
  const Finished check = w.run({"pebble", "--check", "flash.txt", "--json"});
  ASSERT_EQ(check.exit_code, 0) << check.err;
  EXPECT_EQ(check.json()["io"], 14);
  EXPECT_EQ(check.json()["problem"], "forward nq=2 nk=2 d=1 dv=1 mask=full");
}

TEST(Cli, PebblePlaysAllSchedulesUnderAMask) {
  const Workplace w;
  const Finished f = w.run({"pebble", "--schedule", "all", "--op", "backward", "--nq", "2", "--nk", "3", "--d", "1",
                            "--mask", "101/010", "--M", "12", "--json"});
  ASSERT_EQ(f.exit_code, 0) << f.err;
  const auto all = f.json()["schedules"];
  EXPECT_GT(std::ranges::count_if(all, [](const auto& s) { return s.contains("io"); }), 5);
  for (const auto& s : all) EXPECT_TRUE(s.contains("io") ? s["peak"] <= 12 : s.contains("obstacle")) << s;
}

TEST(Cli, PebblePrintsMoves) {
  const Workplace w;
  const Finished f = w.run(flash({"--moves"}));
  EXPECT_THAT(f.out, HasSubstr("read Q[0,0]"));
  EXPECT_THAT(f.out, HasSubstr("write O[1,0]"));
}

// The sum of a row stands beside it, where no word of V makes room for it.
TEST(Cli, PebblePlaysTheRingOfASingleValueColumn) {
  const Finished f = Workplace().run({"pebble", "--schedule", "ring", "--op", "backward", "--nq", "3", "--nk", "4",
                                      "--d", "2", "--dv", "1", "--mask", "causal", "--M", "46", "--json"});
  ASSERT_EQ(f.exit_code, 0) << f.err;
  EXPECT_LE(f.json()["schedules"][0]["peak"], 46);
}

// Where no pair has a row, the schedule takes the rows on both sides as neighbours.
TEST(Cli, PebbleNamesWordsByTheRowsThatTheyHaveInTheMask) {
  const Workplace w;
  const auto of_mask = [&](const char* mask) {
    const Finished f = w.run({"pebble", "--schedule", "flash", "--nq", "3", "--nk", "3", "--d", "1", "--M", "20",
                              "--mask", mask, "--output", "c.txt"});
    EXPECT_EQ(f.exit_code, 0) << f.err;
    return file::read_text(w / "c.txt");
  };
  EXPECT_THAT(of_mask("010/000/010"), HasSubstr("\nO[1,0] constant 0 out -\nlse[1] constant -inf out -\n"));
  EXPECT_THAT(of_mask("000/010/010"), HasSubstr("\nO[0,0] constant 0 out -\nlse[0] constant -inf out -\n"));
}

TEST(Cli, PebbleSaysHowFarAPlayIsFromABracket) {
  const Workplace w;
  const Finished f = w.run({"pebble", "--schedule", "flash", "--nq", "3", "--nk", "3", "--d", "1", "--M", "6",
                            "--optimum", "--seconds", "0.001"});
  EXPECT_THAT(f.out, testing::ContainsRegex("is 1[0-9] to 2[0-9], of which it is 1\\.[0-9]+ to 1\\.[0-9]+ times"));
}

TEST(Cli, PebbleSaysBeforeItPlaysThatItCannotWrite) {
  const Workplace w;
  const Finished f = w.run(flash({"--optimum", "--output", "/dev/full"}));
  EXPECT_EQ(f.exit_code, 2);
  EXPECT_EQ(f.out, "");
  EXPECT_THAT(f.err, HasSubstr("it is not a regular file"));
}

TEST(Cli, PebbleRefusesPlaysInOneSentence) {
  const Workplace w;
  const auto says = [&](const Args& args) {
    const Finished f = w.run(args);
    EXPECT_EQ(f.exit_code, 2) << f.out;
    EXPECT_EQ(std::ranges::count(f.err, '\n'), 1) << f.err;
    return f.err;
  };
  EXPECT_THAT(says(flash({"--graph", "tree"})), HasSubstr("--schedule makes the graph of its kernels"));
  EXPECT_THAT(says(flash({"--rules", "partial"})), HasSubstr("a schedule is played by place or slide"));
  EXPECT_THAT(says(flash({"--depth", "2"})), HasSubstr("a schedule has no parameter depth"));
  EXPECT_THAT(says(flash({"--mask", "10/0"})), HasSubstr("mask = 10/0"));
  EXPECT_THAT(says(flash({"--seconds", "2"})), HasSubstr("--seconds is the time that --optimum takes"));
  EXPECT_THAT(says({"pebble", "--schedule", "flash", "--nq", "2", "--nk", "2", "--d", "1"}), HasSubstr("--M"));
  EXPECT_THAT(says({"pebble", "--schedule", "flash", "--nq", "2", "--nk", "2", "--d", "1", "--M", "5"}),
              HasSubstr("M = 5 words is too small"));
  EXPECT_THAT(says({"pebble", "--schedule", "flash", "--nq", "200", "--nk", "200", "--d", "64", "--M", "6000"}),
              HasSubstr("a play of 5120000 multiply-adds is too long"));
  EXPECT_THAT(says({"pebble", "--schedule", "none", "--nq", "2", "--nk", "2", "--d", "1", "--M", "5"}),
              HasSubstr("--schedule none: no exact schedule of forward is called so"));
  EXPECT_THAT(says({"pebble", "--graph", "tree", "--k", "2", "--depth", "1", "--moves"}),
              HasSubstr("give --schedule NAME with them"));
}

}  // namespace
}  // namespace redblue::test
