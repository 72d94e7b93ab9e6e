#include <limits>

#include "cli/cli.hpp"
#include "support/tolerance.hpp"

/// run --ranks: threads of the program as ranks. tests/mpi/program.sh has processes.
namespace redblue::test {
namespace {

using testing::HasSubstr;

Problem causal_groups() {
  Problem p = problem(19, 19, 6, 5);
  p.batch = 2;
  p.heads = 4;
  p.kv_heads = 2;
  p.causal = true;
  return p;
}

TEST(CliRanks, ForwardAndBackwardAreVerifiedAndMoveTheFormula) {
  const Problem p = causal_groups();
  const Workplace w;
  w.inputs(p, generate(p));
  const Args layouts[] = {"--ranks 3"_args, "--ranks 3 --dropout 0.3 --seed 2"_args,
                          "--ranks 4 --grid 1x2x2 --transfer gather --ownership zig-zag"_args,
                          "--ranks 4 --grid 2x2x1 --ownership block-cyclic --block-rows 3 --dropout 0.3 --seed 2"_args};
  for (const Args& layout : layouts) {
    const Finished f = w.run("run --M 300 --causal --verify --json"_args + layout + kNpyFiles);
    ASSERT_EQ(f.exit_code, 0) << f.err << f.out;
    const Json j = f.json();
    EXPECT_EQ(j["schema"], "redblue.run_ranks/1");
    EXPECT_EQ(j["verified"], true);
    for (const char* way : {"received", "sent"}) EXPECT_EQ(j["rank_0"][way], j["rank_0"]["formula"][way]);
    EXPECT_GT(j["rank_0"]["sent"]["inputs"], 0);
  }
}

TEST(CliRanks, GiveTheGradientsOfBiasAndSinks) {
  const Workplace w;
  std::mt19937_64 random(5);
  Args inputs, outputs;
  for (const auto& [name, shape] : std::initializer_list<std::pair<std::string, std::vector<index_t>>>{
           {"q", {4, 13, 6}}, {"k", {2, 13, 6}}, {"v", {2, 13, 5}}, {"bias", {4, 13, 13}}, {"sinks", {4}}}) {
    index_t words = 1;
    for (const index_t n : shape) words *= n;
    const std::vector<double> x = normal(words, random);
    const std::vector<float> rounded(x.begin(), x.end());
    file::write_npy(w / (name + ".npy"), file::c_order_tensor(DType::f32, shape, rounded.data()));
    inputs = inputs + Args{"--" + name, name + ".npy"};
    if (name != "bias" && name != "sinks") outputs = outputs + Args{"--d" + name, "d" + name + ".npy"};
  }
  ASSERT_EQ(w.run("run --M 300 --causal --o o.npy --lse lse.npy"_args + inputs).exit_code, 0);
  const Args backward =
      "run --op backward --bias-gradient --sinks-gradient --M 300 --causal --verify --json --do o.npy "
      "--o o.npy --lse lse.npy --dbias dbias.npy --dsinks dsinks.npy"_args;
  for (const Args& ranks : {"--ranks 3"_args, "--ranks 2 --grid 1x2x1 --ownership zig-zag"_args,
                            "--ranks 4 --grid 2x1x2 --transfer gather"_args}) {
    const Finished f = w.run(backward + inputs + outputs + ranks);
    ASSERT_EQ(f.exit_code, 0) << f.err << f.out;
    const Json j = f.json();
    EXPECT_EQ(j["verified"], true);
    for (const char* way : {"received", "sent"}) EXPECT_EQ(j["rank_0"][way], j["rank_0"]["formula"][way]);
    for (const char* name : {"dbias.npy", "dsinks.npy"}) EXPECT_TRUE(w.files().contains(name));
  }
}

TEST(CliRanks, GiveTheSameBitsForEveryNumberOfRanks) {
  const Problem p = causal_groups();
  const Workplace w;
  w.inputs(p, generate(p));
  const auto o_of = [&](const Args& ranks) {
    const Finished f = w.run("run --causal --verify --reproducible 4"_args + ranks + kNpyFiles);
    EXPECT_EQ(f.exit_code, 0) << f.err << f.out;
    EXPECT_THAT(f.out, HasSubstr(", reproducible in blocks of 4 rows"));
    return numbers(file::read_npy(w / "o.npy"));
  };
  const auto one = o_of("--ranks 1"_args);
  EXPECT_EQ(o_of("--ranks 3"_args), one);
  EXPECT_EQ(o_of("--ranks 4 --grid 2x2x1 --ownership zig-zag"_args), one);
}

TEST(CliRanks, GiveWhatOneProcessGives) {
  const Problem p = causal_groups();
  const Data x = generate(p);
  const Workplace w;
  w.inputs(p, x);
  const Finished f = w.run("run --M 300 --causal --ranks 3"_args + kNpyFiles);
  ASSERT_EQ(f.exit_code, 0) << f.err;
  EXPECT_THAT(f.out, HasSubstr("forward over 3 ranks, threads of this process"));
  const Result ours{numbers(file::read_npy(w / "o.npy")), numbers(file::read_npy(w / "lse.npy"))},
      truth = truth_of(p, x.q, x.k, x.v);
  EXPECT_TRUE(close(ours, truth, truth, eps_of(DType::f32)));
}

TEST(CliRanks, SayThatAnInputHasNaN) {
  const Problem p = causal_groups();
  Data x = generate(p);
  x.k[3] = std::numeric_limits<double>::quiet_NaN();
  const Workplace w;
  w.inputs(p, x);
  const Finished f = w.run("run --M 300 --causal --ranks 3"_args + kNpyFiles);
  EXPECT_EQ(f.exit_code, 0);
  EXPECT_THAT(f.err, HasSubstr("k has a NaN at [0, 0, 0, 3]: so has every output that depends on it"));
  EXPECT_EQ(w.run("run --M 300 --causal --ranks 3 --quiet"_args + kNpyFiles).err, "");
}

TEST(CliRanks, SayHowMuchOfTheirMessagesIsHidden) {
  const Problem p = causal_groups();
  const Workplace w;
  w.inputs(p, generate(p));
  const Finished f = w.run("run --M 300 --causal --ranks 3 --overlap --verify"_args + kNpyFiles);
  ASSERT_EQ(f.exit_code, 0) << f.err << f.out;
  EXPECT_THAT(f.out, HasSubstr("its messages alone take "));
  const Json j = w.run("run --M 300 --causal --ranks 3 --overlap --json"_args + kNpyFiles).json();
  EXPECT_GE(j["rank_0"]["messages_alone_seconds"], 0);
  const Json without = w.run("run --M 300 --causal --ranks 3 --json"_args + kNpyFiles).json();
  EXPECT_EQ(without["rank_0"]["overlap"], nullptr);
}

TEST(CliRanks, RefuseWhatTheyDoNotHeed) {
  const Problem p = causal_groups();
  const Workplace w;
  w.inputs(p, generate(p));
  const auto refusal = [&](const Args& args) {
    const Finished f = w.run("run"_args + args + kNpyFiles);
    EXPECT_EQ(f.exit_code, 2) << f.out;
    return f.err;
  };
  EXPECT_THAT(refusal("--ranks 2 --memory 64KiB"_args),
              HasSubstr("--memory with --ranks: each rank plans its own work"));
  EXPECT_THAT(refusal("--ranks 2 --schedule flash"_args), HasSubstr("--schedule with --ranks"));
  EXPECT_THAT(refusal("--ranks 2 --M 300 --threads 2"_args), HasSubstr("--threads 2: ranks are threads"));
  EXPECT_THAT(refusal("--ranks 100 --M 300"_args), HasSubstr("--ranks 100 as threads of one process: give 64 at most"));
  EXPECT_THAT(refusal("--ranks 0 --M 300"_args), HasSubstr("--ranks 0"));
  EXPECT_THAT(refusal("--ranks 2 --reproducible 4 --M 300"_args), HasSubstr("M = 300 with reproducible results"));
  EXPECT_THAT(refusal("--ranks 2 --reproducible 0"_args), HasSubstr("--reproducible 0: give the rows of a block"));
  EXPECT_THAT(refusal("--ranks 2 --reproducible 4 --transfer ring"_args), HasSubstr("with transfer ring"));
  EXPECT_THAT(refusal("--reproducible 4 --M 300"_args), HasSubstr("--reproducible 4 is for --ranks"));
  EXPECT_THAT(refusal("--transfer ring --M 300"_args), HasSubstr("--transfer ring is for --ranks"));
  EXPECT_THAT(refusal("--overlap --M 300"_args), HasSubstr("--overlap is for --ranks"));
  EXPECT_THAT(refusal("--ranks 2 --M 300 --strided 4"_args), HasSubstr("ranks do not share patterns"));
  EXPECT_FALSE(w.files().contains("o.npy"));
}

}  // namespace
}  // namespace redblue::test
