#include "redblue/files/mapped_file.hpp"

#include <sys/stat.h>

#include <cerrno>
#include <cstdio>

#include "support.hpp"

namespace redblue::file {
namespace {

TEST(MappedFile, ShowsTheBytesOfTheFile) {
  const TemporaryDirectory dir;
  write_text(dir / "x", "some bytes");
  const MappedFile file(dir / "x");
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()), "some bytes");
  EXPECT_EQ(file.path(), dir / "x");
}

TEST(MappedFile, TakesAFileOfLengthZero) {
  const TemporaryDirectory dir;
  write_text(dir / "x", "");
  EXPECT_TRUE(MappedFile(dir / "x").bytes().empty());
}

TEST(MappedFile, OutlivesTheNameOfTheFile) {
  const TemporaryDirectory dir;
  write_text(dir / "x", "abc");
  const MappedFile file(dir / "x");
  std::remove((dir / "x").c_str());
  EXPECT_EQ(static_cast<char>(file.bytes()[2]), 'c');
}

TEST(MappedFile, NamesAMissingFileAndTheErrno) {
  try {
    MappedFile("/nowhere/q.npy");
    FAIL();
  } catch (const IoError& e) {
    EXPECT_EQ(std::string(e.what()), "cannot open '/nowhere/q.npy': No such file or directory");
    EXPECT_EQ(e.path, "/nowhere/q.npy");
    EXPECT_EQ(e.errno_value, ENOENT);
  }
}

TEST(MappedFile, SaysThatADirectoryIsNoFile) {
  const TemporaryDirectory dir;
  EXPECT_CONTAINS(message_of<IoError>([&] { MappedFile file(dir / ""); }), "it is a directory");
}

TEST(MappedFile, RefusesPipesAndDevicesWithoutWaiting) {
  const TemporaryDirectory dir;
  ASSERT_EQ(mkfifo((dir / "pipe").c_str(), 0600), 0);
  EXPECT_CONTAINS(message_of<IoError>([&] { MappedFile file(dir / "pipe"); }), "not a regular file");
  EXPECT_CONTAINS(message_of<IoError>([&] { MappedFile file("/dev/zero"); }), "not a regular file");
}

TEST(MappedFile, ReportsAFileUsedAsDirectory) {
  const TemporaryDirectory dir;
  write_text(dir / "x", "abc");
  EXPECT_CONTAINS(message_of<IoError>([&] { MappedFile file(dir / "x/y"); }), "Not a directory");
}

}  // namespace
}  // namespace redblue::file
