#include <limits>

#include "cli/cli.hpp"
#include "redblue/planner/planner.hpp"
#include "support/approximations.hpp"
#include "support/paths.hpp"
#include "support/schedules.hpp"
#include "support/tolerance.hpp"

/// run: files in, files out, checked.
namespace redblue::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

Problem grouped() {
  Problem p = problem(9, 11, 6, 5);
  p.batch = 2;
  p.heads = 4;
  p.kv_heads = 2;
  return p;
}

Result result(const file::Tensor& o, const file::Tensor& lse) { return {numbers(o), numbers(lse)}; }

TEST(Cli, RunTakesMaskAndScale) {
  Problem p = problem(9, 12, 6, 5);
  p.causal = true;
  p.scale = -0.25;
  for (const std::optional<index_t> offset : {std::optional<index_t>(), std::optional<index_t>(-4)}) {
    p.causal_offset = offset;
    const Data x = generate(p);
    const Workplace w;
    w.inputs(p, x, 2);
    const Args mask = offset ? Args{"--causal", "--causal-offset", std::to_string(*offset)} : "--causal"_args;
    const Finished f = w.run("run --M 200 --scale -0.25 --compute-dtype f64"_args + mask + kNpyFiles);
    ASSERT_EQ(f.exit_code, 0) << f.err;
    const Result ours = result(file::read_npy(w / "o.npy"), file::read_npy(w / "lse.npy")),
                 truth = truth_of(p, x.q, x.k, x.v);
    EXPECT_TRUE(close(ours, truth, truth, eps_of(DType::f32)));
  }
}

TEST(Cli, RunPrintsItsSchema) {
  const Problem p = grouped();
  const Workplace w;
  w.inputs(p, generate(p));
  const Finished f = w.run("run --M 200 --verify --json"_args + kNpyFiles);
  ASSERT_EQ(f.exit_code, 0) << f.err;
  EXPECT_EQ(f.err, "");  // no progress bar where there is no terminal
  const Json j = f.json();
  EXPECT_EQ(j["schema"], "redblue.run/1");
  for (const char* name : {"problem", "M", "schedule", "tiling", "compute_dtype", "moved", "formula", "bound", "ratio",
                           "seconds", "reason", "verify"})
    EXPECT_TRUE(j.contains(name)) << name;
  EXPECT_EQ(j["moved"], j["formula"]);
  EXPECT_EQ(j["verify"]["ok"], true);
  for (const char* name : {"o", "lse"})
    for (const char* field : {"error", "naive_error", "tolerance", "nan_mismatches", "ok"})
      EXPECT_TRUE(j["verify"][name].contains(field));
}

TEST(Cli, RunShowsWordsFormulaBoundAndRatio) {
  const Problem p = grouped();
  const Workplace w;
  w.inputs(p, generate(p));
  const Finished f = w.run("run --M 200 --verify"_args + kNpyFiles);
  EXPECT_EQ(f.exit_code, 0);
  EXPECT_THAT(f.out, AllOf(HasSubstr("moved"), HasSubstr("formula"), HasSubstr("bound"), HasSubstr("ratio"),
                           HasSubstr("verify o"), HasSubstr("ok")));
  const Finished quiet = w.run("run --M 200 --verify --quiet"_args + kNpyFiles);
  EXPECT_EQ(quiet.exit_code, 0);
  EXPECT_EQ(quiet.out + quiet.err, "");
}

TEST(Cli, RunGivesTheSameFilesWithAnyNumberOfThreads) {
  const Problem p = grouped();
  const Workplace w;
  w.inputs(p, generate(p));
  const Args args = "run --M 200 --json"_args + kNpyFiles;
  const Finished one = w.run(args + "--threads 1"_args);
  ASSERT_EQ(one.exit_code, 0) << one.err;
  const std::string o = file::read_text(w / "o.npy"), lse = file::read_text(w / "lse.npy");
  EXPECT_EQ(one.json()["threads"], 1);
  EXPECT_EQ(one.json()["most_words_per_thread"], one.json()["moved"]["io"]);
  const Finished five = w.run(args + "--threads 5"_args, "export REDBLUE_THREADS=5;");
  ASSERT_EQ(five.exit_code, 0) << five.err;
  EXPECT_EQ(five.json()["threads"], 5);
  EXPECT_EQ(five.json()["moved"], one.json()["moved"]);
  EXPECT_EQ(file::read_text(w / "o.npy"), o);
  EXPECT_EQ(file::read_text(w / "lse.npy"), lse);
}

