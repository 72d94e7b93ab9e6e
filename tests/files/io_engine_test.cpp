#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <thread>
#include <vector>

#include "redblue/files/io/engine.hpp"
#include "redblue/files/io/file_map.hpp"
#include "redblue/language/error.hpp"
#include "tests/files/support.hpp"

namespace redblue::file::io {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

/// Pages of memory, and the place in them where a byte of a file belongs.
class Pages {
 public:
  explicit Pages(index_t bytes) : memory_(static_cast<std::size_t>(bytes + 3 * kPage)) {}
  std::byte* at(index_t offset) {
    auto first = reinterpret_cast<std::uintptr_t>(memory_.data());
    first = (first + kPage - 1) / kPage * kPage;
    return reinterpret_cast<std::byte*>(first) + offset % kPage;
  }

 private:
  std::vector<std::byte> memory_;
};

std::vector<std::byte> random_bytes(std::size_t n) {
  std::mt19937 random(7);
  std::vector<std::byte> bytes(n);
  for (std::byte& b : bytes) b = static_cast<std::byte>(random());
  return bytes;
}

struct Kinds {
  EngineKind engine;
  PageCache cache;
};
std::vector<Kinds> kinds() {
  std::vector<Kinds> list;
  for (const EngineKind engine : {EngineKind::best, EngineKind::threads})
    for (const PageCache cache : {PageCache::bypassed_if_possible, PageCache::used}) list.push_back({engine, cache});
  return list;
}

TEST(Engine, ReadsAnyBytesOfAFile) {
  const TemporaryDirectory directory;
  const std::vector<std::byte> bytes = random_bytes(1'000'003);
  const std::string path = directory / "x";
  std::ofstream(path).write(reinterpret_cast<const char*>(bytes.data()), std::ssize(bytes));
  for (const Kinds& k : kinds()) {
    const OpenFile file(path, k.cache);
    const auto engine = make_engine({.kind = k.engine, .depth = 3});
    struct Case {
      index_t offset, bytes;
    };
    const std::vector<Case> cases{{0, 1},       {0, 4096},      {5, 100'000}, {4095, 2},
                                  {4096, 8192}, {1'000'000, 3}, {7, 0},       {0, 1'000'003}};
    std::vector<Pages> memory;
    std::vector<Request> requests(cases.size());
    for (const Case& c : cases) memory.emplace_back(c.bytes);
    for (std::size_t i = 0; i < cases.size(); ++i) {
      Request& r = requests[i];
      r.file = &file;
      r.offset = cases[i].offset;
      r.bytes = cases[i].bytes;
      r.buffer = memory[i].at(r.offset);
      engine->submit(r);
    }
    for (std::size_t i = 0; i < cases.size(); ++i) {
      engine->wait(requests[i]);
      EXPECT_EQ(
          std::memcmp(requests[i].buffer, bytes.data() + cases[i].offset, static_cast<std::size_t>(cases[i].bytes)), 0)
          << engine->name() << " case " << i;
    }
    EXPECT_EQ(engine->reads().asked, 1 + 4096 + 100'000 + 2 + 8192 + 3 + 1'000'003);
    EXPECT_GE(engine->reads().moved, engine->reads().asked);
    EXPECT_EQ(engine->reads().moved == engine->reads().asked, !file.direct());
  }
}

TEST(Engine, WritesAnyBytesOfAFileThatIsMade) {
  const TemporaryDirectory directory;
  std::vector<std::byte> bytes = random_bytes(700'001);
  for (const Kinds& k : kinds()) {
    const OpenFile file = OpenFile::in_place(directory / "out", std::ssize(bytes), k.cache);
    const auto engine = make_engine({.kind = k.engine, .depth = 2});
    // In pieces that share pages, one after the other.
    const std::vector<index_t> ends{1, 5000, 5003, 200'000, 600'000, 700'001};
    std::vector<Pages> memory;
    for (std::size_t i = 0; i < ends.size(); ++i) memory.emplace_back(ends[i]);
    std::vector<Request> requests(ends.size());
    for (std::size_t i = 0; i < ends.size(); ++i) {
      Request& r = requests[i];
      r.kind = Request::Kind::write;
      r.file = &file;
      r.offset = i == 0 ? 0 : ends[i - 1];
      r.bytes = ends[i] - r.offset;
      r.buffer = memory[i].at(r.offset);
      std::memcpy(r.buffer, bytes.data() + r.offset, static_cast<std::size_t>(r.bytes));
      engine->submit(r);
      engine->wait(r);
    }
    EXPECT_EQ(engine->writes().asked, 700'001);
    EXPECT_EQ(engine->writes().moved == 700'001, !file.direct());
    EXPECT_EQ(std::filesystem::file_size(directory / "out"), 700'001U);
    // It is read back in place, as a schedule that revisits its output does.
    Pages back(700'001);
    Request r;
    r.file = &file;
    r.bytes = 700'001;
    r.buffer = back.at(0);
    engine->submit(r);
    engine->wait(r);
    EXPECT_EQ(std::memcmp(r.buffer, bytes.data(), bytes.size()), 0);
    EXPECT_EQ(bytes_of(read_text(directory / "out")), bytes);
    std::filesystem::remove(directory / "out");  // what a file holds stays
  }
}

/// How many pages of a file the page cache holds.
std::ptrdiff_t pages_in_cache(const OpenFile& file) {
  const auto bytes = static_cast<std::size_t>(file.size());
  void* const at = mmap(nullptr, bytes, PROT_READ, MAP_SHARED, file.cached_descriptor(), 0);
  EXPECT_NE(at, MAP_FAILED);
  std::vector<unsigned char> pages((bytes + kPage - 1) / kPage);
  EXPECT_EQ(mincore(at, bytes, pages.data()), 0);
  munmap(at, bytes);
  return std::ranges::count_if(pages, [](unsigned char page) { return (page & 1) != 0; });
}

/// Are files of this directory on a disk, and the page cache beside them?
bool keeps_pages_apart(const TemporaryDirectory& directory) {
  struct statfs system{};
  return statfs((directory / "").c_str(), &system) == 0 &&
         (system.f_type == EXT4_SUPER_MAGIC || system.f_type == XFS_SUPER_MAGIC);
}

TEST(Engine, DirectWritesOfAnyBytesLeaveThePageCacheEmpty) {
  const TemporaryDirectory directory;
  constexpr index_t kSize = (4 << 20) + 1000, kPiece = 8192, kHeader = 128;
  const OpenFile file = OpenFile::in_place(directory / "out", kSize);
  if (!file.direct() || !keeps_pages_apart(directory)) GTEST_SKIP() << "no file system here passes by the page cache";
  const auto engine = make_engine();
  Pages memory(kPiece);
  for (index_t offset = kHeader; offset < kSize; offset += kPiece) {
    Request r;
    r.kind = Request::Kind::write;
    r.file = &file;
    r.offset = offset;
    r.bytes = std::min(kPiece, kSize - offset);
    r.buffer = memory.at(offset);
    engine->submit(r);
    engine->wait(r);
  }
  EXPECT_LE(pages_in_cache(file), 1);  // the last one, which is not whole
}

TEST(Engine, ReadsThroughThePageCacheLeaveItEmpty) {
  const TemporaryDirectory directory;
  if (!keeps_pages_apart(directory)) GTEST_SKIP() << "who knows what this file system keeps in memory";
  constexpr index_t kSize = 32 << 20, kPiece = 1 << 20;
  const OpenFile file = OpenFile::in_place(directory / "x", kSize, PageCache::used);
  const std::vector<std::byte> bytes = random_bytes(kPiece);
  for (index_t offset = 0; offset < kSize; offset += kPiece)
    ASSERT_EQ(pwrite(file.cached_descriptor(), bytes.data(), bytes.size(), offset), kPiece);
  fdatasync(file.cached_descriptor());  // fsync() does nothing in this program: killed_commit_test.cpp
  posix_fadvise(file.cached_descriptor(), 0, 0, POSIX_FADV_DONTNEED);
  const auto engine = make_engine();
  Pages memory(kPiece);
  for (index_t offset = 0; offset < kSize; offset += kPiece) {
    Request r;
    r.file = &file;
    r.offset = offset;
    r.bytes = kPiece;
    r.buffer = memory.at(offset);
    engine->submit(r);
    engine->wait(r);
  }
  EXPECT_LE(pages_in_cache(file), kSize / kPage / 8);  // another core may still hold some
}

TEST(Engine, AWriteWhosePagesCannotBeReadFails) {
  const TemporaryDirectory directory;
  const OpenFile file = OpenFile::in_place(directory / "out", 100'000);
  if (!file.direct()) GTEST_SKIP() << "no direct requests here";
  for (const EngineKind kind : {EngineKind::best, EngineKind::threads})
    for (const index_t nth : {0, 1}) {
      const auto engine =
          make_engine({.kind = kind, .fault = [nth](Request::Kind k, index_t number) {
                         return k == Request::Kind::read && number == nth ? Fault{.errno_value = EIO} : Fault{};
                       }});
      Pages memory(20'000);
      Request r;
      r.kind = Request::Kind::write;
      r.file = &file;
      r.offset = 5000;
      r.bytes = 20'000;
      r.buffer = memory.at(r.offset);
      engine->submit(r);
      EXPECT_THROW(engine->wait(r), IoError);
      EXPECT_EQ(engine->writes().transfers, 0);
    }
}

/// What a read of 100,000 bytes of a file of as many does under this hook.
std::string message_of_read(const EngineKind kind, const FaultHook& hook) {
  const TemporaryDirectory directory;
  const std::vector<std::byte> bytes = random_bytes(100'000);
  std::ofstream(directory / "x").write(reinterpret_cast<const char*>(bytes.data()), std::ssize(bytes));
  const OpenFile file(directory / "x");
  const auto engine = make_engine({.kind = kind, .fault = hook});
  Pages memory(100'000);
  Request r;
  r.file = &file;
  r.bytes = 100'000;
  r.buffer = memory.at(0);
  engine->submit(r);
  try {
    engine->wait(r);
  } catch (const IoError& e) {
    EXPECT_EQ(e.path, directory / "x");
    return e.what();
  }
  EXPECT_EQ(std::memcmp(r.buffer, bytes.data(), bytes.size()), 0);
  return "";
}

TEST(Engine, SaysWhichByteOfWhichFileFails) {
  for (const EngineKind kind : {EngineKind::best, EngineKind::threads}) {
    const auto fails = [](int error) {
      return [error](Request::Kind, index_t) { return Fault{.errno_value = error}; };
    };
    EXPECT_THAT(message_of_read(kind, fails(EIO)), AllOf(HasSubstr("cannot read 100000 bytes of '"),
                                                         HasSubstr("at byte 0: Input/output error; the disk")));
    // An interrupted call, and ones that move a few bytes, go on.
    EXPECT_EQ(message_of_read(kind,
                              [](Request::Kind, index_t number) {
                                return number == 0 ? Fault{.errno_value = EINTR} : Fault{.at_most = 8192};
                              }),
              "");
    EXPECT_THAT(message_of_read(kind,
                                [](Request::Kind, index_t number) {
                                  return number == 0 ? Fault{.at_most = 8192} : Fault{.at_most = 0};
                                }),
                HasSubstr("the file ends at byte 8192 and had 100000 when it was opened: something has truncated it"));
  }
}

TEST(Engine, SeesAFileThatIsTruncatedUnderWay) {
  const TemporaryDirectory directory;
  std::ofstream(directory / "x") << std::string(50'000, 'x');
  for (const EngineKind kind : {EngineKind::best, EngineKind::threads})
    for (const PageCache cache : {PageCache::bypassed_if_possible, PageCache::used}) {
      std::filesystem::resize_file(directory / "x", 50'000);
      const OpenFile file(directory / "x", cache);
      std::filesystem::resize_file(directory / "x", 10'000);
      const auto engine = make_engine({.kind = kind});
      Pages memory(50'000);
      Request r;
      r.file = &file;
      r.bytes = 50'000;
      r.buffer = memory.at(0);
      engine->submit(r);
      EXPECT_THROW(engine->wait(r), IoError);
      EXPECT_EQ(r.failed_at, 10'000);
    }
}

TEST(Engine, ARequestOutlivesTheThreadThatBeganIt) {
  const TemporaryDirectory directory;
  const std::vector<std::byte> bytes = random_bytes(50'000);
  write_text(directory / "x", {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  for (const Kinds k : kinds()) {
    const OpenFile file(directory / "x", k.cache);
    fdatasync(file.cached_descriptor());  // fsync() does nothing in this program: killed_commit_test.cpp
    const auto engine = make_engine({.kind = k.engine});
    for (int round = 0; round < 30; ++round) {
      posix_fadvise(file.cached_descriptor(), 0, 0, POSIX_FADV_DONTNEED);  // so that it takes a while
      Pages pages(std::ssize(bytes));
      Request r;
      r.file = &file;
      r.bytes = std::ssize(bytes);
      r.buffer = pages.at(0);
      std::thread([&] { engine->submit(r); }).join();
      engine->wait(r);
      ASSERT_EQ(std::memcmp(r.buffer, bytes.data(), bytes.size()), 0);
    }
  }
}

TEST(Engine, RefusesADepthThatIsNone) {
  EXPECT_THROW(make_engine({.depth = 0}), InvalidProblem);
  EXPECT_THROW(make_engine({.depth = 5000}), InvalidProblem);
}

TEST(FileMap, SaysWhichByteAnAddressStandsFor) {
  const TemporaryDirectory directory;
  std::ofstream(directory / "x") << std::string(10'000, 'x');
  const auto file = std::make_shared<const OpenFile>(directory / "x");
  FileMap map;
  const std::byte* const a = map.place(file, 100, 5000);
  const std::byte* const b = map.place(file, 4096, 10);
  std::vector<char> mapping(64);
  map.add(mapping.data(), 64, file, 9000);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(a) % kPage, 100U);
  ASSERT_TRUE(map.find(a + 4999).has_value());
  EXPECT_EQ(map.find(a + 4999)->offset, 5099);
  EXPECT_EQ(map.find(a + 4999)->bytes, 1);
  EXPECT_FALSE(map.find(a + 5000).has_value());
  EXPECT_FALSE(map.find(a - 1).has_value());
  EXPECT_EQ(map.find(b)->offset, 4096);
  EXPECT_EQ(map.find(mapping.data() + 3)->offset, 9003);
  EXPECT_FALSE(map.find(&map).has_value());
  EXPECT_THROW(map.add(mapping.data() + 63, 5, file, 0), InvalidProblem);
  EXPECT_THROW(map.place(file, 9000, 1001), InvalidProblem);
}

}  // namespace
}  // namespace redblue::file::io
