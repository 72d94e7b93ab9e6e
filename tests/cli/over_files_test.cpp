#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>

#include "cli/cli.hpp"

/// run --memory: over files, in no more memory than that.
namespace redblue::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

Problem grouped_problem() {
  Problem p = problem(19, 23, 6, 5);
  p.batch = 2;
  p.heads = 4;
  p.kv_heads = 2;
  return p;
}

const Args kPlan = "--M 300 --schedule flash --multiple q=1,k=1"_args;

TEST(OverFiles, WritesTheSameFilesAsARunInMemory) {
  const Problem p = grouped_problem();
  const Workplace w;
  const Data x = generate(p);
  w.inputs(p, x);
  w.safetensors("x.safetensors", p, x);
  ASSERT_EQ(w.run("run --quiet --threads 1"_args + kPlan + kNpyFiles).exit_code, 0);
  const std::string o = file::read_text(w / "o.npy"), lse = file::read_text(w / "lse.npy");
  const Finished npy = w.run("run --memory 4MiB --json"_args + kPlan + kNpyFiles);
  ASSERT_EQ(npy.exit_code, 0) << npy.err;
  EXPECT_TRUE(file::read_text(w / "o.npy") == o);
  EXPECT_TRUE(file::read_text(w / "lse.npy") == lse);
  const Json j = npy.json(), files = j["files"];
  expect_fields(
      files, {"engine", "direct", "limit", "beside_limit", "memory", "buffers", "workspace_on_disk", "converted_bytes",
              "reads", "writes", "waited_seconds", "bytes_per_second", "process", "rates_measured"});
  ASSERT_EQ(files["levels"].size(), 1U);  // M words are fewer than a cache holds
  EXPECT_EQ(files["levels"][0]["predicted"]["words"], j["moved"]["io"]);
  EXPECT_GT(files["levels"][0]["predicted"]["seconds"], 0);
  EXPECT_GT(files["levels"][0]["measured"]["seconds"], 0);
  EXPECT_TRUE(files["calls"]["measured_seconds"].is_null());
  EXPECT_EQ(files["look_ahead"]["request"], 64 << 10);
  EXPECT_EQ(files["limit"], 4 << 20);
  EXPECT_LE(files["memory"], files["limit"]);
  EXPECT_EQ(files["word_bytes_read"].get<index_t>() + files["word_bytes_written"].get<index_t>(),
            4 * j["moved"]["io"].get<index_t>());
  EXPECT_EQ(files["writes"]["asked"], files["word_bytes_written"]);

  const Args archives = "--input x.safetensors --output"_args;
  ASSERT_EQ(w.run("run --quiet --threads 1"_args + kPlan + archives + Args{"here.safetensors"}).exit_code, 0);
  const Finished text = w.run("run --memory 4MiB"_args + kPlan + archives + Args{"there.safetensors"});
  ASSERT_EQ(text.exit_code, 0) << text.err;
  EXPECT_TRUE(file::read_text(w / "here.safetensors") == file::read_text(w / "there.safetensors"));
  EXPECT_THAT(text.out, AllOf(HasSubstr("asked of the kernel"), HasSubstr("of 4.0 MiB"), HasSubstr("/proc/self/io")));
}

TEST(OverFiles, GradientsTakeTheirForwardPassAlong) {
  const Problem p = grouped_problem();
  const Workplace w;
  const Data x = generate(p);
  w.inputs(p, x);
  w.npy("do.npy", {p.batch, p.heads, p.n_q, p.d_v}, std::vector<double>(x.q.begin(), x.q.begin() + 760));
  const Args args =
      "run --op backward --with-forward --M 400 --q q.npy --k k.npy --v v.npy "
      "--do do.npy --dq dq.npy --dk dk.npy --dv dv.npy "
      "--o o.npy --lse lse.npy --quiet --multiple q=1,k=1 --schedule fused_query_outer"_args;
  ASSERT_EQ(w.run(args + "--threads 1"_args).exit_code, 0);
  std::vector<std::string> here;
  const std::vector<std::string> names{"dq.npy", "dk.npy", "dv.npy", "o.npy", "lse.npy"};
  for (const std::string& name : names) here.push_back(file::read_text(w / name));
  const Finished f = w.run(args + "--memory 4MiB"_args);
  ASSERT_EQ(f.exit_code, 0) << f.err;
  for (std::size_t i = 0; i < names.size(); ++i) EXPECT_TRUE(file::read_text(w / names[i]) == here[i]) << names[i];
}