TEST(Cli, RunSaysWhatIsWrongWithANumberOfThreads) {
  const Problem p = grouped();
  const Workplace w;
  w.inputs(p, generate(p));
  const Args args = "run --M 200"_args + kNpyFiles;
  const auto expect = [&](const Args& more, const std::string& before, const std::vector<std::string>& said) {
    const Finished f = w.run(args + more, before);
    EXPECT_EQ(f.exit_code, 2);
    for (const std::string& s : said) EXPECT_THAT(f.err, HasSubstr(s));
  };
  expect({"--threads", "0"}, "", {"--threads 0", "give a number from 1 to"});
  expect({"--threads", "two"}, "", {"--threads", "two"});
  expect({"--threads", "99999999999"}, "", {"--threads 99999999999: there "});
  EXPECT_EQ(w.run(args, "export REDBLUE_THREADS=;").exit_code, 0);  // as if it were not set
  expect({"--threads", "3"}, "export REDBLUE_THREADS=2;", {"--threads 3", "there are 2", "REDBLUE_THREADS=3"});
  for (const std::string nonsense : {"0", "-1", "2x", "99999999999"})
    expect({}, "export REDBLUE_THREADS=" + nonsense + ";", {"REDBLUE_THREADS=" + nonsense, "from 1 on"});
}

TEST(Cli, RunGoesWithoutLse) {
  const Problem p = grouped();
  const Workplace w;
  w.inputs(p, generate(p));
  const Finished f = w.run("run --M 200 --q q.npy --k k.npy --v v.npy --o o.npy --verify"_args);
  EXPECT_EQ(f.exit_code, 0) << f.err << f.out;
  EXPECT_EQ(w.files(), (std::set<std::string>{"q.npy", "k.npy", "v.npy", "o.npy"}));
}

TEST(Cli, VerifyReportsNaN) {
  const Problem p = grouped();
  for (const char* spoilt : {"q", "k", "v"}) {
    Data x = generate(p);
    (*spoilt == 'q' ? x.q : *spoilt == 'k' ? x.k : x.v)[3] = std::numeric_limits<double>::quiet_NaN();
    const Workplace w;
    w.inputs(p, x);
    // NaN is an answer, and written; that it came in is what --verify has to say.
    EXPECT_EQ(w.run("run --M 200"_args + kNpyFiles).exit_code, 0);
    EXPECT_TRUE(w.files().contains("o.npy"));
    const Finished text = w.run("run --M 200 --verify"_args + kNpyFiles),
                   json = w.run("run --M 200 --verify --json"_args + kNpyFiles);
    EXPECT_EQ(text.exit_code, 1);
    EXPECT_THAT(text.out, AllOf(HasSubstr("NaN in the inputs"), HasSubstr(std::string(spoilt) + " 1")));
    EXPECT_EQ(json.exit_code, 1);
    const Json verify = json.json()["verify"];
    EXPECT_EQ(verify["ok"], false);
    EXPECT_EQ(verify["nan_inputs"][spoilt], 1);
    EXPECT_GT(verify["nan_outputs"], 0);
  }
}

TEST(Cli, VerifyCatchesAnUnstableSchedule) {
  const Problem p = problem(8, 30, 8, 8);
  const Workplace w;
  w.inputs(p, generate(p, Kind::huge_logits), 2);
  const Finished f = w.run("run --M 200 --schedule saha_ye --verify"_args + kNpyFiles);
  EXPECT_EQ(f.exit_code, 1);
  EXPECT_THAT(f.out, HasSubstr("WRONG"));
}

