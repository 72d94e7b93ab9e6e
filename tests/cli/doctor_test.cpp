#include "cli/cli.hpp"
#include "redblue/hardware/hardware.hpp"

namespace redblue::test {
namespace {

using testing::HasSubstr;

TEST(CliDoctor, WritesAFileAndATableAndSaysWhatItReplaces) {
  const Workplace w;
  std::filesystem::copy_file(test::in_sources("/tests/data/hardware.json"), w / "here.json");
  const Finished f = w.run("doctor --output here.json"_args);
  ASSERT_EQ(f.exit_code, 0) << f.err;
  EXPECT_THAT(f.out, HasSubstr("in place of one without a date of another processor"));
  EXPECT_THAT(f.out, HasSubstr("portable"));
  EXPECT_THAT(f.out, HasSubstr("written to here.json"));
  const Json json = Json::parse(file::read_text(w / "here.json"));
  EXPECT_EQ(json["schema"], "redblue.hardware/1");
  const std::string at = json["measured"]["at"];
  EXPECT_THAT(f.out, HasSubstr("measured " + at + " by redblue "));
  EXPECT_THAT(f.out, HasSubstr("taken again because they looked disturbed: "));
}

/// --show measures nothing: it says what the file holds, and what is doubtful about it.
TEST(CliDoctor, ShowsAFileAndWhatIsDoubtfulAboutIt) {
  const Workplace w;
  std::filesystem::copy_file(test::in_sources("/tests/data/hardware.json"), w / "other.json");
  const Finished f = w.run("doctor --output other.json --show"_args);
  ASSERT_EQ(f.exit_code, 0) << f.err;
  EXPECT_THAT(f.out, HasSubstr("an invented server"));
  EXPECT_THAT(f.out, HasSubstr("caution: it is of another processor, an invented server"));
  EXPECT_THAT(f.out, HasSubstr("did not note when and under what load"));
  EXPECT_THAT(f.out, HasSubstr("read from other.json"));
  EXPECT_EQ(file::read_text(w / "other.json"), file::read_text(test::in_sources("/tests/data/hardware.json")));
  const Finished none = w.run("doctor --output none.json --show"_args);
  EXPECT_EQ(none.exit_code, 2);
  EXPECT_THAT(none.err, HasSubstr("none.json"));
  const Finished quiet = w.run("doctor --output other.json --show --quiet"_args);
  EXPECT_EQ(quiet.exit_code, 2);
  EXPECT_THAT(quiet.err, HasSubstr("--quiet and --show: give one of them"));
}

/// A hardware file of this processor, which was not measured.
Hardware invented_here() {
  Hardware h = load_hardware(test::in_sources("/tests/data/hardware.json"));
  h.cpu = describe_hardware().cpu;
  return h;
}

TEST(CliDoctor, AddsADiskToTheFileOfThisProcessor) {
  const Workplace w;
  Hardware h = invented_here();
  save_hardware(h, w / "here.json");
  const Finished f = w.run("doctor --disk . --output here.json"_args);
  ASSERT_EQ(f.exit_code, 0) << f.err;
  EXPECT_THAT(f.out, testing::AllOf(HasSubstr("reads in GB/s"), HasSubstr("2 MiB"), HasSubstr("latency")));
  EXPECT_EQ(w.files(), std::set<std::string>{"here.json"});
  const Hardware measured = load_hardware(w / "here.json");
  ASSERT_TRUE(measured.disk);
  EXPECT_GE(measured.disk->request, 64 << 10);
  h.disk = measured.disk;
  EXPECT_EQ(to_json(measured), to_json(h)) << "the rest of the file stays";
  const Finished shown = w.run("doctor --show --output here.json"_args);
  EXPECT_THAT(shown.out, HasSubstr("disk " + measured.disk->directory + ", " + measured.disk->file_system));
}

TEST(CliDoctor, RefusesADiskThatIsNotThere) {
  const Workplace w;
  save_hardware(invented_here(), w / "here.json");
  expect_refused(w, {"doctor --disk none --output here.json"_args, {"measure 'none'", "No such file or directory"}});
  expect_refused(w, {"doctor --disk . --show --output here.json"_args, {"--disk and --show: give one of them"}});
}

TEST(CliDoctor, DefaultPlaceAndJson) {
  const Workplace w;
  const Finished f = w.run("doctor --json"_args, "XDG_CONFIG_HOME=$PWD/config");
  ASSERT_EQ(f.exit_code, 0) << f.err;
  EXPECT_EQ(file::read_text(w / "config/redblue/hardware.json"), f.out);
}

TEST(CliDoctor, RefusesAPlaceItCannotWrite) {
  const Workplace w;
  for (const auto& [args, before, says] :
       {std::tuple<Args, std::string, std::string>{{"doctor", "--output", "/proc/none/h.json"}, "", "/proc/none"},
        {{"doctor", "--output", "none/h.json"}, "", "create a file in 'none'"},
        {{"doctor"}, "HOME= XDG_CONFIG_HOME=", "--output FILE"}}) {
    const Finished f = w.run(args, before);
    EXPECT_EQ(f.exit_code, 2);
    EXPECT_EQ(f.out, "");
    EXPECT_THAT(f.err, HasSubstr(says));
    EXPECT_TRUE(w.files().empty());
  }
}

}  // namespace
}  // namespace redblue::test
