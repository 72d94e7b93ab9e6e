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
constexpr std::size_t kMostOpen = 8;       ///< runs that grow: operands that are read in turn
constexpr std::size_t kMostListed = 4096;  ///< pieces that are read, and that are written, ahead

bool overlap(const file::io::Request& r, const PlaceInFile& place, index_t bytes) {
  return r.file == place.file && r.offset < place.offset + bytes && place.offset < r.offset + r.bytes;
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
  for (const auto& w : sent_writes_) Engine::wait_done(w->request);
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
  for_pieces(s, b, cut(), [&](const Piece& p) { list_piece(lock, p); });
}
void FileQueue::list_write(const Storage& s, const Block& b) {
  Lock lock(mutex_);
  for_pieces(s, b, cut(), [&](const Piece& p) {
    if (!p.is_whole()) list_piece(lock, p);
    list_write_of(lock, p);
  });
}
void FileQueue::list_add(const Storage& s, const Block& b) {
  Lock lock(mutex_);
  for_pieces(s, b, cut(), [&](const Piece& p) {
    list_piece(lock, p);
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

void FileQueue::list_piece(Lock& lock, const Piece& p) {
  const auto place = place_of(p);
  if (!place) return;
  wait_for_machine(lock, [&] { return listed_.size() < kMostListed; });
  wait_for_writes(lock, *place, p.bytes);
  Run& run = run_for(lock, *place, p.bytes);
  ++run.pieces_left;
  listed_.push_back({p.first, p.bytes, &run});
  if (listed_.size() == 1) for_machine_.notify_all();
}

void FileQueue::list_write_of(Lock& lock, const Piece& p) {
  const auto place = place_of(p);
  if (!place) return;
  wait_for_machine(lock, [&] { return listed_writes_.size() < kMostListed; });
  auto write = std::make_shared<Write>();
  write->request.kind = Request::Kind::write;
  write->request.file = place->file;
  write->request.offset = place->offset;
  write->request.bytes = p.bytes;
  listed_writes_.push_back(std::move(write));
  if (listed_writes_.size() == 1) for_machine_.notify_all();
}

void FileQueue::wait_for_writes(Lock& lock, const PlaceInFile& place, index_t bytes) {
  const auto overlaps = [&](const std::shared_ptr<Write>& w) { return overlap(w->request, place, bytes); };
  while (true) {
    const auto sent = std::find_if(sent_writes_.begin(), sent_writes_.end(),
                                   [&](const auto& w) { return overlaps(w) && !Engine::is_done(w->request); });
    const bool listed = (write_ != nullptr && overlaps(write_)) || std::ranges::any_of(listed_writes_, overlaps);
    if (sent == sent_writes_.end() && !listed) return;
    if (!open_.empty()) {  // what is listed before it goes out, and no later piece joins it
      send_all(lock);
      continue;  // the lock was away
    }
    if (listed) {
      list_waits_ = true;
      wait_for_machine(lock, [&] { return !list_waits_; });
      continue;
    }
    // The list may drop it while the lock is away.
    const std::shared_ptr<Write> waited = *sent;  // NOLINT(performance-unnecessary-copy-initialization)
    lock.unlock();
    Engine::wait_done(waited->request);
    lock.lock();
  }
}

FileQueue::Run& FileQueue::run_for(Lock& lock, const PlaceInFile& place, index_t bytes) {
  const index_t end = place.offset + bytes;
  for (Run* run : open_) {
    Request& r = run->request;
    const index_t room = run->space.end - run->space.begin - r.offset % kPage;
    if (r.file != place.file || place.offset < r.offset || place.offset > r.offset + r.bytes + kPage) continue;
    if (end - r.offset > std::min(room, buffers_.request)) continue;
    r.bytes = std::max(r.bytes, end - r.offset);
    return *run;
  }
  if (open_.size() == kMostOpen) send(lock, *open_.front());
  // The request that this piece would have gone on with is full.
  const auto before = std::ranges::find_if(open_, [&](const Run* run) {
    return run->request.file == place.file && place.offset >= run->request.offset &&
           place.offset <= run->request.offset + run->request.bytes + kPage;
  });
  if (before != open_.end()) send(lock, **before);
  file::io::Ring::Space space;
  wait_for_machine(lock, [&] {
    space = read_ring_.take(place.offset % kPage + std::max(bytes, buffers_.request));
    return space.memory != nullptr;
  });
  Run& run = runs_.emplace_back();
  run.space = space;
  run.request.file = place.file;
  run.request.offset = place.offset;
  run.request.bytes = bytes;
  run.request.buffer = space.memory + place.offset % kPage;
  run.request.parts_left = 1;  // it is not done before it is sent
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
    if (listed_.size() == kMostListed / 2) for_list_.notify_all();
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
  while (std::ranges::any_of(sent_writes_, [&](const auto& w) { return overlap(w->request, place, p.bytes); }))
    finish_oldest_write(lock);
  Run& run = run_for(lock, place, p.bytes);  // there is room: all else has been taken and given back
  ++run.pieces_left;
  send(lock, run);
  return run;
}

void FileQueue::give_back(Run& run) {
  const Lock lock(mutex_);
  --run.pieces_left;
  while (!runs_.empty() && runs_.front().sent && runs_.front().pieces_left == 0) {
    read_ring_.give_back(runs_.front().space.end);
    runs_.pop_front();
  }
  // What lists is not woken for every piece: it then runs for a while.
  if (listed_.empty() || read_ring_.free() >= free_at_notice_ + read_ring_.size() / 4 ||
      read_ring_.free() < free_at_notice_) {
    free_at_notice_ = read_ring_.free();
    for_list_.notify_all();
  }
}

std::byte* FileQueue::begin_write(const Piece& p) {
  const auto place = place_of(p);
  if (!place) return nullptr;
  if (!place->file->writable()) throw std::logic_error("a schedule writes to a file that is only read");
  Lock lock(mutex_);
  traffic_.written += p.words() * p.width();
  for_machine_.wait(lock, [&] { return !listed_writes_.empty() || ended_; });
  if (!listed_writes_.empty()) {
    write_ = listed_writes_.front();
    const Request& r = write_->request;
    if (r.file != place->file || r.offset != place->offset || r.bytes != p.bytes)
      throw std::logic_error("a machine writes another block than was listed");
    listed_writes_.pop_front();
  } else {
    if (list_error_) std::rethrow_exception(list_error_);
    write_ = std::make_shared<Write>();
    write_->request.kind = Request::Kind::write;
    write_->request.file = place->file;
    write_->request.offset = place->offset;
    write_->request.bytes = p.bytes;
  }
  while (!sent_writes_.empty() && Engine::is_done(sent_writes_.front()->request)) finish_oldest_write(lock);
  while (std::ranges::any_of(sent_writes_, [&](const auto& w) { return overlap(w->request, *place, p.bytes); }))
    finish_oldest_write(lock);
  const index_t bytes = place->offset % kPage + p.bytes;
  while ((write_->space = write_ring_.take(bytes)).memory == nullptr) finish_oldest_write(lock);
  write_->request.buffer = write_->space.memory + place->offset % kPage;
  return write_->request.buffer;
}

void FileQueue::send_write() {
  if (before_write_) before_write_(*write_->request.file, write_->request.offset, write_->request.bytes);
  const Lock lock(mutex_);
  sent_writes_.push_back(write_);
  engine_.submit(write_->request);
  write_.reset();
  if (std::exchange(list_waits_, false) || listed_writes_.size() + 1 == kMostListed) for_list_.notify_all();
}

void FileQueue::finish_oldest_write(Lock& lock) {
  const std::shared_ptr<Write> oldest = sent_writes_.front();
  lock.unlock();
  const auto start = std::chrono::steady_clock::now();
  Engine::wait_done(oldest->request);
  traffic_.waited += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  lock.lock();
  sent_writes_.pop_front();
  write_ring_.give_back(oldest->space.end);
  engine_.wait(oldest->request);
}

void FileQueue::finish_writes() {
  Lock lock(mutex_);
  while (!sent_writes_.empty()) finish_oldest_write(lock);
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
