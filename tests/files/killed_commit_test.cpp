#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <list>
#include <optional>

#include "redblue/files/atomic_file.hpp"
#include "support.hpp"

/// The system calls of a commit, replaced for this program: a process can be killed before any of them, and fallocate
/// can answer as another file system would.
namespace {
int calls_to_live = -1;  ///< -1: for ever
int fallocate_errno = 0;

void count_call() {
  if (calls_to_live >= 0 && calls_to_live-- == 0) raise(SIGKILL);
}
}  // namespace

// NOLINTBEGIN(readability-inconsistent-declaration-parameter-name,bugprone-reserved-identifier)
extern "C" {
int linkat(int from_directory, const char* from, int to_directory, const char* to, int flags) noexcept {
  count_call();
  return static_cast<int>(syscall(SYS_linkat, from_directory, from, to_directory, to, flags));
}
int rename(const char* from, const char* to) noexcept {
  count_call();
  return static_cast<int>(syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0));
}
int unlink(const char* name) noexcept {
  count_call();
  return static_cast<int>(syscall(SYS_unlinkat, AT_FDCWD, name, 0));
}
int fsync(int) {  // what the kernel has outlives the process
  count_call();
  return 0;
}
int flock(int fd, int operation) noexcept {
  count_call();
  return static_cast<int>(syscall(SYS_flock, fd, operation));
}
int fallocate(int fd, int mode, off_t offset, off_t bytes) {
  if (fallocate_errno != 0) {
    errno = fallocate_errno;
    return -1;
  }
  return static_cast<int>(syscall(SYS_fallocate, fd, mode, offset, bytes));
}
}
// NOLINTEND(readability-inconsistent-declaration-parameter-name,bugprone-reserved-identifier)