TEST(OverFiles, SecondDerivativesTakeTheirForwardPassAlong) {
  const Problem p = grouped_problem();
  const Workplace w;
  const Data x = generate(p);
  w.inputs(p, x);
  w.npy("do.npy", {p.batch, p.heads, p.n_q, p.d_v}, std::vector<double>(x.q.begin(), x.q.begin() + 760));
  for (const char* const name : {"q", "k", "v"})  // any directions of these shapes
    for (const char* const direction : {"t", "g"})
      std::filesystem::copy_file(w / (std::string(name) + ".npy"), w / (direction + std::string(name) + ".npy"));
  for (const auto& [name, step] : {std::pair{"bias.npy", 0.7}, {"tbias.npy", 1.3}, {"gbias.npy", 1.9}}) {
    std::vector<double> words(static_cast<std::size_t>(p.heads * p.n_q * p.n_k));
    for (std::size_t i = 0; i < words.size(); ++i) words[i] = std::sin(step * static_cast<double>(i));
    w.npy(name, {1, p.heads, p.n_q, p.n_k}, words);
  }
  for (const auto& [name, step] : {std::pair{"sinks.npy", 0.9}, {"tsinks.npy", 1.7}, {"gsinks.npy", 2.3}}) {
    std::vector<double> words(static_cast<std::size_t>(p.heads));
    for (std::size_t i = 0; i < words.size(); ++i) words[i] = std::cos(step * static_cast<double>(i));
    w.npy(name, {p.heads}, words);
  }
  w.npy("dlse.npy", {p.batch, p.heads, p.n_q},
        std::vector<double>(static_cast<std::size_t>(p.batch * p.heads * p.n_q), 0.5));
  const std::map<std::string, std::pair<Args, std::vector<std::string>>> operations{
      {"tangent",
       {"--schedule query_outer --tq tq.npy --tk tk.npy --tv tv.npy --bias bias.npy --tbias tbias.npy --sinks "
        "sinks.npy "
        "--tsinks tsinks.npy"_args,
        {"to", "tlse"}}},
      {"second",
       {"--schedule fused_key_outer --do do.npy --gq gq.npy --gk gk.npy --gv gv.npy --bias bias.npy --gbias gbias.npy "
        "--dlse dlse.npy --sinks sinks.npy --gsinks gsinks.npy"_args,
        {"lq", "lk", "lv", "ldo", "lbias", "ldlse", "lsinks"}}}};
  for (const auto& [op, files] : operations) {
    Args args =
        "run --with-forward --M 400 --quiet --multiple q=1,k=1 --q q.npy --k k.npy --v v.npy --o o.npy --lse lse.npy"_args +
        Args{"--op", op} + files.first;
    for (const std::string& name : files.second) args = args + Args{"--" + name, name + ".npy"};
    const Finished in_memory = w.run(args + "--threads 1"_args);
    ASSERT_EQ(in_memory.exit_code, 0) << in_memory.err;
    std::vector<std::string> here;
    for (const std::string& name : files.second) here.push_back(file::read_text(w / (name + ".npy")));
    const Finished f = w.run(args + "--memory 4MiB"_args);
    ASSERT_EQ(f.exit_code, 0) << f.err;
    for (std::size_t i = 0; i < here.size(); ++i)
      EXPECT_TRUE(file::read_text(w / (files.second[i] + ".npy")) == here[i]) << op << ' ' << files.second[i];
  }
}

