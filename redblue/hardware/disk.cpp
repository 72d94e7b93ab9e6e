#include "redblue/hardware/disk.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <numeric>
#include <random>
#include <sstream>
#include <tuple>
#include <utility>

#include "redblue/files/io/engine.hpp"
#include "redblue/files/text.hpp"
#include "redblue/hardware/load.hpp"
#include "redblue/language/error.hpp"

namespace redblue {

namespace {

using file::io::Engine;
using file::io::kPage;
using file::io::OpenFile;
using file::io::Request;
using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

/// Memory that requests fill, aligned to pages.
class PageBuffer {
 public:
  explicit PageBuffer(std::int64_t bytes)
      : data_(static_cast<std::byte*>(std::aligned_alloc(kPage, static_cast<std::size_t>(bytes)))) {
    if (data_ == nullptr)
      throw MemoryError(fmt::format("no {} bytes of memory for requests to a disk", bytes), bytes, 0);
    // A disk may shorten bytes that follow a rule.
    std::mt19937_64 random(1);
    for (std::int64_t i = 0; i < bytes; i += 8) {
      const std::uint64_t word = random();
      std::memcpy(data_.get() + i, &word, sizeof word);
    }
  }
  std::byte* data() const { return data_.get(); }

 private:
  struct Free {
    void operator()(std::byte* p) const { std::free(p); }
  };
  std::unique_ptr<std::byte, Free> data_;
};

/// Keeps requests of one size under way, each in memory of its own, and waits for them in order, as a run does.
class Stream {
 public:
  Stream(Engine& engine, const OpenFile& file, const PageBuffer& memory, std::int64_t request, int depth)
      : engine_(engine), requests_(static_cast<std::size_t>(depth)) {
    for (std::size_t i = 0; i < requests_.size(); ++i) {
      requests_[i].file = &file;
      requests_[i].bytes = request;
      requests_[i].buffer = memory.data() + static_cast<std::int64_t>(i) * request;
    }
  }
  ~Stream() {
    for (const Request& r : requests_) Engine::wait_done(r);
  }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  /// Waits for the oldest request, if all are under way, and begins another in its place.
  void next(Request::Kind kind, std::int64_t offset) {
    Request& r = requests_[begun_++ % requests_.size()];
    engine_.wait(r);  // a request that has not begun is done
    r.kind = kind;
    r.offset = offset;
    engine_.submit(r);
  }
  void finish() {
    for (Request& r : requests_) engine_.wait(r);
  }

 private:
  Engine& engine_;
  std::vector<Request> requests_;
  std::size_t begun_ = 0;
};

enum class Order : std::uint8_t { in_order, by_blocks };

/// The file and what its requests need.
struct Bench {
  const OpenFile& file;
  const PageBuffer& memory;
  std::int64_t bytes;  ///< that are on the disk, from the first on
  std::mt19937_64 random{2};