namespace redblue::file {
namespace {

namespace fs = std::filesystem;
using Temporary = AtomicFile::Temporary;

/// Runs `work` in a child that is killed before its system call number `calls`. Was it? (Or did it come to its end?)
template <class Work>
bool is_killed(int calls, const Work& work) {
  const pid_t child = fork();
  if (child == 0) {
    calls_to_live = calls;
    work();
    _exit(0);
  }
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFSIGNALED(status) || WEXITSTATUS(status) == 0);
  return WIFSIGNALED(status);
}

std::ptrdiff_t hidden_files(const TemporaryDirectory& dir) {
  std::ptrdiff_t count = 0;
  for (const auto& entry : fs::directory_iterator(dir / ""))
    count += entry.path().filename().string()[0] == '.' ? 1 : 0;
  return count;
}

bool has_unnamed_files(const TemporaryDirectory& dir) {
  const int fd = open((dir / "").c_str(), O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600);
  if (fd >= 0) close(fd);
  return fd >= 0;
}

const std::vector<std::string> kNames = {"dq.npy", "dk.npy", "dv.npy"};

/// The commit of the first `files` names, killed before each of its system calls in turn.
struct Killed : testing::TestWithParam<std::tuple<Temporary, bool, std::size_t>> {
  template <class Check>
  void at_every_call(const Check& check) {
    const auto temporary = std::get<0>(GetParam());
    const bool old_there = std::get<1>(GetParam());
    const std::size_t files = std::get<2>(GetParam());
    int calls = 0;
    for (bool killed = true; killed; ++calls) {
      SCOPED_TRACE("killed before call " + std::to_string(calls));
      const TemporaryDirectory dir;
      if (old_there)
        for (std::size_t i = 0; i < files; ++i) write_text(dir / kNames[i], "old");
      killed = is_killed(calls, [&] {
        std::list<AtomicFile> all;
        std::vector<AtomicFile*> pointers;
        for (std::size_t i = 0; i < files; ++i) {
          all.emplace_back(dir / kNames[i], temporary).write("new");
          pointers.push_back(&all.back());
        }
        AtomicFile::commit_together(pointers);
      });
      std::vector<std::string> found;
      for (std::size_t i = 0; i < files; ++i)
        found.push_back(fs::exists(dir / kNames[i]) ? read_text(dir / kNames[i]) : "missing");
      check(dir, found, killed);
    }
    EXPECT_GT(calls, 3 * static_cast<int>(files)) << "the calls are not those of this program";
  }
};
INSTANTIATE_TEST_SUITE_P(All, Killed,
                         testing::Combine(testing::Values(Temporary::unnamed_if_possible, Temporary::named),
                                          testing::Bool(), testing::Values(1u, 2u, 3u)));

TEST_P(Killed, EachFileIsWholeAndNoNewOneStandsBesideAnOldOne) {
  const bool old_there = std::get<1>(GetParam());
  const std::size_t files = std::get<2>(GetParam());
  at_every_call([&](const auto&, const auto& found, bool killed) {
    std::size_t old = 0, fresh = 0, missing = 0;
    for (const std::string& text : found) ++(text == "old" ? old : text == "new" ? fresh : missing);
    for (const std::string& text : found) EXPECT_TRUE(text == "old" || text == "new" || text == "missing") << text;
    EXPECT_TRUE(old == 0 || fresh == 0) << old << " old, " << fresh << " new";
    EXPECT_FALSE(old_there && found[0] == "missing");
    EXPECT_TRUE(killed || fresh == files);
  });
}

TEST_P(Killed, WhatIsLeftGoesWithTheNextRun) {
  const std::size_t files = std::get<2>(GetParam());
  at_every_call([&](const TemporaryDirectory& dir, const auto& found, bool) {
    for (std::size_t i = 0; i < files; ++i) AtomicFile(dir / kNames[i]).write("never committed");
    EXPECT_EQ(hidden_files(dir), 0);
    for (std::size_t i = 0; i < files; ++i)
      EXPECT_EQ(fs::exists(dir / kNames[i]) ? read_text(dir / kNames[i]) : "missing", found[i]);
  });
}

TEST_P(Killed, NothingIsLeftWhereNothingIsReplaced) {
  const auto temporary = std::get<0>(GetParam());
  const bool old_there = std::get<1>(GetParam());
  at_every_call([&](const TemporaryDirectory& dir, const auto&, bool) {
    if (temporary == Temporary::unnamed_if_possible && !old_there && has_unnamed_files(dir))
      EXPECT_EQ(hidden_files(dir), 0);
    else
      EXPECT_LE(hidden_files(dir), temporary == Temporary::named ? std::ptrdiff_t(kNames.size()) : 1);
  });
}

TEST(Leftovers, OfTheLivingStay) {
  const TemporaryDirectory dir;
  AtomicFile first(dir / "x", Temporary::named);
  first.write("first");
  AtomicFile second(dir / "x", Temporary::named);
  second.write("second");
  EXPECT_EQ(hidden_files(dir), 2);
  second.commit();
  first.commit();
  EXPECT_EQ(read_text(dir / "x"), "first");
  EXPECT_EQ(dir.entries(), 1);
}

TEST(Leftovers, OfAnotherTargetStay) {
  const TemporaryDirectory dir;
  EXPECT_TRUE(is_killed(0, [&] {
    AtomicFile out(dir / "x", Temporary::named);  // killed when it asks for its lock
  }));
  EXPECT_EQ(dir.entries(), 1);
  AtomicFile(dir / "y").write("abc");
  EXPECT_EQ(dir.entries(), 1);
  AtomicFile(dir / "x").write("abc");
  EXPECT_EQ(dir.entries(), 0);
}

TEST(Leftovers, OfALongNameAreFoundToo) {
  const TemporaryDirectory dir;
  const std::string name(255, 'x');
  EXPECT_TRUE(is_killed(0, [&] { AtomicFile out(dir / name, Temporary::named); }));
  EXPECT_EQ(dir.entries(), 1);
  AtomicFile out(dir / name, Temporary::named);
  out.write("abc");
  out.commit();
  EXPECT_EQ(dir.entries(), 1);
  EXPECT_EQ(read_text(dir / name), "abc");
}

/// fallocate fails with this error while the object lives.
struct FallocateFails {
  explicit FallocateFails(int error) { fallocate_errno = error; }
  ~FallocateFails() { fallocate_errno = 0; }
  FallocateFails(const FallocateFails&) = delete;
  FallocateFails& operator=(const FallocateFails&) = delete;
};

TEST(Reserve, AFullDiskIsReportedBeforeAnythingIsWritten) {
  const TemporaryDirectory dir;
  AtomicFile out(dir / "x");
  const FallocateFails full(ENOSPC);
  try {
    out.reserve(12345);
    FAIL();
  } catch (const IoError& e) {
    EXPECT_EQ(e.errno_value, ENOSPC);
    EXPECT_EQ(e.path, dir / "x");
    EXPECT_CONTAINS(std::string(e.what()), "cannot reserve 12345 bytes for '" + (dir / "x") + "': No space left");
  }
  EXPECT_THROW(out.write("x"), IoError);
  EXPECT_EQ(dir.entries(), 0);
}

TEST(Reserve, FileSystemsThatCannotAreLeftToReportIt) {
  for (const int error : {EOPNOTSUPP, ENOSYS}) {
    const TemporaryDirectory dir;
    AtomicFile out(dir / "x");
    const FallocateFails unsupported(error);
    out.reserve(12345);
    out.write("some bytes");
    out.commit();
    EXPECT_EQ(read_text(dir / "x"), "some bytes");
  }
}

TEST(Reserve, LeavesTheFileAsLongAsWhatIsWritten) {
  const TemporaryDirectory dir;
  for (const index_t bytes : {0, 3, 10, 100000}) {
    AtomicFile out(dir / "x");
    out.reserve(bytes);
    EXPECT_EQ(out.bytes_written(), 0);
    out.write("some bytes");
    out.commit();
    EXPECT_EQ(read_text(dir / "x"), "some bytes") << bytes;
  }
}

}  // namespace
}  // namespace redblue::file