TEST(OverFiles, StaysBelowItsLimit) {
  const Workplace w;
  // 24 MiB each, without blocks on the disk.
  for (const char* const name : {"q", "k", "v"}) {
    std::ofstream(w / name).flush();
    std::filesystem::resize_file(w / name, 24 << 20);
  }
  const Finished f = w.run(
      "run --memory 24MiB --window 15,0 --layout nd "
      "--raw q=q:f32:98304x64 --raw k=k:f32:98304x64 --raw v=v:f32:98304x64 --o o.npy --json"_args);
  ASSERT_EQ(f.exit_code, 0) << f.err;
  const Json files = f.json()["files"];
  EXPECT_LE(files["memory"], files["limit"]);
#ifndef __SANITIZE_ADDRESS__
  EXPECT_LT(files["process"]["peak_rss"].get<index_t>(),
            files["limit"].get<index_t>() + files["beside_limit"].get<index_t>());
#endif
}

TEST(OverFiles, PatternsStayInPlaceAndABiasIsNotSearched) {
  const Problem p = grouped_problem();
  const Workplace w;
  w.inputs(p, generate(p));
  w.npy("bias.npy", {1, 1, p.n_q, p.n_k}, std::vector<double>(static_cast<std::size_t>(p.n_q * p.n_k), 0.5));
  const Args args = "run --M 300 --multiple q=1,k=1 --big-bird 4,0,1,1 --pattern-seed 3"_args + kNpyFiles;
  ASSERT_EQ(w.run(args + "--quiet --threads 1 --order in-place"_args).exit_code, 0);
  const std::string o = file::read_text(w / "o.npy");
  const Finished f = w.run(args + "--memory 4MiB"_args);
  ASSERT_EQ(f.exit_code, 0) << f.err;
  EXPECT_TRUE(file::read_text(w / "o.npy") == o);
  EXPECT_THAT(w.run(args + "--memory 4MiB --order rcm"_args).err, HasSubstr("order in-place leaves them"));
  const Finished biased = w.run("run --memory 4MiB --bias bias.npy"_args + kPlan + kNpyFiles);
  ASSERT_EQ(biased.exit_code, 0) << biased.err;
  EXPECT_THAT(biased.err, HasSubstr("bias lies in a file: it is not searched for NaN"));
}

TEST(OverFiles, ApproximationsAreThoseOfARunInMemory) {
  Problem p = problem(60, 70, 4, 3);
  p.heads = 2;
  const Workplace w;
  w.inputs(p, generate(p));
  const auto output = [&] {  // what follows the header
    const std::string text = file::read_text(w / "o.npy");
    std::vector<float> o(std::size_t{2 * 60 * 3});
    std::memcpy(o.data(), text.data() + text.size() - o.size() * sizeof(float), o.size() * sizeof(float));
    return o;
  };
  for (const char* const text : {"2:2.0", "2:2.0,rows", "linear", "linformer:8"}) {
    const Args args = "run --M 4000 --json --q q.npy --k k.npy --v v.npy --o o.npy"_args + Args{"--approximate", text};
    const Finished here = w.run(args + "--threads 1"_args);
    ASSERT_EQ(here.exit_code, 0) << text << here.err;
    const std::vector<float> o = output();
    const Finished there = w.run(args + "--memory 4MiB"_args);
    ASSERT_EQ(there.exit_code, 0) << text << there.err;
    EXPECT_EQ(there.json()["moved"]["io"], here.json()["moved"]["io"]) << text;
    EXPECT_THAT(output(), testing::Pointwise(testing::FloatNear(1e-5F), o)) << text;
  }
}

/// A machine whose disk has a knee.
void write_machine(const Workplace& w) {
  Json machine = Json::parse(file::read_text(in_sources("/tests/data/hardware.json")));
  machine["disk"] = {{"name", "disk"},
                     {"directory", "/fast"},
                     {"file_system", "ext4"},
                     {"bytes", 1000000000000},
                     {"engine", "threads"},
                     {"direct", true},
                     {"read_bandwidth", 2e9},
                     {"write_bandwidth", 1e9},
                     {"latency", 1e-4},
                     {"request", 512 * 1024},
                     {"depth", 4},
                     {"at", "2026-11-30"}};
  std::filesystem::create_directories(w / "config/redblue");
  std::ofstream(w / "config/redblue/hardware.json") << machine.dump();
}

