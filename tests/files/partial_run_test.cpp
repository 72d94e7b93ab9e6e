#include "redblue/files/partial/partial_run.hpp"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <memory>
#include <optional>

#include "support.hpp"

namespace redblue::file::partial {
namespace {

namespace fs = std::filesystem;

/// A run that writes letters into a file of 4 blocks of 4 bytes.
struct Letters {
  TemporaryDirectory dir;
  std::string in = dir / "in", out = dir / "out", partial = directory_of(out);
  std::vector<Fact> facts{{"M", "4096"}, {"schedule", "flash"}};
  std::string part = "f32 [3] at byte 0";

  Letters() { write_text(in, "input"); }
  std::unique_ptr<PartialRun> run(bool resume) const {
    return std::make_unique<PartialRun>(
        Options{.outputs = {out}, .inputs = {{"q", in, part}}, .facts = facts, .resume = resume, .block_bytes = 4});
  }
  static std::shared_ptr<const io::OpenFile> begin(PartialRun& run) {
    auto file = run.output(0, 16);
    run.begin();
    return file;
  }
  static void write(PartialRun& run, const io::OpenFile& file, index_t offset, const std::string& text) {
    run.before_write(file, offset, std::ssize(text));
    ASSERT_EQ(pwrite(file.cached_descriptor(), text.data(), text.size(), offset), std::ssize(text));
  }
  /// A run that was stopped: its checkpoint has "aaaabb", and "XXXcc" stands over that.
  void stop() const {
    const auto run = this->run(false);
    const auto file = begin(*run);
    write(*run, *file, 0, "aaaabb");
    run->checkpoint({0, 7});
    write(*run, *file, 3, "XXXcc");
    write(*run, *file, 3, "YYYdd");
  }
  std::string stopped() const { return read_text(partial + "/output-1").substr(0, 8); }
};

TEST(PartialRun, OutputsAppearAtTheEndAndNothingElseStays) {
  const Letters letters;
  {
    const auto run = letters.run(false);
    const auto file = Letters::begin(*run);
    Letters::write(*run, *file, 0, "abcdabcdabcdabcd");
    EXPECT_FALSE(fs::exists(letters.out));
    run->checkpoint({1, 0});
    run->finish();
  }
  EXPECT_EQ(read_text(letters.out), "abcdabcdabcdabcd");
  EXPECT_EQ(letters.dir.entries(), 2);
}

TEST(PartialRun, AnotherOneFindsTheFilesAsTheyWereAtTheLastCheckpoint) {
  const Letters letters;
  letters.stop();
  EXPECT_EQ(letters.stopped(), "aaaYYYdd");
  for (int again = 0; again < 2; ++again) {
    const auto run = letters.run(true);
    EXPECT_TRUE(run->resumed());
    EXPECT_EQ(run->position(), (Position{0, 7}));
    const auto file = Letters::begin(*run);
    EXPECT_EQ(letters.stopped(), std::string("aaaabb\0\0", 8));
    Letters::write(*run, *file, 2, "ZZZ");
  }
}

TEST(PartialRun, KeepsABlockOnceForEachCheckpointAndOnlyWhereItWasWritten) {
  const Letters letters;
  const auto run = letters.run(false);
  const auto file = Letters::begin(*run);
  Letters::write(*run, *file, 0, "aaaabb");
  EXPECT_EQ(run->kept_bytes(), 0);
  run->checkpoint({0, 1});
  Letters::write(*run, *file, 4, "ccccdddd");  // of its two blocks, one was written
  EXPECT_EQ(run->kept_bytes(), 4);
  Letters::write(*run, *file, 4, "eeee");
  EXPECT_EQ(run->kept_bytes(), 4);
  run->checkpoint({0, 2});
  Letters::write(*run, *file, 4, "ffffffff");
  EXPECT_EQ(run->kept_bytes(), 12);
  run->finish();
}

TEST(PartialRun, ALeftoverIsRefusedUnlessSomebodyAsksToGoOn) {
  const Letters letters;
  letters.stop();
  const std::string message = message_of<InvalidProblem>([&] { (void)letters.run(false); });
  EXPECT_CONTAINS(message, letters.partial);
  EXPECT_CONTAINS(message, "--resume");
  EXPECT_CONTAINS(message, "remove");
  EXPECT_EQ(letters.stopped(), "aaaYYYdd");
}

TEST(PartialRun, ARunThatDidNotBeginLeavesNothing) {
  const Letters letters;
  (void)letters.run(false)->output(0, 16);
  EXPECT_EQ(letters.dir.entries(), 1);
  (void)letters.run(true)->output(0, 16);
  EXPECT_EQ(letters.dir.entries(), 1);
}

TEST(PartialRun, AnotherRunIsRefusedByNameOfWhatDiffers) {
  Letters letters;
  letters.stop();
  letters.facts = {{"M", "8192"}, {"schedule", "flash"}};
  const std::string message = message_of<InvalidProblem>([&] { (void)letters.run(true); });
  EXPECT_CONTAINS(message, "M was 4096 and is 8192");
  EXPECT_FALSE(contains(message, "schedule"));
  letters.facts = {{"M", "4096"}, {"schedule", "flash"}};
  const auto run = letters.run(true);
  EXPECT_CONTAINS(message_of<InvalidProblem>([&] { run->require({{"tiles", "5"}}); }), "tiles was not given and is 5");
}

TEST(PartialRun, AFactThatIsMissingIsADifference) {
  Letters letters;
  letters.facts.emplace_back("softcap", "30");
  {
    const auto run = letters.run(false);
    run->require({{"tiles", "5"}});
    (void)Letters::begin(*run);
  }
  EXPECT_CONTAINS(message_of<InvalidProblem>([&] { letters.run(true)->require({}); }), "tiles was 5 and is not given");
  letters.facts.pop_back();
  EXPECT_CONTAINS(message_of<InvalidProblem>([&] { (void)letters.run(true); }), "softcap was 30 and is not given");
}

TEST(PartialRun, OtherBytesOfTheSameInputAreADifference) {
  Letters letters;
  letters.stop();
  letters.part = "f32 [3] at byte 12";
  const std::string message = message_of<InvalidProblem>([&] { (void)letters.run(true); });
  EXPECT_CONTAINS(message, "input q was '" + letters.in + "', f32 [3] at byte 0; 5 bytes");
  EXPECT_CONTAINS(message, "and is '" + letters.in + "', f32 [3] at byte 12; 5 bytes");
}

TEST(PartialRun, WhatIsNotItsOwnIsRefusedAndStays) {
  const Letters letters;
  const auto refusal = [&] {
    const std::string message = message_of<InvalidProblem>([&] { (void)letters.run(true); });
    EXPECT_CONTAINS(message, letters.partial);
    EXPECT_CONTAINS(message, "rename it, or name another output");
    return message;
  };
  write_text(letters.partial, "a file");
  EXPECT_CONTAINS(refusal(), "is no directory");
  EXPECT_EQ(read_text(letters.partial), "a file");
  fs::remove(letters.partial);

  fs::create_directories(letters.partial + "/photos");
  write_text(letters.partial + "/photos/mine", "mine");
  EXPECT_CONTAINS(refusal(), "holds 'photos'");
  write_text(letters.partial + "/lock", "");  // as a run has it
  EXPECT_CONTAINS(refusal(), "holds 'photos'");
  EXPECT_EQ(read_text(letters.partial + "/photos/mine"), "mine");
  fs::remove_all(letters.partial + "/photos");
  fs::rename(letters.partial + "/lock", letters.partial + "/workspace");
  EXPECT_CONTAINS(refusal(), "holds 'workspace'");
  fs::remove(letters.partial + "/workspace");

  (void)letters.run(false)->output(0, 16);  // an empty one holds nothing to lose
  EXPECT_FALSE(fs::exists(letters.partial));
}

TEST(PartialRun, ADirectoryWithoutACheckpointIsTaken) {
  const Letters letters;
  fs::create_directory(letters.partial);
  for (const char* const name : {"lock", "undo.log", "output-1", "progress.json.tmp"})
    write_text(letters.partial + "/" + name, "x");
  (void)Letters::begin(*letters.run(false));
  EXPECT_EQ(letters.stopped(), std::string(8, '\0'));
}

TEST(PartialRun, RemovesNothingThatSomebodyElsePutThere) {
  const Letters letters;
  letters.stop();
  fs::create_directory(letters.partial + "/photos");
  write_text(letters.partial + "/output-1.bak", "mine");
  const auto run = letters.run(true);
  (void)Letters::begin(*run);
  run->finish();
  EXPECT_TRUE(fs::exists(letters.out));
  EXPECT_EQ(read_text(letters.partial + "/output-1.bak"), "mine");
  EXPECT_TRUE(fs::is_directory(letters.partial + "/photos"));
  EXPECT_EQ(std::distance(fs::directory_iterator(letters.partial), fs::directory_iterator()), 2);
}

TEST(PartialRun, AnInputThatChangedIsRefusedAndNamed) {
  const Letters letters;
  letters.stop();
  write_text(letters.in, "tupni");  // of the same size
  EXPECT_CONTAINS(message_of<InvalidProblem>([&] { (void)letters.run(true); }), letters.in);

  const Letters others;
  const auto run = others.run(false);
  (void)Letters::begin(*run);
  write_text(others.in, "tupni");
  for (const auto& end :
       {std::function<void()>([&] { run->checkpoint({0, 1}); }), std::function<void()>([&] { run->finish(); })}) {
    const std::string message = message_of<IoError>(end);
    EXPECT_CONTAINS(message, others.in);
    EXPECT_CONTAINS(message, "changed while the run read it");
  }
  EXPECT_FALSE(fs::exists(others.out));
}

TEST(PartialRun, WhatWasWrittenIsCheckedByItsChecksums) {
  const Letters letters;
  letters.stop();
  const std::string path = letters.partial + "/output-1";
  std::string text = read_text(path);
  text[0] = 'b';  // in a block that the undo log holds: it is put back
  write_text(path, text);
  (void)Letters::begin(*letters.run(true));
  text[0] = 'b';
  text[4] = 'x';
  write_text(path, text);
  const auto run = letters.run(true);
  const std::string message = message_of<IoError>([&] { (void)Letters::begin(*run); });
  EXPECT_CONTAINS(message, path);
  EXPECT_CONTAINS(message, "bytes 0 to 4");
}

TEST(PartialRun, AFileThatWasCutIsRefused) {
  const Letters letters;
  letters.stop();
  fs::resize_file(letters.partial + "/output-1", 10);
  const auto run = letters.run(true);
  EXPECT_CONTAINS(message_of<IoError>([&] { (void)Letters::begin(*run); }), "should have 16 bytes and has 10");
}

TEST(PartialRun, ADamagedStateIsRefused) {
  const Letters letters;
  letters.stop();
  const std::string path = letters.partial + "/progress.json", text = read_text(path);
  for (const std::string& damaged : {text.substr(0, text.size() / 2), std::string("{}"), std::string()}) {
    write_text(path, damaged);
    EXPECT_CONTAINS(message_of<IoError>([&] { (void)letters.run(true); }), path);
  }
}

TEST(PartialRun, ARecordOfTheUndoLogThatIsNotWholeEndsIt) {
  const Letters letters;
  letters.stop();
  const std::string path = letters.partial + "/undo.log";
  const std::string file = read_text(letters.partial + "/output-1");
  const std::string log = read_text(path);
  ASSERT_GT(log.size(), 0U);
  for (std::size_t size = 0; size < log.size(); ++size) {
    write_text(letters.partial + "/output-1", file);
    write_text(path, log.substr(0, size));
    const auto run = letters.run(true);
    EXPECT_THROW((void)Letters::begin(*run), IoError) << size;  // the block was written over, so this cannot happen
  }
}

TEST(PartialRun, TwoProcessesDoNotMeetInOneDirectory) {
  const Letters letters;
  const auto run = letters.run(false);
  (void)Letters::begin(*run);
  EXPECT_CONTAINS(message_of<InvalidProblem>([&] { (void)letters.run(true); }), "another process");
}

TEST(PartialRun, AllThatWasMissingAreNames) {
  const Letters letters;
  const pid_t child = fork();
  if (child == 0) {  // dies between its last checkpoint and the names
    const auto run = letters.run(false);
    const auto file = Letters::begin(*run);
    Letters::write(*run, *file, 0, "abcdabcdabcdabcd");
    fs::create_directory(letters.out);  // a name that cannot be taken
    try {
      run->finish();
    } catch (const IoError&) {
      _exit(0);
    }
    _exit(1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  fs::remove(letters.out);
  const auto run = letters.run(true);
  EXPECT_TRUE(run->complete());
  run->finish();
  EXPECT_EQ(read_text(letters.out), "abcdabcdabcdabcd");
}

}  // namespace
}  // namespace redblue::file::partial
