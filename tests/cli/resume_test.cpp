#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <thread>

#include "cli.hpp"

namespace redblue::test {
namespace {

/// The operations of the last checkpoint of a run that writes `output`; -1 where there is none.
index_t checkpoint_of(const Workplace& w, const std::string& output) {
  const std::string path = w / (output + ".redblue-partial/progress.json");
  if (!std::filesystem::exists(path)) return -1;
  return Json::parse(file::read_text(path)).at("operations");
}

/// Starts the program in the directory, and kills it when a checkpoint is behind its first operations.
void kill_at_checkpoint(const Workplace& w, const Args& args, const std::string& output) {
  const pid_t child = fork();
  if (child == 0) {
    std::string program = redblue::test::program();
    std::vector<char*> words{program.data()};
    Args own = args;
    for (std::string& word : own) words.push_back(word.data());
    words.push_back(nullptr);
    if (chdir((w / "").c_str()) == 0) execv(program.c_str(), words.data());
    _exit(127);
  }
  int status = 0;
  while (checkpoint_of(w, output) < 20 && waitpid(child, &status, WNOHANG) == 0)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  ASSERT_EQ(status, 0) << "it ended before";
  kill(child, SIGKILL);
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status));
}

const Args kOverFiles = "run --memory 1MiB --M 2048 --input x.safetensors --output y.safetensors"_args;

TEST(CliResume, ARunThatWasKilledGoesOnToTheSameBits) {
  const Problem p{.heads = 2, .n_q = 300, .n_k = 300, .d = 16, .d_v = 16};
  const Workplace w;
  w.safetensors("x.safetensors", p, generate(p));
  const Finished whole = w.run(kOverFiles + "--json"_args);
  ASSERT_EQ(whole.exit_code, 0) << whole.err;
  EXPECT_FALSE(whole.json()["files"]["resumed"]);
  const std::string bits = file::read_text(w / "y.safetensors");
  std::filesystem::remove(w / "y.safetensors");

  kill_at_checkpoint(w, kOverFiles + "--quiet --checkpoint-seconds 0"_args, "y.safetensors");
  EXPECT_FALSE(std::filesystem::exists(w / "y.safetensors"));
  expect_refused(w, {kOverFiles, {"y.safetensors.redblue-partial", "--resume", "remove"}});
  expect_refused(w, {kOverFiles + "--resume --causal"_args, {"causal was false and is true"}});

  const Finished rest = w.run(kOverFiles + "--resume --json"_args);
  ASSERT_EQ(rest.exit_code, 0) << rest.err;
  const Json files = rest.json()["files"];
  EXPECT_TRUE(files["resumed"]);
  EXPECT_GT(files["operations_done_before"], 0);
  EXPECT_LT(files["word_bytes_read"], whole.json()["files"]["word_bytes_read"]);
  EXPECT_EQ(rest.json()["moved"], whole.json()["moved"]);
  EXPECT_TRUE(file::read_text(w / "y.safetensors") == bits);
  EXPECT_EQ(w.files(), (std::set<std::string>{"x.safetensors", "y.safetensors"}));
}

/// Kills a run before its end. The state that it leaves says that all was computed.
void kill_before_names(const Workplace& w, const Args& args, const std::string& output) {
  kill_at_checkpoint(w, args + "--quiet --checkpoint-seconds 0"_args, output);
  const std::string path = w / (output + ".redblue-partial/progress.json");
  Json state = Json::parse(file::read_text(path));
  state["complete"] = true;
  file::write_text(path, state.dump());
}

TEST(CliResume, ARunThatWasComputedSaysSo) {
  const Problem p{.heads = 2, .n_q = 300, .n_k = 300, .d = 16, .d_v = 16};
  const Workplace w;
  w.safetensors("x.safetensors", p, generate(p));
  kill_before_names(w, kOverFiles, "y.safetensors");
  const Finished f = w.run(kOverFiles + "--resume --json"_args);
  ASSERT_EQ(f.exit_code, 0) << f.err;
  EXPECT_THAT(f.err, testing::HasSubstr("all was computed before"));
  EXPECT_TRUE(f.json()["computed_before"]);
  EXPECT_EQ(f.json()["problem"]["n_q"], 300);
  EXPECT_EQ(w.files(), (std::set<std::string>{"x.safetensors", "y.safetensors"}));
}

