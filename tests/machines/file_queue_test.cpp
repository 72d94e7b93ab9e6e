#include "redblue/machines/files/file_queue.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
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

}  // namespace
}  // namespace redblue::test
