#include <algorithm>
#include <cmath>

#include "cli/cli.hpp"

/// bench: its JSON is Google Benchmark's, its words are the plan's, its rates follow from its times.
namespace redblue::test {
namespace {

using testing::AllOf;
using testing::DoubleNear;
using testing::HasSubstr;

/// Short: nothing here asks how long it took.
const Args kOnce = "--repetitions 1 --min-time 0 --threads 1"_args;

/// The flops that an entry's rate and time speak of.
double flops(const Json& entry) {
  EXPECT_EQ(entry["time_unit"], "ms");
  return entry["GFLOPS"].get<double>() * entry["real_time"].get<double>() * 1e6;
}

TEST(CliBench, PrintsTheLayoutOfGoogleBenchmark) {
  const Finished f = Workplace().run(
      "bench --n 16,24 --d 4,8 --heads 2 --M 500 --threads 1 --repetitions 3 --min-time 0 "
      "--json"_args,
      "REDBLUE_ISA=portable");
  ASSERT_EQ(f.exit_code, 0) << f.err;
  const Json j = f.json(), &context = j["context"], &list = j["benchmarks"];
  expect_fields(context, {"date", "host_name", "num_cpus", "mhz_per_cpu", "caches", "load_avg", "library_version",
                          "library_commit", "compiler", "cpu", "isa"});
  EXPECT_EQ(context["isa"], "portable");
  EXPECT_EQ(context["REDBLUE_ISA"], "portable");
  EXPECT_EQ(context["json_schema_version"], 1);
  for (const Json& c : context["caches"]) expect_fields(c, {"type", "level", "size", "num_sharing"});
  const std::size_t each = 3 + 2;  // repetitions, median, cv
  ASSERT_EQ(list.size(), 4 * each);
  for (std::size_t cell = 0; cell < 4; ++cell) {
    const auto at = [&](std::size_t i) -> const Json& { return list[cell * each + i]; };
    const double wanted = 4.0 * 2 * (cell < 2 ? 16 * 16 : 24 * 24) * (cell % 2 == 0 ? 4 : 8);
    std::vector<double> times;
    for (std::size_t i = 0; i < 3; ++i) {
      EXPECT_EQ(at(i)["run_type"], "iteration");
      EXPECT_EQ(at(i)["repetition_index"], i);
      EXPECT_EQ(at(i)["name"], at(i)["run_name"]);
      EXPECT_GE(at(i)["iterations"], 1);
      expect_fields(at(i),
                    {"cpu_time", "peak_GFLOPS", "words", "bytes", "bound_words", "ratio", "footprint", "threads"});
      EXPECT_THAT(flops(at(i)), DoubleNear(wanted, 1e-9 * wanted));
      const double share = at(i)["GFLOPS"].get<double>() / at(i)["peak_GFLOPS"].get<double>();
      EXPECT_THAT(at(i)["peak_share"].get<double>(), DoubleNear(share, 1e-9 * share));
      times.push_back(at(i)["real_time"]);
    }
    std::sort(times.begin(), times.end());
    EXPECT_EQ(at(3)["run_type"], "aggregate");
    EXPECT_EQ(at(3)["aggregate_name"], "median");
    EXPECT_EQ(at(3)["name"], at(0)["name"].get<std::string>() + "_median");
    EXPECT_EQ(at(3)["real_time"], times[1]);
    EXPECT_EQ(at(3)["words"], at(0)["words"]);
    EXPECT_EQ(at(4)["aggregate_name"], "cv");
    EXPECT_EQ(at(4)["aggregate_unit"], "percentage");
  }
}

TEST(CliBench, WordsAreThoseOfTheCountingMachine) {
  const Workplace w;
  for (const char* op : {"forward", "backward"}) {
    const Args problem = {"--op", op,        "--nq", "20",         "--nk", "28",       "--d", "8",   "--dv",
                          "6",    "--heads", "4",    "--kv-heads", "2",    "--causal", "--M", "400", "--json"};
    const Json counted = w.run("count"_args + problem).json();
    const Finished f = w.run("bench --objective words --dtype bf16"_args + problem + kOnce);
    ASSERT_EQ(f.exit_code, 0) << f.err;
    const Json entry = f.json()["benchmarks"][0];
    EXPECT_EQ(entry["words"], counted["counted"]["io"]);
    EXPECT_EQ(entry["footprint"], counted["counted"]["peak"]);
    EXPECT_EQ(entry["bound_words"], counted["bound"]["words"]);
    EXPECT_EQ(entry["ratio"], counted["ratio"]);
    EXPECT_THAT(entry["label"].get<std::string>(), testing::StartsWith(counted["schedule"].get<std::string>()));
    // bf16 in the tensors; lse, what a schedule keeps for itself, and words of outputs that it reads again, in fp32.
    std::int64_t bytes = 0;
    for (const auto& [name, moved] : counted["counted"]["per_array"].items()) {
      const auto reads = moved["reads"].get<std::int64_t>(), writes = moved["writes"].get<std::int64_t>();
      const bool is_tensor = std::set<std::string>{"Q", "K", "V", "O", "dO", "dQ", "dK", "dV"}.contains(name);
      const bool is_output = name == "dQ" || name == "dK" || name == "dV" || (op[0] == 'f' && name == "O");
      bytes += (is_tensor ? 2 : 4) * (reads + writes) + (is_output ? 2 * 2 * reads : 0);
    }
    EXPECT_EQ(entry["bytes"], bytes);
  }
}

TEST(CliBench, FlopsAreThoseOfVisiblePairsAndTwoAndAHalfTimesBackward) {
  const Workplace w;
  const auto measured = [&](const Args& more) {
    const Finished f = w.run("bench --n 16 --d 8 --M 500 --json"_args + more + kOnce);
    EXPECT_EQ(f.exit_code, 0) << f.err;
    return flops(f.json()["benchmarks"][0]);
  };
  const double full = 4 * 16 * 16 * 8;
  EXPECT_NEAR(measured({}), full, 1e-6);
  EXPECT_NEAR(measured({"--dv", "24"}), 2 * full, 1e-6);
  EXPECT_NEAR(measured({"--causal"}), full * 17 / 32, 1e-6);
  EXPECT_NEAR(measured({"--op", "backward"}), 2.5 * full, 1e-6);
  EXPECT_NEAR(measured({"--op", "backward", "--with-forward"}), 3.5 * full, 1e-6);
  EXPECT_NEAR(measured({"--schedule", "naive"}), full, 1e-6);
}

TEST(CliBench, PrintsATableWithTheScheduleThatWasAskedFor) {
  const Finished f = Workplace().run("bench --n 16 --d 8,16 --dtype f64 --schedule key_outer"_args + kOnce);
  ASSERT_EQ(f.exit_code, 0) << f.err;
  EXPECT_THAT(f.out, AllOf(HasSubstr("GFLOP/s"), HasSubstr("of peak"), HasSubstr("words"), HasSubstr("key_outer Bc=")));
}

TEST(CliBench, RefusesWhatItCannotTime) {
  const Workplace w;
  const struct {
    Args args;
    const char* says;
  } cases[] = {
      {{"--op", "gradient-x"}, "choose from forward, backward, tangent, second"},
      {{"--repetitions", "0"}, "--repetitions 0"},
      {{"--min-time", "-1"}, "--min-time -1"},
      {{"--d", "8,x"}, "--d 8,x: 'x' is not a whole number"},
      {{"--n", "64,,"}, "--n 64,,: '' is not a whole number"},
      {{"--repetitions", "99999999999"}, "--repetitions 99999999999: give a number from 1 to 1000000"},
      {{"--threads", "99999999999"}, "--threads 99999999999: there "},
      {{"--n", "100000000000"}, "not enough memory: the tensors for n_q = 100000000000"},
      {{"--threads", "0"}, "--threads 0"},
      {{"--compute-dtype", "f16"}, "f16"},
      {{"--compute-dtype", "bf16"}, "bf16"},
      {{"--n", "16,0"}, "n_q = 0"},
  };
  for (const auto& c : cases) {
    Args args = "bench --M 500 --n 16 --d 8"_args;
    for (std::size_t i = 0; i < c.args.size(); i += 2)
      if (const auto given = std::find(args.begin(), args.end(), c.args[i]); given != args.end())
        *(given + 1) = c.args[i + 1];
      else
        args = args + Args{c.args[i], c.args[i + 1]};
    const Finished f = w.run(args);
    EXPECT_EQ(f.exit_code, 2) << c.says;
    EXPECT_THAT(f.err, HasSubstr(c.says));
    EXPECT_EQ(f.out, "");
  }
}

TEST(CliBench, HelpNamesWhatItTakes) {
  const Finished f = Workplace().run("bench --help"_args);
  EXPECT_THAT(f.out, AllOf(HasSubstr("operation: forward, backward\n"), testing::Not(HasSubstr("gradient-x"))));
}

/// Three quarters of the cache, in words of the arithmetic: tiles of bf16 products are held in f32.
TEST(CliBench, WordsOfFastMemoryAreThoseOfTheArithmetic) {
  const Workplace w;
  const auto M = [&](const Args& more) {
    const Finished f = w.run("bench --n 16 --d 8 --objective words --json"_args + more + kOnce);
    EXPECT_EQ(f.exit_code, 0) << f.err;
    return f.json()["benchmarks"][0]["M"].get<std::int64_t>();
  };
  const Args bf16 = "--dtype bf16 --compute-dtype bf16"_args;
  EXPECT_EQ(M({"--memory", "768KiB"}), 196608);
  EXPECT_EQ(M(bf16 + "--memory 768KiB"_args), 196608);
  EXPECT_EQ(M({"--memory", "768KiB", "--dtype", "f64"}), 98304);
  EXPECT_EQ(M(bf16), M({}));
}

}  // namespace
}  // namespace redblue::test