TEST(CliResume, ARunThatWasComputedHadTheSamePlan) {
  const Problem p{.heads = 2, .n_q = 300, .n_k = 300, .d = 16, .d_v = 16};
  const Workplace w;
  w.inputs(p, generate(p));
  const auto with_M = [](const char* words) { return Args{"run", "--memory", "1MiB", "--M", words} + kNpyFiles; };
  kill_before_names(w, with_M("2048"), "o.npy");
  const std::string partial = w / "o.npy.redblue-partial";
  const Args other = with_M("1500") + "--resume"_args;
  expect_refused(w, {other, {"cannot be resumed", "schedule was"}});
  std::filesystem::rename(partial + "/output-1", w / "o.npy");  // it was killed between two names
  expect_refused(w, {other, {"cannot be resumed", "schedule was"}});
  std::filesystem::rename(w / "o.npy", w / "mine.npy");
  const Finished lost = w.run(with_M("2048") + "--resume"_args);
  EXPECT_NE(lost.exit_code, 0);
  EXPECT_THAT(lost.err, testing::AllOf(testing::HasSubstr("o.npy' should have"), testing::HasSubstr("is not there")));
  std::filesystem::rename(w / "mine.npy", w / "o.npy");
  const Finished f = w.run(with_M("2048") + "--resume"_args);
  ASSERT_EQ(f.exit_code, 0) << f.err;
  EXPECT_TRUE(w.files().contains("lse.npy"));
  EXPECT_FALSE(std::filesystem::exists(partial));
}

/// A run that was killed at a checkpoint goes on with none of `others`, each of which says what differs. It goes on
/// with its own arguments, to the bits of a run that nothing stopped.
void expect_only_itself(const Workplace& w, const Args& own, const std::string& output,
                        const std::vector<Bad>& others) {
  const Finished whole = w.run(own + "--quiet"_args);
  ASSERT_EQ(whole.exit_code, 0) << whole.err;
  const std::string bits = file::read_text(w / output);
  std::filesystem::remove(w / output);
  kill_at_checkpoint(w, own + "--quiet --checkpoint-seconds 0"_args, output);
  for (const Bad& other : others) expect_refused(w, {other.args + Args{"--resume"}, other.says});
  const Finished rest = w.run(own + "--resume --json"_args);
  ASSERT_EQ(rest.exit_code, 0) << rest.err;
  EXPECT_TRUE(rest.json()["files"]["resumed"]);
  EXPECT_GT(rest.json()["files"]["operations_done_before"], 0);
  EXPECT_TRUE(file::read_text(w / output) == bits);
  EXPECT_FALSE(std::filesystem::exists(w / (output + ".redblue-partial")));
}

const Args kFlash = "run --memory 1MiB --M 2048 --schedule flash"_args;
const Problem kSquare{.heads = 2, .n_q = 320, .n_k = 320, .d = 16, .d_v = 16};

TEST(CliResume, EachInputIsTheSameFile) {
  const Workplace w;
  w.inputs(kSquare, generate(kSquare));
  w.npy("s.npy", {2}, {0.5, -0.25});
  w.npy("t.npy", {2}, {0.5, -0.5});
  const Args own = kFlash + "--q q.npy --k k.npy --v v.npy --softcap 5 --sinks s.npy --o o.npy --lse lse.npy"_args;
  const auto with = [&](std::ptrdiff_t at, const Args& others) {
    Args args = own;
    std::ranges::copy(others, args.begin() + at);
    return args;
  };
  Args without_cap = own, without_lse = own;
  without_cap.erase(without_cap.begin() + 13, without_cap.begin() + 15);
  without_lse.resize(own.size() - 2);
  expect_only_itself(w, own, "o.npy",
                     {{with(7, "--q k.npy --k q.npy"_args), {"input q was 'q.npy'", "and is 'k.npy'", "input k was"}},
                      {with(9, "--k v.npy --v k.npy"_args), {"input k was 'k.npy'", "input v was 'v.npy'"}},
                      {with(15, "--sinks t.npy"_args), {"input sinks was 0.5, -0.25 and is 0.5, -0.5"}},
                      {without_cap, {"softcap was 5.0 and is not given"}},
                      {without_lse, {"outputs was o, lse and is o", "output-2 was"}}});
}

TEST(CliResume, EachInputIsTheSameTensorOfItsFile) {
  const Workplace w;
  w.safetensors("x.safetensors", kSquare, generate(kSquare));
  const Args own = kFlash + kSafetensorsFiles;
  expect_only_itself(
      w, own, "y.safetensors",
      {{own + "--name q=k --name k=q"_args, {"its tensor 'q'", "its tensor 'k'"}},
       {own + "--name o=out"_args, {"outputs was o, lse and is o as 'out', lse"}},
       {"run --memory 1MiB --M 1500 --schedule flash"_args + kSafetensorsFiles, {"schedule was flash"}}});
}

