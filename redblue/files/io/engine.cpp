#include "redblue/files/io/engine.hpp"

#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <system_error>

#include "redblue/language/error.hpp"

namespace redblue::file::io {

namespace {

constexpr index_t kMostCached = 4 << 20;  ///< written through the page cache before its pages are given back

std::size_t index_of(Request::Kind kind) { return static_cast<std::size_t>(kind); }

[[noreturn]] void throw_failure(const Request& r) {
  const bool reads = r.kind == Request::Kind::read;
  const std::string& path = r.file->path();
  const index_t at = r.failed_at.load();
  const int error = r.errno_value.load();
  const std::string what =
      fmt::format("cannot {} {} bytes of '{}' at byte {}", reads ? "read" : "write", r.bytes, path, r.offset);
  if (error == 0)
    throw IoError(fmt::format("{}: the file ends at byte {} and had {} when it was opened: something has truncated it; "
                              "make it anew and run again",
                              what, at, r.file->size()),
                  path, at);
  std::string_view hint;
  if (error == EIO) hint = "; the disk or its connection fails: see the kernel's log, and read from a copy";
  if (error == ENOSPC || error == EDQUOT) hint = "; free some space or write to another disk";
  if (error == EFBIG) hint = "; the limit on file sizes is lower (see ulimit -f)";
  throw IoError(fmt::format("{}: {}{}", what, std::generic_category().message(error), hint), path, at, error);
}

}  // namespace

/// A page that a request writes a part of.
struct Edge {
  index_t offset = -1;  ///< in the file; -1: there is none
  alignas(kPage) std::array<std::byte, kPage> bytes;
};

/// The pages at both ends of a write, which are read before it begins.
struct Engine::Edges {
  Edge first, last;
  index_t from = 0, to = 0;          ///< what the request writes directly
  mutable std::atomic<int> left{0};  ///< to be read