/// Two heads of a real sentence encoder, with outputs that PyTorch computed.
TEST(Cli, RealDataMatchesItsReferenceInEverySchedule) {
  const std::string data = redblue::test::in_sources("/examples/data/minilm.safetensors");
  const file::Safetensors stored = file::read_safetensors(data);
  Problem p = problem(512, 512, 32, 32);
  p.heads = 2;
  const std::vector<double> q = numbers(stored.tensor("q")), k = numbers(stored.tensor("k")),
                            v = numbers(stored.tensor("v"));
  const Result truth = truth_of(p, q, k, v), plain = attend<float>(p, q, k, v);
  const Result reference = result(stored.tensor("o"), stored.tensor("lse"));
  const Workplace w;
  for (const std::string_view name : softmax_schedules())
    for (const std::string compute : {"f64", "f32"}) {
      SCOPED_TRACE(std::string(name) + " in " + compute);
      const Finished f = w.run({"run", "--M", "4096", "--input", data, "--output", "y.safetensors", "--schedule",
                                std::string(name), "--compute-dtype", compute, "--json"});
      ASSERT_EQ(f.exit_code, 0) << f.err;
      EXPECT_EQ(f.json()["moved"], f.json()["formula"]);
      const file::Safetensors y = file::read_safetensors(w / "y.safetensors");
      const Result ours = result(y.tensor("o"), y.tensor("lse"));
      if (compute == "f64") {
        EXPECT_LE(max_error(ours.o, reference.o), 5e-7 * largest(reference.o));
        EXPECT_LE(max_error(ours.lse, reference.lse), 5e-7 * largest(reference.lse));
      } else {
        EXPECT_LE(max_error(ours.o, truth.o), 2 * max_error(plain.o, truth.o));
        EXPECT_LE(max_error(ours.lse, truth.lse), 2 * max_error(plain.lse, truth.lse));
      }
    }
}

TEST(Cli, VerifyReportsNaNThatLeavesNoKeyToDraw) {
  if (!has_approximations()) GTEST_SKIP() << kNoApproximations;
  Problem p;
  p.n_q = p.n_k = 12;
  p.d = p.d_v = 3;
  Data x = generate(p);
  for (index_t j = 0; j < p.n_k; ++j) x.k[static_cast<std::size_t>(j * p.d)] = std::numeric_limits<double>::infinity();
  const Workplace w;
  w.inputs(p, x);
  for (const char* method : {"coreset:block=5,rank=2", "coreset:block=5,rank=2,carried"}) {
    const Finished f = w.run({"run", "--M", "2000", "--verify", "--approximate", method, "--q", "q.npy", "--k", "k.npy",
                              "--v", "v.npy", "--o", "o.npy"});
    EXPECT_EQ(f.exit_code, 1) << method << f.err;
    EXPECT_THAT(f.out, HasSubstr("verify: NaN in the inputs")) << method;
    EXPECT_TRUE(w.files().contains("o.npy")) << method;
  }
}

TEST(Cli, WarnsOfNaNInInputs) {
  const Workplace w;
  std::vector<double> values(12, 0.5);
  for (const char* name : {"q.npy", "k.npy", "v.npy"}) w.npy(name, {4, 3}, values);
  const Args run = "run --M 100 --q q.npy --k k.npy --v v.npy --o o.npy"_args;
  EXPECT_EQ(w.run(run).err, "");
  values[7] = std::nan("");
  for (const DType dtype : {DType::f32, DType::f64}) {
    w.npy("k.npy", {4, 3}, values, dtype);
    const Finished f = w.run(run);
    EXPECT_EQ(f.exit_code, 0);
    EXPECT_EQ(f.err, "redblue: k has a NaN at [0, 0, 2, 1]: so has every output that depends on it\n");
    EXPECT_EQ(w.run(run + "--quiet"_args).err, "");
  }
}

/// The elements of a tensor of f32 without a header, behind `before`.
void write_raw(const std::string& path, const std::vector<double>& values, const std::string& before = "") {
  const std::vector<float> narrow(values.begin(), values.end());
  file::write_text(path, before + std::string(reinterpret_cast<const char*>(narrow.data()), 4 * narrow.size()));
}