TEST(CliResume, EachInputLiesWhereItLay) {
  const Workplace w;
  w.inputs(kSquare, generate(kSquare));
  const Args rest = kFlash + "--k k.npy --v v.npy --o o.npy --layout hnd"_args;
  w.npy("k.npy", {2, 320, 16}, generate(kSquare).k);
  w.npy("v.npy", {2, 320, 16}, generate(kSquare).v);
  const auto raw = [&](const char* place) { return rest + Args{"--raw", std::string("q=q.npy:f32:") + place}; };
  expect_only_itself(w, raw("2x320x16/5120x16x1@128"), "o.npy",
                     {{raw("2x320x16/5120x16x1@64"), {"at byte 128", "at byte 64"}},
                      {raw("2x320x16/16x32x1@128"), {"strides [5120, 16, 1]", "strides [16, 32, 1]"}}});
}

TEST(CliResume, InputsHaveTheSameLayout) {
  const Problem p{.heads = 40, .n_q = 40, .n_k = 40, .d = 8, .d_v = 8};
  const Workplace w;
  w.inputs(p, generate(p));
  const Args files = "run --memory 1MiB --M 500 --q q.npy --k k.npy --v v.npy --o o.npy --layout"_args;
  expect_only_itself(w, files + "bhnd"_args, "o.npy", {{files + "bnhd"_args, {"layout was bhnd and is bnhd"}}});
}

TEST(CliResume, APatternShowsTheSamePairs) {
  const Workplace w;
  w.inputs(kSquare, generate(kSquare));
  const Args files = "run --memory 1MiB --M 2048 --order in-place --q q.npy --k k.npy --v v.npy --o o.npy"_args;
  const Args bird = files + "--big-bird 16,1,1,1"_args;
  expect_only_itself(w, bird + "--pattern-seed 1"_args, "o.npy",
                     {{bird + "--pattern-seed 2"_args, {"patterns was", "pairs, in 1 pattern, checksum"}}});
  std::filesystem::remove(w / "o.npy");
  const std::vector<std::uint8_t> seen{1, 0, 0, 1};
  file::write_npy(w / "2.npy", file::c_order_tensor(DType::boolean, {2, 2}, seen.data()));
  const Args blocks = files + "--blocks 2.npy"_args;
  expect_only_itself(w, blocks + "--block 160,160"_args, "o.npy",
                     {{blocks + "--block 160,170"_args, {"patterns was"}}});
}

TEST(CliResume, SequencesAreTheSame) {
  const Workplace w;
  w.inputs(kSquare, generate(kSquare));
  const Args own = "run --memory 1MiB --M 2048 --causal --q q.npy --k k.npy --v v.npy --o o.npy --seqlens"_args;
  expect_only_itself(w, own + "100,60,160"_args, "o.npy",
                     {{own + "60,100,160"_args, {"cu_seqlens_q was [0,100,160,320] and is [0,60,160,320]"}}});
}

TEST(CliResume, ADirectoryOfSomebodyElseIsRefusedAndStays) {
  const Problem p{.n_q = 20, .n_k = 20, .d = 4, .d_v = 4};
  const Workplace w;
  w.inputs(p, generate(p));
  const std::string directory = w / "o.npy.redblue-partial";
  std::filesystem::create_directory(directory);
  file::write_text(directory + "/mine.txt", "mine");
  expect_refused(w, {"run --memory 1MiB --M 200 --resume"_args + kNpyFiles, {"o.npy.redblue-partial", "'mine.txt'"}});
  EXPECT_EQ(file::read_text(directory + "/mine.txt"), "mine");
  std::filesystem::remove_all(directory);
  file::write_text(directory, "mine");
  expect_refused(w, {"run --memory 1MiB --M 200"_args + kNpyFiles, {"is no directory", "name another output"}});
  EXPECT_EQ(file::read_text(directory), "mine");
}

TEST(CliResume, WithNothingToGoOnWithARunBegins) {
  const Problem p{.n_q = 20, .n_k = 20, .d = 4, .d_v = 4};
  const Workplace w;
  w.inputs(p, generate(p));
  const Finished f = w.run("run --memory 1MiB --M 200 --resume --json"_args + kNpyFiles);
  ASSERT_EQ(f.exit_code, 0) << f.err;
  EXPECT_FALSE(f.json()["files"]["resumed"]);
  EXPECT_TRUE(w.files().contains("lse.npy"));
}

TEST(CliResume, IsForRunsOverFiles) {
  const Problem p{.n_q = 20, .n_k = 20, .d = 4, .d_v = 4};
  const Workplace w;
  w.inputs(p, generate(p));
  expect_refused(w, {"run --M 200 --resume"_args + kNpyFiles, {"--resume", "--memory"}});
  expect_refused(w, {"run --M 200 --checkpoint-seconds 5"_args + kNpyFiles, {"--checkpoint-seconds", "--memory"}});
  expect_refused(w, {"run --memory 1MiB --checkpoint-seconds -1"_args + kNpyFiles, {"--checkpoint-seconds -1"}});
}

}  // namespace
}  // namespace redblue::test
