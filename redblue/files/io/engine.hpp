#pragma once
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "redblue/files/io/open_file.hpp"

namespace redblue::file::io {

/// Bytes of a file that are to be read or written. The caller keeps the request, the file and the memory until it is
/// done. `buffer` is where byte `offset` of the file lies in memory: its address leaves the same remainder as `offset`
/// when divided by kPage. The engine may fill the memory from the page boundary before the first byte to the one after
/// the last, so this memory must be the caller's, too.
struct Request {
  enum class Kind : std::uint8_t { read, write };

  Kind kind = Kind::read;
  const OpenFile* file = nullptr;
  index_t offset = 0;
  index_t bytes = 0;
  std::byte* buffer = nullptr;

  // Kept by the engine.
  std::atomic<int> parts_left{0};      ///< transfers that are not complete; 0: done
  std::atomic<int> errno_value{0};     ///< of a transfer that failed
  std::atomic<index_t> failed_at{-1};  ///< byte of the file where it did, or where the file ended; else -1
};

/// What a test does to a transfer before it begins: it fails with an errno, or moves no more than a number of bytes.
/// Where that is none, a read finds the end of the file.
struct Fault {
  int errno_value = 0;
  index_t at_most = std::numeric_limits<index_t>::max();
};
/// Called for every transfer that an engine begins, by any thread; `number` counts those of this kind from 0 on.
using FaultHook = std::function<Fault(Request::Kind kind, index_t number)>;

/// Which system calls move bytes. best: io_uring, or threads where redblue was built without it or the kernel forbids
/// it.
enum class EngineKind : std::uint8_t { best, io_uring, threads };

struct EngineOptions {
  EngineKind kind = EngineKind::best;
  int depth = 32;  ///< transfers under way at a time
  FaultHook fault{};
};

/// What an engine has moved.
struct Traffic {
  index_t asked = 0;      ///< bytes of requests
  index_t moved = 0;      ///< bytes that the kernel was asked for: whole pages, where requests are direct
  index_t transfers = 0;  ///< that the kernel was asked for
};

/// Carries out requests, many at a time, in any order. Direct requests are widened to whole pages: of a write, the
/// pages at its ends are read first where it has only a part of them. So of two writes to one page, the first must be
/// done before the other is submitted. Only the page in which the file ends, if it is no whole one, passes through the
/// page cache. Where requests are not direct, pages are given back as soon as they are read or on the disk, so that the
/// cache holds a few MiB of a file at most. Any number of threads may use it.
class Engine {
 public:
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;
  /// Every request must be done.
  virtual ~Engine() = default;

  /// "io_uring" or "threads".
  virtual std::string_view name() const = 0;
  /// Begins a request.
  void submit(Request& request);
  static bool is_done(const Request& request) { return request.parts_left.load(std::memory_order_acquire) == 0; }
  /// Waits until it is done. Throws IoError, which names the file, the byte and what to do, where it failed.
  void wait(Request& request);
  /// Waits, whether it fails or not.
  static void wait_done(const Request& request);
  Traffic reads() const { return traffic_of(Request::Kind::read); }
  Traffic writes() const { return traffic_of(Request::Kind::write); }
  /// Seconds so far in which a transfer was under way.
  double busy_seconds() const;

 protected:
  explicit Engine(EngineOptions options) : options_(std::move(options)) {}

  struct Edges;
  /// One system call of a request, or several where one moves less than all.
  struct Transfer {
    Request* request = nullptr;
    Request::Kind kind = Request::Kind::read;  ///< a request that writes may have to read pages first
    int descriptor = -1;
    index_t offset = 0;  ///< what is left of it
    index_t bytes = 0;
    std::byte* buffer = nullptr;
    index_t needed = 0;              ///< bytes that must be moved; those beyond may lie behind the end of the file
    bool begun_twice = false;        ///< io_uring gave it up with the thread that had begun it
    std::shared_ptr<Edges> edges{};  ///< that it reads a page of
  };
  /// Moves what is left of it, or a part, and calls completed() from any thread. `at_most` bytes, where a test says so.
  virtual void start(Transfer* transfer, index_t at_most) = 0;
  /// The result of a system call: the bytes that were moved, or minus errno.
  void completed(Transfer* transfer, index_t result);
  const EngineOptions& options() const { return options_; }

 private:
  struct Counters {
    std::atomic<index_t> asked{0}, moved{0}, transfers{0}, begun{0};
  };
  Traffic traffic_of(Request::Kind kind) const;
  void begin(Request& request, int descriptor, index_t from, index_t to, index_t needed_to);
  /// Writes the bytes from `from` to `to` of a request directly, once it has read what else their pages hold.
  void write_pages(Request& request, index_t from, index_t to);
  /// A page of these is there: the write begins after the last.
  void edge_read(Request& request, const Edges& edges);
  void restart(Transfer* transfer);
  void give_back_pages(const Transfer& transfer);
  void finish(Transfer* transfer, int errno_value);
  void begin_busy();
  void end_busy();

  const EngineOptions options_;
  Counters counters_[2];
  mutable std::mutex busy_mutex_;
  int transfers_ = 0;  ///< under way
  std::chrono::steady_clock::time_point busy_since_{};
  std::chrono::duration<double> busy_{0};
  std::mutex cached_mutex_;
  std::map<int, index_t> cached_bytes_;  ///< by descriptor: written through the page cache since its pages went back
};

/// Throws Unsupported where io_uring is asked for by name and is not there.
std::unique_ptr<Engine> make_engine(const EngineOptions& options = {});

}  // namespace redblue::file::io
