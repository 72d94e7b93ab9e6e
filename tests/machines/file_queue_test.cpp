#include "redblue/machines/files/file_queue.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <latch>
#include <thread>

namespace redblue::test {
namespace {

using machine::FileQueue;
using namespace std::chrono_literals;

/// All of a write may go to the next one, which begins in its page. A thread that waits for it then must wake: here the
/// one that lists, for it wants to read these bytes. (The blocks between are as many as the queue looks ahead over, so
/// that the write is not known to go on until it has room for itself alone.)
TEST(FileQueue, AWriteThatGoesToTheNextOneWakesWhoWaits) {
  const auto file = std::make_shared<const file::io::OpenFile>(
      file::io::OpenFile::temporary(std::filesystem::temp_directory_path().string(), 2 << 20));
  file::io::FileMap map;
  std::byte* const at = map.place(file, 0, 2 << 20);
  file::io::EngineOptions options{.kind = file::io::EngineKind::threads};
  options.fault = [](file::io::Request::Kind kind, index_t number) -> file::io::Fault {
    if (kind == file::io::Request::Kind::write && number < 3) std::this_thread::sleep_for(400ms);  // a slow disk
    return {};
  };
  const auto engine = make_engine(options);
  FileQueue queue(map, *engine, {.request = 64 << 10, .read = 256 << 10, .write = 2 << 20});
  machine::Storage s;
  s.data = at;
  s.dtype = DType::f32;
  s.writable = true;
  s.row_stride = 1;
  const auto block = [](index_t byte, index_t bytes) { return Block{SlowArray::O, 0, byte / 4, 0, {1, bytes / 4}}; };
  const auto apart = [&](index_t i, index_t byte) { return block(65536 + i * 8192 + byte, 4); };
  const Block first = block(0, 48), goes_on = block(100, 100), next = block(200, 4096), read = block(60, 100);
  std::latch listed(1), begun(1);
  std::thread lists([&] {
    queue.list_write(s, first);
    queue.list_write(s, goes_on);
    for (index_t i = 0; i < 63; ++i) queue.list_write(s, apart(i, 0));
    queue.list_write(s, next);
    for (index_t i = 0; i < 70; ++i) queue.list_write(s, apart(i, 4096));
    listed.count_down();
    begun.wait();
    std::this_thread::sleep_for(100ms);  // the machine waits for the first write meanwhile
    queue.list_read(s, read);
    queue.end_list();
  });
  listed.wait();
  int written = 0;
  const auto write = [&](const Block& b) {
    queue.write(s, b, [&](const machine::Piece&, const machine::Storage&) { ++written; });
  };
  write(first);
  write(goes_on);
  for (index_t i = 0; i < 63; ++i) write(apart(i, 0));
  begun.count_down();
  write(next);
  for (index_t i = 0; i < 70; ++i) write(apart(i, 4096));
  index_t found = 0;
  queue.read(s, read, [&](const machine::Piece& p, const machine::Storage&) { found += p.bytes; });
  lists.join();
  queue.finish();
  EXPECT_GE(written, 136);
  EXPECT_EQ(found, 100);
}

/// A file of numbers that is only read, in rows that lie apart, and how many requests it takes to read columns of it.
struct Columns {
  static constexpr index_t kStride = 10240;  // words from row to row: more than a request reads in vain
  std::filesystem::path path = std::filesystem::temp_directory_path() / ("redblue-columns-" + std::to_string(getpid()));
  index_t rows;

  explicit Columns(index_t n) : rows(n) {
    std::vector<float> numbers(static_cast<std::size_t>(rows * kStride));
    for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<float>(i);
    std::ofstream(path, std::ios::binary)
        .write(reinterpret_cast<const char*>(numbers.data()), std::ssize(numbers) * index_t{sizeof(float)});
  }
  ~Columns() { std::filesystem::remove(path); }
  Columns(const Columns&) = delete;
  Columns& operator=(const Columns&) = delete;

  file::io::Traffic read(index_t columns) const {
    file::io::FileMap map;
    machine::Storage s;
    s.data = map.place(std::make_shared<const file::io::OpenFile>(path.string()), 0, rows * kStride * 4);
    s.dtype = DType::f32;
    s.row_stride = kStride;
    const auto engine = file::io::make_engine({.kind = file::io::EngineKind::threads});
    FileQueue queue(map, *engine, {.request = 16 << 10, .read = 256 << 10, .write = 256 << 10});
    const auto column = [&](index_t c) { return Block{SlowArray::K, 0, 0, c, {rows, 1}}; };
    std::thread lists([&] {
      for (index_t c = 0; c < columns; ++c) queue.list_read(s, column(c));
      queue.end_list();
    });
    index_t wrong = 0;
    for (index_t c = 0; c < columns; ++c)
      queue.read(s, column(c), [&](const machine::Piece& p, const machine::Storage& words) {
        float number = -1;
        std::memcpy(&number, words.data + 4 * words.offset(0, p.block.row, p.block.col), 4);
        wrong += number != static_cast<float>(p.block.row * kStride + c) ? 1 : 0;
      });
    lists.join();
    queue.finish();
    EXPECT_EQ(wrong, 0);
    EXPECT_EQ(queue.traffic().read, rows * columns * 4);
    return engine->reads();
  }
};

TEST(FileQueue, PagesOfAFileThatIsOnlyReadServeAllColumnsWhileThereIsRoom) {
  const file::io::Traffic few = Columns(32).read(64);
  EXPECT_EQ(few.transfers, 32);
  EXPECT_EQ(few.moved, 32 * file::io::kPage);
  const file::io::Traffic many = Columns(100).read(3);  // more pages than the buffers have
  EXPECT_EQ(many.moved, many.transfers * file::io::kPage);
  EXPECT_LE(many.transfers, 300);
}

}  // namespace
}  // namespace redblue::test
