// Reads a file by redblue's engine of requests, for bench/disk.py, which compares it with fio. Requests have one size,
// DEPTH of them are under way, and the program waits for them in order, as a run does.
//   g++ -O2 -std=c++20 -I. bench/disk.cpp build/release/libredblue.a -lfmt -luring -lpthread -o build/disk
//   build/disk FILE REQUEST_BYTES DEPTH order|blocks SECONDS      (prints bytes per second and the engine's name)
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include "redblue/files/io/engine.hpp"

namespace io = redblue::file::io;
using redblue::index_t;

int main(int argc, char** argv) {
  if (argc != 6) return std::fputs("disk FILE REQUEST_BYTES DEPTH order|blocks SECONDS\n", stderr), 2;
  const io::OpenFile file(argv[1]);
  const index_t request = std::atoll(argv[2]);
  const int depth = std::atoi(argv[3]);
  const bool in_order = std::string(argv[4]) == "order";
  const double most_seconds = std::atof(argv[5]);
  const index_t blocks = file.size() / request;
  const auto engine = io::make_engine({.depth = depth});
  auto* const memory =
      static_cast<std::byte*>(std::aligned_alloc(io::kPage, static_cast<std::size_t>(request * depth)));
  std::vector<io::Request> requests(static_cast<std::size_t>(depth));
  std::mt19937_64 random(1);
  using Clock = std::chrono::steady_clock;
  const auto start = Clock::now();
  const auto seconds = [&] { return std::chrono::duration<double>(Clock::now() - start).count(); };
  index_t count = 0;
  for (; seconds() < most_seconds; ++count) {
    const index_t slot = count % depth;
    io::Request& r = requests[static_cast<std::size_t>(slot)];
    engine->wait(r);
    r.file = &file;
    r.bytes = request;
    r.buffer = memory + slot * request;
    r.offset =
        (in_order ? count % blocks : static_cast<index_t>(random() % static_cast<std::uint64_t>(blocks))) * request;
    engine->submit(r);
  }
  for (io::Request& r : requests) engine->wait(r);
  std::printf("%.6g %s%s\n", static_cast<double>(count * request) / seconds(), std::string(engine->name()).c_str(),
              file.direct() ? " direct" : "");
  std::free(memory);
}
