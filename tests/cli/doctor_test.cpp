#include "cli/cli.hpp"

namespace redblue::test {
namespace {

using testing::HasSubstr;

TEST(CliDoctor, WritesAFileAndATable) {
  const Workplace w;
  const Finished f = w.run("doctor --output here.json"_args);
  ASSERT_EQ(f.exit_code, 0) << f.err;
  EXPECT_THAT(f.out, HasSubstr("portable"));
  EXPECT_THAT(f.out, HasSubstr("written to here.json"));
  EXPECT_EQ(Json::parse(file::read_text(w / "here.json"))["schema"], "redblue.hardware/1");
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
