#include <filesystem>
#include <fstream>

#include "cli/cli.hpp"
#include "support/paths.hpp"

/// --objective time and --machine.
namespace redblue::test {
namespace {

using testing::HasSubstr;

std::string machine(const std::string& name) { return redblue::test::in_sources("/tests/data/" + name + ".json"); }

const Args kBackward = "plan --op backward --n 2048 --d 64 --M 30000 --objective time"_args;

TEST(CliObjective, TakesThisMachineWhereNoFastMemoryIsGiven) {
  const Workplace w;
  const std::string home = "XDG_CONFIG_HOME=\"$PWD\"";  // no hardware file yet
  const Args sizes = "--n 512 --d 64"_args;
  const auto bytes_of = [](const Finished& f) { return f.json()["options"]["memory"]["bytes"].get<std::int64_t>(); };
  const Finished reported = w.run("plan --json"_args + sizes, home);
  ASSERT_EQ(reported.exit_code, 0) << reported.err;
  EXPECT_THAT(reported.err, HasSubstr("neither --M nor --memory is given: fast memory is the L"));
  EXPECT_THAT(reported.err, HasSubstr(std::to_string(bytes_of(reported)) + " bytes (as the system reports it)"));
  for (const char* command : {"count", "bound", "trace"}) {
    const Finished f = w.run(Args{command, "--n", "8", "--d", "2"}, home);
    EXPECT_EQ(f.exit_code, 0) << f.err;
    EXPECT_THAT(f.err, HasSubstr("neither --M nor --memory is given"));
  }
  for (const char* name : {"q.npy", "k.npy", "v.npy"}) w.zeros(name, {4, 3});
  const Args run = "run --q q.npy --k k.npy --v v.npy --o o.npy --json"_args;
  const Finished first = w.run(run, home), second = w.run(run, home);
  EXPECT_EQ(first.exit_code, 0) << first.err;
  EXPECT_THAT(first.err, HasSubstr("measuring this machine, for plans of least time, once, into "));
  EXPECT_EQ(second.err, "");
  EXPECT_FALSE(second.json()["modelled_time"].is_null());
  const Finished unwritable = w.run(run, "XDG_CONFIG_HOME=/proc");
  EXPECT_EQ(unwritable.exit_code, 0) << unwritable.err;
  EXPECT_THAT(unwritable.err, HasSubstr("the measurement is not kept"));
  EXPECT_FALSE(unwritable.json()["modelled_time"].is_null());
  const Finished homeless = w.run(run, "unset XDG_CONFIG_HOME HOME;");
  EXPECT_EQ(homeless.exit_code, 0) << homeless.err;
  EXPECT_THAT(homeless.err, HasSubstr("without HOME the result is not kept"));
  EXPECT_FALSE(homeless.json()["modelled_time"].is_null());

  const Args bench = "bench --n 64 --d 8 --min-time 0 --repetitions 1 --json"_args;
  const Finished timed = w.run(bench, home), words = w.run(bench + "--M 1000"_args, home);
  EXPECT_EQ(timed.exit_code, 0) << timed.err;
  EXPECT_NE(timed.json()["benchmarks"][0]["M"], 1000);
  EXPECT_EQ(words.json()["benchmarks"][0]["M"], 1000);
  EXPECT_THAT(w.run(bench + "--objective words"_args, home).err, HasSubstr("measured by redblue doctor"));
  EXPECT_THAT(w.run("plan"_args + sizes, home).err, HasSubstr("measured by redblue doctor"));
}

TEST(CliObjective, TableShowsTheTermsAndTheReasonBothPlans) {
  const Workplace w;
  const Finished f = w.run(kBackward + Args{"--machine", machine("hardware_slow_arithmetic")});
  ASSERT_EQ(f.exit_code, 0) << f.err;
  for (const char* text : {"modelled, ms", "compute", "passes", "transfer", "takes the least modelled time",
                           "x the fewest words, with which two_pass"})
    EXPECT_THAT(f.out, HasSubstr(text));
  const Json j = w.run(kBackward + Args{"--machine", machine("hardware_slow_arithmetic"), "--json"}).json();
  EXPECT_EQ(j["objective"], "time");
  for (const char* term : {"compute_s", "exp_s", "pass_s", "transfer_s", "total_s"})
    EXPECT_GT(j["plans"][j["chosen"].get<std::size_t>()]["time"][term], 0);
}

TEST(CliObjective, MemoryMayBeLeftOut) {
  const Workplace w;
  const Args sizes = {"plan",  "--n", "512", "--d", "64", "--objective", "time", "--machine", machine("hardware"),
                      "--json"};
  EXPECT_EQ(w.run(sizes).json()["M"], 524288);
  EXPECT_EQ(w.run(sizes + "--dtype f64"_args).json()["M"], 262144);
  EXPECT_EQ(w.run(sizes + "--memory 64KiB"_args).json()["M"], 16384);
  EXPECT_EQ(w.run(sizes + "--dtype bf16 --compute-dtype bf16"_args).json()["M"], 524288);
}

/// The arithmetic of a plan is that of a run on files of this type.
TEST(CliObjective, ArithmeticIsThatOfARun) {
  const Workplace w;
  const auto reason = [&](const Args& types) {
    const Finished f = w.run(
        Args{"plan", "--n", "512", "--d", "64", "--objective", "time", "--machine", machine("hardware"), "--json"} +
        types);
    EXPECT_EQ(f.exit_code, 0) << f.err;
    return f.json()["reason"].get<std::string>();
  };
  EXPECT_THAT(reason({"--dtype", "bf16"}), HasSubstr("avx512 f32, 1 thread, M"));
  EXPECT_THAT(reason({"--dtype", "f64"}), HasSubstr("avx512 f64, 1 thread, M"));
  EXPECT_THAT(reason({"--dtype", "bf16", "--compute-dtype", "bf16"}), HasSubstr(" bf16, 1 thread, M"));
  EXPECT_THAT(reason({"--compute-dtype", "f64"}), HasSubstr("avx512 f64, 1 thread, M"));
}

TEST(CliObjective, TheFileOfTheDoctorIsTheDefault) {
  const Workplace w;
  std::filesystem::create_directories(w / "config/redblue");
  std::filesystem::copy_file(machine("hardware"), w / "config/redblue/hardware.json");
  const Finished f =
      w.run("plan --n 256 --d 32 --objective time"_args, "XDG_CONFIG_HOME=$PWD/config REDBLUE_ISA=portable");
  ASSERT_EQ(f.exit_code, 0) << f.err;
  EXPECT_THAT(f.out, HasSubstr("an invented server, one socket, portable f32, 1 thread, M = "));
}

TEST(CliObjective, CountsAndRunsThePlan) {
  const Workplace w;
  const Problem p = problem(64, 64, 16, 16);
  w.inputs(p, generate(p), 2);
  const Args time = {"--objective", "time", "--machine", machine("hardware"), "--json"};
  const Finished counted = w.run("count --n 64 --d 16"_args + time);
  EXPECT_EQ(counted.exit_code, 0) << counted.err;
  EXPECT_EQ(counted.json()["equal"], true);
  const Finished ran = w.run("run --verify"_args + kNpyFiles + time);
  EXPECT_EQ(ran.exit_code, 0) << ran.err;
  EXPECT_GT(ran.json()["modelled_time"]["total_s"], 0);
}

TEST(CliObjective, RefusesWhatMakesNoSense) {
  const Workplace w;
  std::ofstream(w / "bad.json") << "{\"schema\": \"redblue.hardware/1\", \"cpu\": 3}";
  const Args plan = "plan --n 64 --d 16"_args;
  const std::pair<Args, std::string> bad[] = {
      {{"--objective", "beauty", "--M", "1000"}, "--objective beauty: choose from words, time"},
      {{"--M", "1000", "--machine", machine("hardware")}, "is for --objective time"},
      {{"--objective", "time", "--machine", "none.json"}, "none.json"},
      {{"--objective", "time", "--machine", "bad.json"}, "cpu is 3, it must be a string"},
      {{"--objective", "time", "--machine", machine("hardware"), "--threads", "0"},
       "--threads 0: give a number from 1 to 1048576"},
      {{"--objective", "time", "--machine", machine("hardware"), "--threads", "1000000000"},
       "--threads 1000000000: give a number from 1 to 1048576"},
      {{"--objective", "time", "--machine", machine("hardware"), "--threads", "99999999999"},
       "--threads 99999999999: give a number from 1 to 1048576"},
      {{"--M", "1000", "--threads", "4"}, "--threads 4 is for --objective time"},
      {{"--M", "1000", "--compute-dtype", "bf16"}, "compute type bf16: q must be bf16"},
  };
  for (const auto& [args, says] : bad) {
    const Finished f = w.run(plan + args, "XDG_CONFIG_HOME=$PWD/nothing");
    EXPECT_EQ(f.exit_code, 2) << says;
    EXPECT_EQ(f.out, "");
    EXPECT_THAT(f.err, HasSubstr(says));
  }
}

}  // namespace
}  // namespace redblue::test
