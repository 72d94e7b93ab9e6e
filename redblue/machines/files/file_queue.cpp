#include "redblue/machines/files/file_queue.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <stdexcept>
#include <utility>

#include "redblue/language/error.hpp"

namespace redblue::machine {

using file::io::Engine;
using file::io::kPage;
using PlaceInFile = file::io::FileMap::Place;

namespace {

/// To read this number of bytes that nobody asked for takes less time than another request.
constexpr index_t kSmallGap = 1 << 15;
constexpr std::size_t kMostOpen = 8;  ///< runs that grow: operands that are read in turn
/// Pieces that are read, and that are written, ahead. Rows of 512 bytes then fill half of the usual buffers; each write
/// is compared with others.
constexpr std::size_t kMostReads = 1 << 15, kMostWrites = 1 << 12;

/// A write that goes on does so within this number of listed pieces.
constexpr std::size_t kSoon = 64;
/// A request takes at most an eighth of the memory for writes: others are filled and written meanwhile.
constexpr index_t kWritesAtOnce = 8;

/// Do two of Request, PlaceInFile with bytes, and pieces that are written have a byte of a file in common?
bool overlap(const auto& a, const file::io::OpenFile* file, index_t offset, index_t bytes) {
  return a.file == file && a.offset < offset + bytes && offset < a.offset + a.bytes;
}
/// Do they have a page in common?
bool share_page(const file::io::Request& a, const file::io::Request& b) {
  const auto end = [](const file::io::Request& r) { return file::io::up_to_page(r.offset + r.bytes); };
  return a.file == b.file && file::io::down_to_page(a.offset) < end(b) && file::io::down_to_page(b.offset) < end(a);
}

}  // namespace

FileQueue::FileQueue(const file::io::FileMap& map, Engine& engine, const FileBuffers& buffers)
    : map_(map), engine_(engine), buffers_(buffers), read_ring_(buffers.read), write_ring_(buffers.write) {
  const index_t least = 2 * (buffers.request + 2 * kPage);
  if (buffers.request < 1 || buffers.read < least || buffers.write < least)
    throw InvalidProblem(
        fmt::format("buffers of {} bytes to read and {} to write do not hold two requests of {}: give "
                    "at least {} each, or smaller requests",
                    buffers.read, buffers.write, buffers.request, least));
}

FileQueue::~FileQueue() {
  for (const Run& run : runs_)
    if (run.sent) Engine::wait_done(run.request);
  for (const auto& w : writes_)
    if (w->sent_as > 0) Engine::wait_done(w->request);
}

Cut FileQueue::cut_for(const FileBuffers& buffers) { return {buffers.request, kSmallGap}; }

std::optional<PlaceInFile> FileQueue::place_of(const Piece& p) const {
  const auto place = map_.find(std::bit_cast<const void*>(p.first));
  if (place && place->bytes < p.bytes)
    throw InvalidProblem(
        fmt::format("a block of {} takes {} bytes of '{}' from {} on, and its array has {} there: name "
                    "all bytes of an array",
                    name_of(p.block.array), p.bytes, place->file->path(), place->offset, place->bytes));
  return place;
}

// ---- the list ----

void FileQueue::list_read(const Storage& s, const Block& b) {
  Lock lock(mutex_);
  for_pieces(s, b, cut(), [&](const Piece& p) { list_piece(lock, p, b); });
}
void FileQueue::list_write(const Storage& s, const Block& b) {
  Lock lock(mutex_);
  for_pieces(s, b, cut(), [&](const Piece& p) {
    if (!p.is_whole()) list_piece(lock, p, b);
    list_write_of(lock, p);
  });
}
void FileQueue::list_add(const Storage& s, const Block& b) {
  Lock lock(mutex_);
  for_pieces(s, b, cut(), [&](const Piece& p) {
    list_piece(lock, p, b);
    list_write_of(lock, p);
  });
}

void FileQueue::end_list(std::exception_ptr error) {
  Lock lock(mutex_);
  list_error_ = std::move(error);
  if (!stopped_) send_all(lock);
  ended_ = true;
  for_machine_.notify_all();
}

void FileQueue::wait_for_machine(Lock& lock, const auto& is_ready) {
  for_list_.wait(lock, [&] { return stopped_ || is_ready(); });
  if (stopped_) throw Stopped{};
}

void FileQueue::list_piece(Lock& lock, const Piece& p, const Block& b) {
  const auto place = place_of(p);
  if (!place) return;
  wait_for_machine(lock, [&] { return listed_.size() < kMostReads; });
  wait_for_writes(lock, *place, p.bytes);
  Run& run = run_for(lock, *place, p.bytes, is_alone(p, b), shares_pages(p, b));
  ++run.pieces_left;
  listed_.push_back({p.first, p.bytes, &run});
  if (listed_.size() == 1) for_machine_.notify_all();
}

void FileQueue::list_write_of(Lock& lock, const Piece& p) {
  const auto place = place_of(p);
  if (!place) return;
  wait_for_machine(lock, [&] { return listed_writes_.size() < kMostWrites; });
  listed_writes_.push_back({place->file, place->offset, p.bytes});
  if (listed_writes_.size() == 1) for_machine_.notify_all();
}

void FileQueue::wait_for_writes(Lock& lock, const PlaceInFile& place, index_t bytes) {
  const auto overlaps = [&](const auto& w) { return overlap(w, place.file, place.offset, bytes); };
  while (true) {
    const auto made = std::ranges::find_if(
        writes_, [&](const auto& w) { return overlaps(w->request) && !Engine::is_done(w->request); });
    const bool listed = std::ranges::any_of(listed_writes_, overlaps);
    if (made == writes_.end() && !listed) return;
    if (!open_.empty()) {  // what is listed before it goes out, and no later piece joins it
      send_all(lock);
      continue;  // the lock was away
    }
    if (listed || *made == write_) {
      list_waits_ = true;
      wait_for_machine(lock, [&] { return !list_waits_; });
      continue;
    }
    // The list may drop it while the lock is away.
    const std::shared_ptr<Write> waited = *made;  // NOLINT(performance-unnecessary-copy-initialization)
    if (waited->sent_as == 0) {
      send(lock, waited);
      continue;
    }
    lock.unlock();
    Engine::wait_done(waited->request);
    lock.lock();
  }
}

/// A run whose pages hold all of this request. It is held for the piece that asks.
FileQueue::Run* FileQueue::run_that_has(const Request& r) {
  auto at = of_pages_.upper_bound({r.file, r.offset});
  if (at == of_pages_.begin()) return nullptr;
  Run* const run = (--at)->second;
  if (run->request.file != r.file || run->request.offset + run->request.bytes < r.offset + r.bytes) return nullptr;
  const auto held = std::ranges::lower_bound(runs_, run->space.begin, {}, [](const Run& x) { return x.space.begin; });
  idle_ = std::min(idle_, static_cast<std::size_t>(held - runs_.begin()));
  return run;
}

void FileQueue::drop_first() {
  Run& first = runs_.front();
  const auto known = of_pages_.find({first.request.file, first.request.offset});
  if (known != of_pages_.end() && known->second == &first) of_pages_.erase(known);
  read_ring_.give_back(first.space.end);
  runs_.pop_front();
  --idle_;
}

/// Bytes of memory for reads, where runs that serve nobody now are dropped.
index_t FileQueue::available() const {
  return read_ring_.free() + (idle_ == 0 ? 0 : runs_[idle_ - 1].space.end - runs_.front().space.begin);
}

FileQueue::Run& FileQueue::run_for(Lock& lock, const PlaceInFile& place, index_t bytes, bool alone, bool shares) {
  Request wanted;
  wanted.file = place.file;
  wanted.offset = place.offset;
  wanted.bytes = bytes;
  const bool of_pages = shares && !place.file->writable();  // nobody changes what lies beside the piece
  if (of_pages) {
    wanted.offset = file::io::down_to_page(place.offset);
    wanted.bytes = std::min(file::io::up_to_page(place.offset + bytes), place.file->size()) - wanted.offset;
    if (Run* const run = run_that_has(wanted)) return *run;
  }
  const index_t end = wanted.offset + wanted.bytes;
  for (Run* run : open_) {
    Request& r = run->request;
    const index_t room = run->space.end - run->space.begin - r.offset % kPage;
    if (r.file != wanted.file || wanted.offset < r.offset || wanted.offset > r.offset + r.bytes + kPage) continue;
    if (end - r.offset > std::min(room, buffers_.request)) continue;
    r.bytes = std::max(r.bytes, end - r.offset);
    return *run;
  }
  if (open_.size() == kMostOpen) send(lock, *open_.front());
  // The request that this piece would have gone on with is full.
  const auto before = std::ranges::find_if(open_, [&](const Run* run) {
    return run->request.file == wanted.file && wanted.offset >= run->request.offset &&
           wanted.offset <= run->request.offset + run->request.bytes + kPage;
  });
  if (before != open_.end()) send(lock, **before);
  // Other pieces of the block lie elsewhere: what follows this one comes with the next block, if it does.
  const bool grows = alone || !of_pages;
  file::io::Ring::Space space;
  wait_for_machine(lock, [&] {
    const index_t size = wanted.offset % kPage + (grows ? std::max(wanted.bytes, buffers_.request) : wanted.bytes);
    while ((space = read_ring_.take(size)).memory == nullptr && idle_ > 0) drop_first();
    return space.memory != nullptr;
  });
  Run& run = runs_.emplace_back();
  run.space = space;
  run.request.file = wanted.file;
  run.request.offset = wanted.offset;
  run.request.bytes = wanted.bytes;
  run.request.buffer = space.memory + wanted.offset % kPage;
  run.request.parts_left = 1;  // it is not done before it is sent
  if (of_pages) of_pages_.insert_or_assign({wanted.file, wanted.offset}, &run);
  open_.push_back(&run);
  return run;
}

void FileQueue::send(Lock& lock, Run& run) {
  std::erase(open_, &run);
  run.sent = true;
  read_ring_.cut(run.space, run.request.offset % kPage + run.request.bytes);
  // The machine may take it, and the ring lose it, as soon as it is done, but not before.
  lock.unlock();
  engine_.submit(run.request);
  lock.lock();
}

void FileQueue::send_all(Lock& lock) {
  while (!open_.empty()) send(lock, *open_.front());
}

// ---- the machine ----

FileQueue::Taken FileQueue::take(const Piece& p, bool counted) {
  const auto place = place_of(p);
  if (!place) return {};
  Lock lock(mutex_);
  if (counted) traffic_.read += p.words() * p.width();
  if (listed_.empty()) {
    for_list_.notify_all();
    for_machine_.wait(lock, [&] { return !listed_.empty() || ended_; });
  }
  Run* run = nullptr;
  if (listed_.empty()) {
    if (list_error_) std::rethrow_exception(list_error_);
    run = &read_now(lock, *place, p);
  } else {
    const Listed listed = listed_.front();
    listed_.pop_front();
    if (listed.first != p.first || listed.bytes != p.bytes)
      throw std::logic_error("a machine reads another block than was listed");
    run = listed.run;
    if (listed_.size() == kMostReads / 2) for_list_.notify_all();
    if (!run->sent) send(lock, *run);
  }
  lock.unlock();
  if (!Engine::is_done(run->request)) {
    const auto start = std::chrono::steady_clock::now();
    Engine::wait_done(run->request);
    traffic_.waited += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }
  engine_.wait(run->request);
  return {run->request.buffer + (place->offset - run->request.offset), run};
}

FileQueue::Run& FileQueue::read_now(Lock& lock, const PlaceInFile& place, const Piece& p) {
  while (std::ranges::any_of(writes_,
                             [&](const auto& w) { return overlap(w->request, place.file, place.offset, p.bytes); }))
    finish_oldest_write(lock);
  Run& run = run_for(lock, place, p.bytes, true, false);  // there is room: all else has been taken and given back
  ++run.pieces_left;
  send(lock, run);
  return run;
}

void FileQueue::give_back(Run& run) {
  const Lock lock(mutex_);
  --run.pieces_left;
  while (idle_ < runs_.size() && runs_[idle_].sent && runs_[idle_].pieces_left == 0) ++idle_;
  // What lists is not woken for every piece: it then runs for a while.
  const index_t free = available();
  if (listed_.empty() || free >= free_at_notice_ + read_ring_.size() / 4 || free < free_at_notice_) {
    free_at_notice_ = free;
    for_list_.notify_all();
  }
}

std::byte* FileQueue::begin_write(const Piece& p) {
  const auto place = place_of(p);
  if (!place) return nullptr;
  if (!place->file->writable()) throw std::logic_error("a schedule writes to a file that is only read");
  const ListedWrite piece = piece_ = {place->file, place->offset, p.bytes};
  Lock lock(mutex_);
  traffic_.written += p.words() * p.width();
  for_machine_.wait(lock, [&] { return !listed_writes_.empty() || ended_; });
  if (!listed_writes_.empty()) {
    const ListedWrite& listed = listed_writes_.front();
    if (listed.file != piece.file || listed.offset != piece.offset || listed.bytes != piece.bytes)
      throw std::logic_error("a machine writes another block than was listed");
  } else {
    if (list_error_) std::rethrow_exception(list_error_);
    listed_writes_.push_back(piece);
  }
  find_write(lock, piece);
  return write_->request.buffer + (piece.offset - write_->request.offset);
}

/// Sets write_: one that ends where the piece begins, or a new one.
void FileQueue::find_write(Lock& lock, const ListedWrite& piece) {
  while (!writes_.empty() && Engine::is_done(writes_.front()->request)) finish_oldest_write(lock);
  // What stands in its place goes out before it.
  const auto covered = [&](const auto& w) {
    return w->sent_as == 0 && overlap(w->request, piece.file, piece.offset, piece.bytes);
  };
  for (auto w = std::ranges::find_if(writes_, covered); w != writes_.end(); w = std::ranges::find_if(writes_, covered))
    send(lock, std::shared_ptr<Write>(*w));

  const auto before = [&] {
    return std::ranges::find_if(writes_, [&](const auto& w) {
      return w->sent_as == 0 && w->request.file == piece.file && w->request.offset + w->request.bytes == piece.offset;
    });
  };
  const auto size_of = [](const Write& w) { return w.space.end - w.space.begin - w.request.offset % kPage; };
  if (const auto w = before(); w != writes_.end() && (*w)->request.bytes + piece.bytes <= size_of(**w)) {
    write_ = *w;
    return;
  }

  index_t size = piece.offset % kPage + piece.bytes;
  if (goes_on(piece.file, piece.offset + piece.bytes))
    size = std::max(size, std::min(buffers_.request, file::io::down_to_page(write_ring_.size() / kWritesAtOnce)));
  auto write = std::make_shared<Write>();
  while ((write->space = write_ring_.take(size)).memory == nullptr) finish_oldest_write(lock);
  Request& r = write->request;
  r.kind = Request::Kind::write;
  r.file = piece.file;
  r.offset = piece.offset;
  r.buffer = write->space.memory + piece.offset % kPage;
  r.parts_left = 1;  // it is not done before it is sent
  const auto w = before();
  const std::shared_ptr<Write> full = w == writes_.end() ? nullptr : *w;
  if (full != nullptr) {  // the page that both write belongs to the new one
    Request& f = full->request;
    const index_t both = std::min(piece.offset % kPage, f.bytes);
    std::memcpy(r.buffer - both, f.buffer + (f.bytes - both), static_cast<std::size_t>(both));
    r.offset -= both;
    r.buffer -= both;
    r.bytes += both;
    f.bytes -= both;
  }
  write_ = write;
  writes_.push_back(std::move(write));
  if (full != nullptr) send(lock, full);
}

/// Will the machine soon write what lies behind this byte? So it may, where too little is listed to tell.
bool FileQueue::goes_on(const file::io::OpenFile* file, index_t end) const {
  const auto last = listed_writes_.begin() + static_cast<std::ptrdiff_t>(std::min(listed_writes_.size(), kSoon));
  const bool listed = std::any_of(listed_writes_.begin(), last,
                                  [&](const ListedWrite& w) { return w.file == file && w.offset == end; });
  return listed || (!ended_ && listed_writes_.size() < kSoon);
}

void FileQueue::send(Lock& lock, const std::shared_ptr<Write>& write) {
  write->sent_as = ++writes_sent_;
  write_ring_.cut(write->space, write->request.offset % kPage + write->request.bytes);
  if (write->request.bytes == 0) {  // all of it belongs to the next one: somebody may wait for it already
    write->request.parts_left = 0;
    write->request.parts_left.notify_all();
    return;
  }
  const auto is_before = [&](const auto& w) {
    return w->sent_as > 0 && w->sent_as < write->sent_as && !Engine::is_done(w->request) &&
           share_page(w->request, write->request);
  };
  for (auto w = std::ranges::find_if(writes_, is_before); w != writes_.end();
       w = std::ranges::find_if(writes_, is_before)) {
    // The list may drop it while the lock is away.
    const std::shared_ptr<Write> waited = *w;  // NOLINT(performance-unnecessary-copy-initialization)
    lock.unlock();
    Engine::wait_done(waited->request);
    lock.lock();
  }
  engine_.submit(write->request);
}

void FileQueue::send_write() {
  if (before_write_) before_write_(*piece_.file, piece_.offset, piece_.bytes);
  Lock lock(mutex_);
  Request& r = write_->request;
  r.bytes += piece_.bytes;
  listed_writes_.pop_front();
  const std::shared_ptr<Write> write = std::exchange(write_, nullptr);
  if (!goes_on(r.file, r.offset + r.bytes)) send(lock, write);
  if (std::exchange(list_waits_, false) || listed_writes_.size() + 1 == kMostWrites) for_list_.notify_all();
}

void FileQueue::finish_oldest_write(Lock& lock) {
  const std::shared_ptr<Write> oldest = writes_.front();
  if (oldest->sent_as == 0) send(lock, oldest);
  lock.unlock();
  const auto start = std::chrono::steady_clock::now();
  Engine::wait_done(oldest->request);
  traffic_.waited += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  lock.lock();
  writes_.pop_front();
  write_ring_.give_back(oldest->space.end);
  engine_.wait(oldest->request);
}

void FileQueue::finish_writes() {
  Lock lock(mutex_);
  for (const std::shared_ptr<Write>& w : writes_)
    if (w->sent_as == 0) send(lock, w);
  while (!writes_.empty()) finish_oldest_write(lock);
}

void FileQueue::finish() {
  finish_writes();
  const Lock lock(mutex_);
  if (!listed_.empty() || !listed_writes_.empty()) throw std::logic_error("a machine left out a block that was listed");
}

void FileQueue::stop() {
  const Lock lock(mutex_);
  stopped_ = true;
  for_list_.notify_all();
}

}  // namespace redblue::machine