TEST(OverFiles, ReportsTheTimeOfEachLevelAndHowFarItReadsAhead) {
  const Problem p = problem(1500, 1500, 64, 64);
  const Workplace w;
  w.inputs(p, generate(p));
  write_machine(w);
  const Finished f =
      w.run("run --memory 64MiB --M 200000 --json --threads 1"_args + kNpyFiles, "XDG_CONFIG_HOME=$PWD/config");
  ASSERT_EQ(f.exit_code, 0) << f.err;
  const Json files = f.json()["files"];
  const Json& levels = files["levels"];
  ASSERT_EQ(levels.size(), 2U);
  EXPECT_EQ(levels[0]["from"], "disk");
  EXPECT_EQ(levels[0]["into"], "memory");
  EXPECT_EQ(levels[1]["from"], "memory");
  EXPECT_EQ(levels[1]["into"], "L2");
  EXPECT_EQ(levels[0]["measured"]["bytes"], levels[0]["predicted"]["bytes"]);
  EXPECT_EQ(levels[1]["measured"]["words"], levels[1]["predicted"]["words"]);
  const auto number = [](const Json& x) { return x.get<double>(); };
  EXPECT_DOUBLE_EQ(number(levels[0]["predicted"]["seconds"]), number(levels[0]["predicted"]["bytes"]) / 2e9);
  const Json& calls = files["calls"];
  EXPECT_DOUBLE_EQ(number(calls["predicted_seconds"]),
                   number(calls["predicted_arithmetic_seconds"]) + number(levels[1]["predicted"]["seconds"]));
  EXPECT_DOUBLE_EQ(number(files["predicted_seconds"]),
                   std::max(number(levels[0]["predicted"]["seconds"]), number(calls["predicted_seconds"])));
  EXPECT_GT(number(levels[0]["measured"]["seconds"]), 0);
  EXPECT_GT(number(calls["measured_seconds"]), 0);
  EXPECT_LE(number(calls["measured_seconds"]) + number(levels[0]["measured"]["waited_seconds"]),
            number(files["measured_seconds"]));
  EXPECT_TRUE(files["rates_measured"]);
  EXPECT_EQ(
      files["look_ahead"],
      (Json{
          {"request", 512 * 1024}, {"depth", 4 + 4}, {"read", 8 << 20}, {"write", 2 << 20}, {"disk_measured", true}}));
}

/// Parts of a row of scores lie apart in the file: tiles of few keys would be written in pieces of some bytes.
TEST(OverFiles, WritesScoresInFewRequests) {
  const Workplace w;
  for (const char* const name : {"q", "k"}) {
    std::ofstream(w / name).flush();
    std::filesystem::resize_file(w / name, 2048 * 16 * 4);
  }
  for (const Args& memory : {"--memory 4MiB"_args, "--memory 64MiB"_args}) {
    const Finished f =
        w.run("run --op scores --layout nd --raw q=q:f32:2048x16 --raw k=k:f32:2048x16 --s s.npy --json"_args + memory);
    ASSERT_EQ(f.exit_code, 0) << f.err;
    const Json files = f.json()["files"];
    EXPECT_EQ(files["word_bytes_written"], 2048 * 2048 * 4);
    EXPECT_EQ(files["writes"]["asked"], 2048 * 2048 * 4);
    EXPECT_LE(files["writes"]["transfers"], 1100);  // one for every other row, and some
    EXPECT_GE(files["look_ahead"]["write"].get<index_t>() * 5, files["limit"].get<index_t>() * 2);  // a tile, or nearly
    EXPECT_EQ(files["checkpoints"], 1) << "nobody goes on from the end of a run: its outputs are not read again";
  }
}