TEST(Cli, RunReadsInputsWithoutAHeader) {
  const Problem p = problem(9, 12, 6, 5);
  const Data x = generate(p);
  const Workplace w;
  w.inputs(p, x, 2);
  ASSERT_EQ(w.run("run --M 200 --quiet"_args + kNpyFiles).exit_code, 0);
  const std::string o = file::read_text(w / "o.npy");
  write_raw(w / "q.bin", x.q, "12 bytes: q ");
  write_raw(w / "k:v.bin", x.k);
  std::vector<double> columns(x.k.size());
  for (std::size_t i = 0; i < columns.size(); ++i) columns[i] = x.k[i % 12 * 6 + i / 12];
  write_raw(w / "kt.bin", columns);
  write_raw(w / "v.bin", x.v);
  const Args raw = "run --M 200 --raw q=q.bin:f32:9x6@12 --raw k=k:v.bin:f32:12x6"_args;
  const Finished f = w.run(raw + "--raw v=v.bin:f32:12x5@0 --o o.npy --verify"_args);
  EXPECT_EQ(f.exit_code, 0) << f.err;
  EXPECT_EQ(file::read_text(w / "o.npy"), o);
  const Finished one = w.run(raw + "--raw v=v.bin:f32:12x5 --output y.safetensors"_args);
  EXPECT_EQ(one.exit_code, 0) << one.err;
  EXPECT_EQ(numbers(file::read_safetensors(w / "y.safetensors").tensor("o")), numbers(file::read_npy(w / "o.npy")));
  const Finished transposed =
      w.run("run --M 200 --v v.npy --o o.npy --raw q=q.bin:f32:9x6@12"_args + "--raw k=kt.bin:f32:12x6/1x12"_args);
  EXPECT_EQ(transposed.exit_code, 0) << transposed.err;
  EXPECT_EQ(file::read_text(w / "o.npy"), o);
  const Finished beside = w.run(raw + "--v v.npy --o o.npy"_args);
  EXPECT_EQ(beside.exit_code, 0) << beside.err;
  EXPECT_EQ(file::read_text(w / "o.npy"), o);
}

TEST(Cli, RunRefusesWhatIsNotInAFileWithoutAHeader) {
  const Problem p = problem(9, 12, 6, 5);
  const Data x = generate(p);
  const Workplace w;
  w.inputs(p, x, 2);
  w.safetensors("x.safetensors", p, x);
  write_raw(w / "q.bin", x.q);
  const Args others = "run --M 200 --k k.npy --v v.npy --o o.npy --raw"_args;
  const std::string form = "give TENSOR=FILE:TYPE:SHAPE";
  for (const auto& [raw, says] : std::vector<std::pair<std::string, std::vector<std::string>>>{
           {"q.bin:f32:9x6", {"names no tensor before a =", form}},
           {"q=q.bin", {"no file, type and shape", form}},
           {"q=q.bin:9x6", {"no file, type and shape", form}},
           {"q=q.bin:f31:9x6", {"'f31' is no type: f64, f32, f16, bf16", form}},
           {"q=q.bin:f32:9xx6", {"'9xx6' is no shape", form}},
           {"q=q.bin:f32:9x-6", {"'9x-6' is no shape", form}},
           {"q=q.bin:f32:9x0", {"'9x0' is no shape", form}},
           {"q=q.bin:f32:9x6/6", {"1 strides for 2 dimensions", form}},
           {"q=q.bin:f32:9x6/6x-1", {"'6x-1' is no list of strides", form}},
           {"q=q.bin:f32:9x6/7x1", {"takes 248 bytes from byte 0 on, and 'q.bin' has 216"}},
           {"q=q.bin:f32:9x6@1k", {"'1k' is no byte of a file", form}},
           {"q=q.bin:f32:9x7", {"[9, 7] of f32 takes 252 bytes, and 'q.bin' has 216: is it this shape"}},
           {"q=q.bin:f32:9x5", {"takes 180 bytes, and 'q.bin' has 216: give the byte at which the tensor begins"}},
           {"q=q.bin:f32:9x6@4", {"takes 216 bytes from byte 4 on, and 'q.bin' has 216"}},
           {"q=nowhere.bin:f32:9x6", {"nowhere.bin", "No such file"}},
           {"o=q.bin:f32:9x5", {"o is an output, which goes to .npy, .npz or safetensors"}},
           {"x=q.bin:f32:9x5", {"there is no input x; inputs are q k v"}},
           {"k=q.bin:f32:9x6", {"k is given already"}}})
    expect_refused(w, {others + Args{raw}, says});
  expect_refused(w, {"run --M 200 --input x.safetensors --output y.safetensors --raw q=q.bin:f32:9x6"_args,
                     {"--raw q=q.bin", "x.safetensors has a tensor q, too: leave one of them out"}});
  expect_refused(w, {"run --M 200 --raw q=q.bin:f32:9x6 --output y.safetensors"_args, {"--op forward needs --k"}});
  expect_refused(w, {"run --M 200 --raw q=q.bin:f32:9x6 --k k.npy --v v.npy --o q.bin"_args, {"is also an input"}});
}

}  // namespace
}  // namespace redblue::test
