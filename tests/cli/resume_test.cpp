#include <unistd.h>

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