/// Words of columns lie in pages of their own: a plan counts these, and each is read once for all columns that it has.
TEST(OverFiles, ReadsFewPagesOfColumns) {
  const Workplace w;
  for (const char* const name : {"q", "k", "v"}) {
    std::ofstream(w / name).flush();
    std::filesystem::resize_file(w / name, 512 * 8 * 4);
  }
  const Finished f = w.run(
      "run --memory 4MiB --M 512 --layout nd --raw q=q:f32:512x8/1x512 --raw k=k:f32:512x8/1x512 "
      "--raw v=v:f32:512x8/1x512 --o o.npy --json"_args);
  ASSERT_EQ(f.exit_code, 0) << f.err;
  const Json files = f.json()["files"];
  EXPECT_LE(files["reads"]["moved"].get<index_t>() + files["writes"]["moved"].get<index_t>(), 1 << 20);
}

TEST(OverFiles, WritesNoColumnsOfOutputsWhereRowsTakeFewerBytes) {
  const Workplace w;
  for (const char* const name : {"q.npy", "k.npy", "v.npy"}) w.zeros(name, {1, 1, 128, 128});
  const Finished f =
      w.run("run --memory 4MiB --M 1024 --multiple q=1,k=1 --q q.npy --k k.npy --v v.npy --o o.npy --json"_args);
  ASSERT_EQ(f.exit_code, 0) << f.err;
  const Json files = f.json()["files"];
  EXPECT_LE(files["reads"]["moved"].get<index_t>() + files["writes"]["moved"].get<index_t>(), 4 << 20) << f.json();
}

TEST(OverFiles, RefusesByNameWhatItCannotDo) {
  const Problem p = grouped_problem();
  const Workplace w;
  w.inputs(p, generate(p));
  const auto refusal = [&](const Args& more) {
    const Finished f = w.run("run"_args + more + kNpyFiles);
    EXPECT_EQ(f.exit_code, 2) << f.err;
    EXPECT_EQ(w.files(), (std::set<std::string>{"q.npy", "k.npy", "v.npy"}));
    return f.err;
  };
  EXPECT_THAT(refusal("--memory 4MiB --verify"_args), HasSubstr("--verify with --memory: it holds all arrays"));
  EXPECT_THAT(refusal("--memory 4MiB --M 300 --threads 2"_args), HasSubstr("threads = 2 over files"));
  EXPECT_THAT(refusal("--memory 4MiB --objective words"_args), HasSubstr("--objective with --memory"));
  EXPECT_THAT(refusal("--memory 4MiB --max-workspace 3MiB"_args),
              AllOf(HasSubstr("--max-workspace with --memory"), HasSubstr("the smaller of both as --memory")));
  w.safetensors("part.safetensors", p, generate(p));
  expect_refused(w, {"run --partial --memory 4MiB --input part.safetensors --output y.safetensors"_args,
                     {"--partial with --memory: it holds all arrays"}});
  std::filesystem::remove(w / "part.safetensors");
  EXPECT_THAT(refusal("--memory 64KiB"_args),
              AllOf(HasSubstr("--memory 64KiB: a run over files"), HasSubstr("--M WORDS")));
  EXPECT_THAT(refusal("--memory 4MiB --M 2"_args), HasSubstr("M = 2 words is too small"));
  EXPECT_THAT(refusal("--memory 4MiB --compute-dtype bf16"_args), HasSubstr("bf16"));
}

TEST(OverFiles, DoesNotCompareCopiesOfAnInputThatLieInFiles) {
  const Workplace w;
  const std::vector<float> numbers(64, 0.5F);
  std::vector<file::NamedTensor> tensors;
  for (const char* const name : {"a1", "a2", "a3", "x", "y"})
    tensors.push_back({name, file::c_order_tensor(DType::f32, {1, 1, 8, 8}, numbers.data())});
  file::write_safetensors(w / "a.safetensors", tensors);
  const Args args =
      "run --op forward-x --sources shared --memory 4MiB --input a.safetensors --output y.safetensors"_args;
  expect_refused(w, {args, {"--sources shared with --memory: a3 is given beside a2", "leave a3 out (--ignore a3)"}});
  const Finished f = w.run(args + "--ignore a3 --quiet"_args);
  EXPECT_EQ(f.exit_code, 0) << f.err;
}

}  // namespace
}  // namespace redblue::test
