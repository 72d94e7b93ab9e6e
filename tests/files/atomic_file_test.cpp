#include "redblue/files/atomic_file.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <functional>

#include "redblue/files/npy.hpp"
#include "redblue/files/safetensors.hpp"
#include "support.hpp"

namespace redblue::file {
namespace {

namespace fs = std::filesystem;

/// No file may grow beyond this, as on a full disk, while the object lives.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) : old_handler_(signal(SIGXFSZ, SIG_IGN)) {
    getrlimit(RLIMIT_FSIZE, &old_);
    rlimit limit = old_;
    limit.rlim_cur = bytes;
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() {
    setrlimit(RLIMIT_FSIZE, &old_);
    signal(SIGXFSZ, old_handler_);
  }

 private:
  rlimit old_{};
  void (*old_handler_)(int);
};

class AtomicFileOf : public testing::TestWithParam<AtomicFile::Temporary> {
 protected:
  const TemporaryDirectory dir;
};
INSTANTIATE_TEST_SUITE_P(Both, AtomicFileOf,
                         testing::Values(AtomicFile::Temporary::unnamed_if_possible, AtomicFile::Temporary::named),
                         [](const auto& info) {
                           return info.param == AtomicFile::Temporary::named ? "NamedTemporary" : "UnnamedTemporary";
                         });

TEST_P(AtomicFileOf, AppearsAtCommitAndNotBefore) {
  AtomicFile out(dir / "x", GetParam());
  out.write("some ");
  out.write("bytes");
  EXPECT_EQ(out.bytes_written(), 10);
  EXPECT_FALSE(fs::exists(dir / "x"));
  out.commit();
  EXPECT_EQ(read_text(dir / "x"), "some bytes");
  EXPECT_EQ(dir.entries(), 1);
}

TEST_P(AtomicFileOf, LeavesNothingWithoutCommit) {
  {
    AtomicFile out(dir / "x", GetParam());
    out.write("some bytes");
  }
  EXPECT_EQ(dir.entries(), 0);
}

TEST_P(AtomicFileOf, LeavesTheOldContentsWithoutCommit) {
  write_text(dir / "x", "old");
  {
    AtomicFile(dir / "x", GetParam()).write("new");
  }
  EXPECT_EQ(read_text(dir / "x"), "old");
  EXPECT_EQ(dir.entries(), 1);
}

TEST_P(AtomicFileOf, ReplacesTheOldContentsAtCommit) {
  write_text(dir / "x", "old and longer");
  AtomicFile out(dir / "x", GetParam());
  out.write("new");
  out.commit();
  EXPECT_EQ(read_text(dir / "x"), "new");
  EXPECT_EQ(dir.entries(), 1);
}

TEST_P(AtomicFileOf, ManyForOneTargetDoNotDisturbEachOther) {
  AtomicFile a(dir / "x", GetParam()), b(dir / "x", GetParam()), c(dir / "y", GetParam());
  a.write("a");
  b.write("b");
  c.write("c");
  a.commit();
  EXPECT_EQ(read_text(dir / "x"), "a");
  b.commit();
  EXPECT_EQ(read_text(dir / "x"), "b");
  c.commit();
  EXPECT_EQ(dir.entries(), 2);
}

TEST_P(AtomicFileOf, HasTheModeOfAnyNewFile) {
  const mode_t old = umask(027);
  AtomicFile out(dir / "x", GetParam());
  out.commit();
  umask(old);
  struct stat status{};
  ASSERT_EQ(stat((dir / "x").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0640u);
}

TEST_P(AtomicFileOf, AFailedWriteNamesFileAndErrnoAndLeavesNothing) {
  AtomicFile out(dir / "x", GetParam());
  try {
    const FileSizeLimit limit(5);
    out.write("some bytes");
    FAIL();
  } catch (const IoError& e) {
    EXPECT_EQ(e.errno_value, EFBIG);
    EXPECT_EQ(e.path, dir / "x");
    EXPECT_CONTAINS(std::string(e.what()), "cannot write '" + (dir / "x") + "': File too large");
  }
  EXPECT_EQ(dir.entries(), 0);
  EXPECT_THROW(out.write("x"), IoError);
  EXPECT_THROW(out.commit(), IoError) << "a file with a gap must not be committed";
  EXPECT_EQ(dir.entries(), 0);
}

TEST_P(AtomicFileOf, AFailedRenameLeavesNothing) {
  AtomicFile out(dir / "x", GetParam());
  out.write("some bytes");
  fs::create_directory(dir / "x");
  EXPECT_CONTAINS(message_of<IoError>([&] { out.commit(); }), "Is a directory");
  EXPECT_EQ(dir.entries(), 1);
}

TEST_P(AtomicFileOf, AVanishedDirectoryIsAnErrorAtCommit) {
  fs::create_directory(dir / "sub");
  AtomicFile out(dir / "sub/x", GetParam());
  out.write("some bytes");
  fs::remove_all(dir / "sub");
  EXPECT_CONTAINS(message_of<IoError>([&] { out.commit(); }), "No such file or directory");
}

TEST_P(AtomicFileOf, IsCommittedOnce) {
  AtomicFile out(dir / "x", GetParam());
  out.commit();
  EXPECT_THROW(out.commit(), IoError);
  EXPECT_THROW(out.write("x"), IoError);
  EXPECT_EQ(read_text(dir / "x"), "");
}

TEST_P(AtomicFileOf, AKilledProcessLeavesNoOutput) {
  const pid_t child = fork();
  if (child == 0) {
    AtomicFile out(dir / "x", GetParam());
    out.write("some bytes");
    raise(SIGKILL);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status));
  EXPECT_FALSE(fs::exists(dir / "x"));
  const int probe = open((dir / "").c_str(), O_TMPFILE | O_WRONLY, 0600);
  if (probe >= 0) close(probe);
  const bool unnamed = probe >= 0 && GetParam() == AtomicFile::Temporary::unnamed_if_possible;
  EXPECT_EQ(dir.entries(), unnamed ? 0 : 1);
}

std::string message_for(const std::string& path) {
  return message_of<IoError>([&] { AtomicFile out(path); });
}

TEST(AtomicFile, RefusesDirectoriesThatAreNone) {
  const TemporaryDirectory dir;
  write_text(dir / "file", "abc");
  EXPECT_CONTAINS(message_for("/nowhere/at/all/x"),
                  "cannot create a file in '/nowhere/at/all' for '/nowhere/at/all/x': No such file");
  EXPECT_CONTAINS(message_for(dir / "file/x"), "Not a directory");
  EXPECT_CONTAINS(message_for("/proc/x"), "cannot create a file in '/proc' for '/proc/x'");
}

TEST(AtomicFile, RefusesTargetsThatAreDirectories) {
  const TemporaryDirectory dir;
  fs::create_directory(dir / "sub");
  EXPECT_CONTAINS(message_for(dir / "sub"), "it is a directory");
  EXPECT_CONTAINS(message_for(dir / "sub/"), "it is a directory");
  EXPECT_CONTAINS(message_for(dir / "missing/"), "it is a directory");
  EXPECT_CONTAINS(message_for(""), "cannot write ''");
}

TEST(AtomicFile, RefusesToReplaceADevice) {
  for (const char* device : {"/dev/null", "/dev/full"}) {
    EXPECT_CONTAINS(message_for(device), "not a regular file");
    EXPECT_TRUE(fs::is_character_file(device));
  }
}

TEST(AtomicFile, AFullDiskIsReportedAsSuch) {
  const int full = open("/dev/full", O_WRONLY | O_CLOEXEC);
  if (full < 0) GTEST_SKIP() << "no /dev/full";
  EXPECT_EQ(detail::write_all(full, noise(10)), ENOSPC);
  close(full);
}

TEST(AtomicFile, WritesAPathWithoutDirectory) {
  const TemporaryDirectory dir;
  const fs::path before = fs::current_path();
  fs::current_path(dir / "");
  AtomicFile out("x");
  out.write("abc");
  out.commit();
  fs::current_path(before);
  EXPECT_EQ(read_text(dir / "x"), "abc");
}

TEST(AtomicFile, FailedTensorWritesLeaveNeitherOutputNorTemporary) {
  const TemporaryDirectory dir;
  write_text(dir / "old.npy", "old");
  const auto data = noise(100000);
  const FileTensor plain = c_order_tensor(DType::f32, {25000}, data.data());
  const FileTensor strided{DType::f32, {100, 250}, {1, 100}, data.data(), false};
  int errors = 0;
  for (const rlim_t bytes : {rlim_t{0}, rlim_t{7}, rlim_t{128}, rlim_t{70000}})
    for (const FileTensor& t : {plain, strided}) {
      const FileSizeLimit limit(bytes);
      for (const auto& write : std::vector<std::function<void()>>{[&] { write_npy(dir / "x.npy", t); },
                                                                  [&] { write_npy(dir / "old.npy", t); },
                                                                  [&] { write_safetensors(dir / "x", {{"q", t}}); }}) {
        try {
          write();
        } catch (const IoError& e) {
          errors += e.errno_value == EFBIG ? 1 : 0;
        }
      }
    }
  EXPECT_EQ(errors, 4 * 2 * 3);
  EXPECT_EQ(dir.entries(), 1);
  EXPECT_EQ(read_text(dir / "old.npy"), "old");
}

TEST(AtomicFile, SeveralFilesCanBeCommittedTogether) {
  const TemporaryDirectory dir;
  const float x = 1;
  AtomicFile o(dir / "o.npy"), lse(dir / "lse.npy");
  write_npy(o, c_order_tensor(DType::f32, {}, &x));
  write_npy(lse, c_order_tensor(DType::f32, {}, &x));
  EXPECT_FALSE(fs::exists(dir / "o.npy"));
  o.commit();
  lse.commit();
  EXPECT_EQ(read_text(dir / "o.npy"), read_text(dir / "lse.npy"));
}

TEST(SameFile, SeesThroughLinksAndSpellings) {
  const TemporaryDirectory dir;
  write_text(dir / "a", "abc");
  write_text(dir / "b", "abc");
  fs::create_hard_link(dir / "a", dir / "hard");
  fs::create_symlink(dir / "a", dir / "soft");
  fs::create_directory(dir / "sub");
  EXPECT_TRUE(same_file(dir / "a", dir / "a"));
  EXPECT_TRUE(same_file(dir / "a", dir / "hard"));
  EXPECT_TRUE(same_file(dir / "a", dir / "soft"));
  EXPECT_TRUE(same_file(dir / "a", dir / "sub/.././a"));
  EXPECT_FALSE(same_file(dir / "a", dir / "b"));
  EXPECT_FALSE(same_file(dir / "a", dir / "missing"));
}

TEST(SameFile, ComparesTheNamesOfFilesThatAreNotThereYet) {
  const TemporaryDirectory dir;
  fs::create_directory(dir / "sub");
  fs::create_directory_symlink(dir / "sub", dir / "link");
  EXPECT_TRUE(same_file(dir / "x", dir / "./x"));
  EXPECT_TRUE(same_file(dir / "sub/x", dir / "link/x"));
  EXPECT_FALSE(same_file(dir / "x", dir / "y"));
}

}  // namespace
}  // namespace redblue::file