  std::int64_t block(std::int64_t blocks) { return std::uniform_int_distribution<std::int64_t>(0, blocks - 1)(random); }
};

/// Bytes per second of reads, from the moment at which the first of them are done: then as many are under way as may
/// be.
double read_bandwidth(Bench& bench, Engine& engine, const SweepCell& cell, Order order) {
  constexpr double kSampleSeconds = 8e-3;
  const std::int64_t blocks = bench.bytes / cell.request;
  Stream stream(engine, bench.file, bench.memory, cell.request, cell.depth);
  std::int64_t at = bench.block(blocks);
  const auto next = [&] {
    stream.next(Request::Kind::read, at * cell.request);
    at = order == Order::in_order ? (at + 1) % blocks : bench.block(blocks);
  };
  for (int i = 0; i < 2 * cell.depth; ++i) next();
  const Clock::time_point start = Clock::now();
  std::int64_t moved = 0;
  do {
    for (int i = 0; i < cell.depth; ++i) next();
    moved += cell.under_way();
  } while (seconds_since(start) < kSampleSeconds);
  const double bandwidth = static_cast<double>(moved) / seconds_since(start);
  stream.finish();
  return bandwidth;
}

/// Writes the file, from its first byte on, for `most_seconds` or until it has `least` bytes. Returns how many bytes
/// are on the disk, and their bandwidth.
std::pair<std::int64_t, double> write_file(const OpenFile& file, const PageBuffer& memory, std::int64_t request,
                                           int depth, std::int64_t least, double most_seconds,
                                           std::string& engine_name) {
  const auto engine = file::io::make_engine({.depth = depth});
  engine_name = engine->name();
  Stream stream(*engine, file, memory, request, depth);
  const Clock::time_point start = Clock::now();
  std::int64_t written = 0;
  for (; written + request <= file.size() && (written < least || seconds_since(start) < most_seconds);
       written += request)
    stream.next(Request::Kind::write, written);
  stream.finish();
  if (fdatasync(file.cached_descriptor()) != 0) file::throw_errno("write", file.path(), errno);
  const double seconds = seconds_since(start);
  // Where requests go through the page cache, reads shall find nothing in it.
  posix_fadvise(file.cached_descriptor(), 0, 0, POSIX_FADV_DONTNEED);
  return {written, static_cast<double>(written) / seconds};
}

double lower_median(std::vector<double> samples) {
  const auto middle = samples.begin() + (std::ssize(samples) - 1) / 2;
  std::nth_element(samples.begin(), middle, samples.end());
  return *middle;
}

/// Seconds of a read of one page, one after another, at places without order.
double read_latency(Bench& bench) {
  constexpr std::size_t kMostSamples = 101, kLeastSamples = 5;
  constexpr double kMostSeconds = 0.2;
  const auto engine = file::io::make_engine({.depth = 1});
  Stream stream(*engine, bench.file, bench.memory, kPage, 1);
  std::vector<double> samples;
  for (const Clock::time_point start = Clock::now();
       samples.size() < kLeastSamples || (samples.size() < kMostSamples && seconds_since(start) < kMostSeconds);) {
    const std::int64_t offset = bench.block(bench.bytes / kPage) * kPage;
    const Clock::time_point before = Clock::now();
    stream.next(Request::Kind::read, offset);
    stream.finish();
    samples.push_back(seconds_since(before));
  }
  return lower_median(std::move(samples));
}

/// All cells, in up to three rounds, of which each gives every cell a sample. The first takes them with the fewest
/// bytes under way first, and may end before its time. The order of the others follows no rule: a disk that is fast at
/// first, and slower where much was read just before, shall not look as if many bytes under way were slow.
bool sweep(Bench& bench, const SweepOptions& options, std::vector<SweepCell>& cells) {
  constexpr int kRounds = 3;
  struct Samples {
    std::vector<double> in_order, by_blocks;
  };
  std::vector<Samples> samples(cells.size());
  std::vector<std::size_t> order(cells.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  const Clock::time_point start = Clock::now();
  const auto time_is_left = [&] { return seconds_since(start) < options.seconds; };
  for (int round = 0; round < kRounds; ++round) {
    if (round > 0) std::ranges::shuffle(order, bench.random);
    for (const std::size_t i : order) {
      if (!time_is_left() && !samples[0].in_order.empty()) break;
      const auto engine = file::io::make_engine({.depth = cells[i].depth});
      samples[i].in_order.push_back(read_bandwidth(bench, *engine, cells[i], Order::in_order));
      samples[i].by_blocks.push_back(read_bandwidth(bench, *engine, cells[i], Order::by_blocks));
    }
  }
  std::size_t measured = 0;
  for (; measured < cells.size() && !samples[measured].in_order.empty(); ++measured) {
    cells[measured].in_order = lower_median(std::move(samples[measured].in_order));
    cells[measured].by_blocks = lower_median(std::move(samples[measured].by_blocks));
  }
  const bool complete = measured == cells.size();
  cells.resize(measured);
  return complete;
}

std::vector<SweepCell> cells_of(const SweepOptions& options) {
  std::vector<SweepCell> cells;
  for (const std::int64_t request : options.requests)
    for (const int depth : options.depths)
      if (request * depth <= options.most_under_way) cells.push_back({request, depth});
  std::ranges::sort(cells, [](const SweepCell& a, const SweepCell& b) {
    return std::tuple(a.under_way(), b.request) < std::tuple(b.under_way(), a.request);
  });
  return cells;
}

void require_sensible(const SweepOptions& options) {
  const auto is_sensible = [](std::int64_t bytes) { return bytes >= kPage && bytes % kPage == 0; };
  if (options.requests.empty() || options.depths.empty() || !std::ranges::all_of(options.requests, is_sensible) ||
      std::ranges::min(options.depths) < 1 || cells_of(options).empty())
    throw InvalidProblem(
        fmt::format("a sweep needs depths from 1 on and requests that are multiples of {} bytes, some "
                    "of them within the {} bytes that may be under way",
                    kPage, options.most_under_way));
}

/// The type of the file system that has this path, as /proc/self/mountinfo says it.
std::string file_system_of(const std::string& path) {
  std::ifstream mounts("/proc/self/mountinfo");
  std::string line, type = "unknown";
  std::size_t longest = 0;
  while (std::getline(mounts, line)) {  // "36 35 98:0 /root /mount/point options - ext4 ..."; a blank there is \040
    std::istringstream words(line.substr(0, line.find(" - ")));
    std::string point;
    for (int i = 0; i < 5; ++i) words >> point;
    for (std::size_t at = 0; (at = point.find('\\', at)) != std::string::npos && at + 3 < point.size(); ++at)
      point.replace(at, 4, 1, static_cast<char>(std::strtol(point.substr(at + 1, 3).c_str(), nullptr, 8)));
    const std::string inside = point == "/" ? point : point + "/";
    if (point.size() < longest || !(path + "/").starts_with(inside)) continue;
    longest = point.size();
    std::istringstream(line.substr(std::min(line.size(), line.find(" - ") + 3))) >> type;
  }
  return type;
}

}  // namespace

const SweepCell& knee_of(const std::vector<SweepCell>& cells) {
  constexpr double kNearTheBest = 0.95;
  const double best = std::ranges::max(cells, {}, &SweepCell::bandwidth).bandwidth();
  return *std::ranges::min_element(cells, {}, [&](const SweepCell& c) {
    return std::tuple(c.bandwidth() < kNearTheBest * best, c.under_way(), -c.request);
  });
}

DiskSweep measure_disk(const std::string& directory, const SweepOptions& options) {
  require_sensible(options);
  std::error_code error;
  const std::string path = std::filesystem::canonical(directory, error);
  if (error) file::throw_errno("measure", directory, error.value());
  struct statvfs room{};
  if (statvfs(path.c_str(), &room) != 0) file::throw_errno("measure", path, errno);
  const auto unit = static_cast<std::int64_t>(room.f_frsize);
  const std::int64_t free = static_cast<std::int64_t>(room.f_bavail) * unit;
  std::vector<SweepCell> cells = cells_of(options);
  const std::int64_t largest = std::ranges::max(cells, {}, &SweepCell::request).request;
  const std::int64_t bytes = std::min(options.file_bytes, free / 4) / largest * largest;
  if (bytes < largest)
    throw IoError(fmt::format("cannot measure '{}': it has {} free bytes and the sweep takes a quarter of them for its "
                              "file, at least {}; free some space",
                              path, free, largest),
                  path, -1, ENOSPC);
  constexpr std::int64_t kWriteRequest = 1 << 20;
  constexpr int kWriteDepth = 32;
  const std::int64_t write_request = std::min(kWriteRequest, largest);
  const PageBuffer memory(std::max(options.most_under_way, write_request * kWriteDepth));
  const OpenFile file = OpenFile::temporary(path, bytes);

  const auto before = hardware::cpu_time_now();
  DiskSweep result;
  Disk& d = result.disk;
  const auto [written, write_bandwidth] =
      write_file(file, memory, write_request, kWriteDepth, largest, options.seconds / 4, d.engine);
  Bench bench{file, memory, written};
  d.latency = read_latency(bench);
  result.complete = sweep(bench, options, cells);
  result.others = hardware::share_of_others(before, hardware::cpu_time_now());
  const SweepCell& knee = knee_of(cells);
  d.directory = path;
  d.file_system = file_system_of(path);
  d.bytes = static_cast<std::int64_t>(room.f_blocks) * unit;
  d.direct = file.direct();
  d.read_bandwidth = knee.bandwidth();
  d.write_bandwidth = write_bandwidth;
  d.request = knee.request;
  d.depth = knee.depth;
  d.at = hardware::time_now();
  result.cells = std::move(cells);
  return result;
}

}  // namespace redblue