  /// Puts the bytes beside those that are written where they belong.
  void fill(const Request& r) const {
    const auto copy = [&](const Edge& edge, index_t begin, index_t end) {
      if (edge.offset >= 0 && begin < end)
        std::memcpy(r.buffer + (begin - r.offset), edge.bytes.data() + (begin - edge.offset),
                    static_cast<std::size_t>(end - begin));
    };
    copy(first, down_to_page(from), from);
    copy(last.offset < 0 ? first : last, to, up_to_page(to));
  }
};

void Engine::submit(Request& r) {
  r.errno_value = 0;
  r.failed_at = -1;
  counters_[index_of(r.kind)].asked += r.bytes;
  const index_t end = r.offset + r.bytes;
  const int cached = r.file->cached_descriptor(), direct = r.file->direct_descriptor();
  if (r.bytes == 0) return;
  if (r.kind == Request::Kind::read) {
    r.parts_left = 1;
    if (direct >= 0) return begin(r, direct, down_to_page(r.offset), up_to_page(end), end);
    return begin(r, cached, r.offset, end, end);
  }
  // To write the page in which the file ends as a whole would make the file longer.
  const index_t begin_at = r.offset,
                whole = direct < 0 ? begin_at : std::clamp(down_to_page(r.file->size()), begin_at, end);
  r.parts_left = (whole > begin_at ? 1 : 0) + (end > whole ? 1 : 0);
  if (end > whole) begin(r, cached, whole, end, end);  // the request may be gone, where it has no other part
  if (whole > begin_at) write_pages(r, begin_at, whole);
}

void Engine::write_pages(Request& r, index_t from, index_t to) {
  auto edges = std::make_shared<Edges>();
  edges->from = from;
  edges->to = to;
  const index_t first = down_to_page(from), last = down_to_page(to);
  if (first < from) edges->first.offset = first;
  if (last < to && last != edges->first.offset) edges->last.offset = last;
  edges->left = 1;
  const auto read = [&](Edge& edge) {
    if (edge.offset < 0) return;
    ++edges->left;
    begin_busy();
    restart(new Transfer{.request = &r,
                         .kind = Request::Kind::read,
                         .descriptor = r.file->direct_descriptor(),
                         .offset = edge.offset,
                         .bytes = kPage,
                         .buffer = edge.bytes.data(),
                         .needed = kPage,
                         .edges = edges});
  };
  read(edges->first);
  read(edges->last);
  edge_read(r, *edges);
}

void Engine::edge_read(Request& r, const Edges& edges) {
  if (edges.left.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  const index_t from = down_to_page(edges.from), to = up_to_page(edges.to);
  auto* const write = new Transfer{.request = &r,
                                   .kind = r.kind,
                                   .descriptor = r.file->direct_descriptor(),
                                   .offset = from,
                                   .bytes = to - from,
                                   .buffer = r.buffer + (from - r.offset),
                                   .needed = to - from};
  begin_busy();
  if (r.errno_value != 0 || r.failed_at >= 0) return finish(write, r.errno_value);
  edges.fill(r);
  restart(write);
}

void Engine::begin(Request& r, int descriptor, index_t from, index_t to, index_t needed_to) {
  begin_busy();
  restart(new Transfer{&r, r.kind, descriptor, from, to - from, r.buffer + (from - r.offset), needed_to - from});
}

void Engine::restart(Transfer* t) {
  Counters& counters = counters_[index_of(t->kind)];
  counters.moved += t->bytes;
  ++counters.transfers;
  const index_t number = counters.begun++;
  Fault fault;
  if (options_.fault) fault = options_.fault(t->kind, number);
  if (fault.errno_value != 0) return completed(t, -fault.errno_value);
  if (fault.at_most == 0) return completed(t, 0);
  start(t, std::min(fault.at_most, t->bytes));
}

void Engine::completed(Transfer* t, index_t result) {
  if (result == -EINTR || result == -EAGAIN) return restart(t);
  if (result < 0) return finish(t, static_cast<int>(-result));
  const Request& r = *t->request;
  if (result >= t->needed) {
    if (!r.file->direct()) give_back_pages(*t);
    return finish(t, 0);
  }
  // What is left begins on a page where requests are direct; a read that stopped within one has met the end of the
  // file.
  const index_t done = t->descriptor == r.file->direct_descriptor() ? down_to_page(result) : result;
  if (done == 0) {
    t->request->failed_at = t->offset + result;
    return finish(t, t->kind == Request::Kind::write ? EIO : 0);
  }
  t->offset += done;
  t->buffer += done;
  t->bytes -= done;
  t->needed -= done;
  restart(t);
}

void Engine::finish(Transfer* t, int errno_value) {
  Request& r = *t->request;
  if (errno_value != 0) {
    r.errno_value = errno_value;
    r.failed_at = t->offset;
  }
  const std::shared_ptr<Edges> edges = std::move(t->edges);
  delete t;
  end_busy();
  if (edges != nullptr) return edge_read(r, *edges);
  // Nothing of the request, nor of the engine, is touched after this: whoever waits may end it.
  std::atomic<int>& left = r.parts_left;
  if (left.fetch_sub(1, std::memory_order_acq_rel) == 1) left.notify_all();
}

void Engine::give_back_pages(const Transfer& t) {
  if (t.kind == Request::Kind::read) {
    posix_fadvise(t.descriptor, t.offset, t.bytes, POSIX_FADV_DONTNEED);
    return;
  }
  {
    const std::lock_guard lock(cached_mutex_);
    index_t& bytes = cached_bytes_[t.descriptor];
    bytes += std::max(t.bytes, kPage);
    if (bytes < kMostCached) return;
    bytes = 0;
  }
  // Only clean pages can be given back.
  sync_file_range(t.descriptor, 0, 0, SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER);
  posix_fadvise(t.descriptor, 0, 0, POSIX_FADV_DONTNEED);
}

void Engine::wait_done(const Request& request) {
  for (int left = request.parts_left.load(std::memory_order_acquire); left != 0;
       left = request.parts_left.load(std::memory_order_acquire))
    request.parts_left.wait(left, std::memory_order_acquire);
}

void Engine::wait(Request& request) {
  wait_done(request);
  if (request.errno_value != 0 || request.failed_at >= 0) throw_failure(request);
}

void Engine::begin_busy() {
  const std::lock_guard lock(busy_mutex_);
  if (transfers_++ == 0) busy_since_ = std::chrono::steady_clock::now();
}

void Engine::end_busy() {
  const std::lock_guard lock(busy_mutex_);
  if (--transfers_ == 0) busy_ += std::chrono::steady_clock::now() - busy_since_;
}

double Engine::busy_seconds() const {
  const std::lock_guard lock(busy_mutex_);
  std::chrono::duration<double> busy = busy_;
  if (transfers_ > 0) busy += std::chrono::steady_clock::now() - busy_since_;
  return busy.count();
}

Traffic Engine::traffic_of(Request::Kind kind) const {
  const Counters& c = counters_[index_of(kind)];
  return {c.asked, c.moved, c.transfers};
}

}  // namespace redblue::file::io
