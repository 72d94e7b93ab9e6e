#pragma once
#include <condition_variable>
#include <cstring>
#include <deque>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "redblue/files/io/engine.hpp"
#include "redblue/files/io/file_map.hpp"
#include "redblue/files/io/ring.hpp"
#include "redblue/machines/files/buffers.hpp"
#include "redblue/machines/files/pieces.hpp"

namespace redblue::machine {

/// What passed through a queue: bytes of words, as the model counts them.
struct FileTraffic {
  index_t read = 0, written = 0;
  double waited = 0;  ///< seconds for which the computing side waited for files
};

/// Stands between files and the machine that computes. One thread lists the blocks that the machine will read and
/// write, in that order, by walking through the same schedule (listing.hpp): the queue reads those ahead, as many as
/// its buffers hold, neighbouring ones in one request. The machine, on another thread, takes the blocks in the same
/// order. What it writes waits where the list says that the block behind it in the file will come soon, so that one
/// request writes both. Pages of a file that is only read, where a block has some of their words, stay in the buffers
/// until these are needed for others, and serve all blocks that come meanwhile: columns, whose words lie in the same
/// pages as those of the next ones, are read once. Rows that lie together are read each time. A block that overlaps one
/// which is still to be written is read after that. Where nothing is listed (the schedule asks for data) a block is
/// read when the machine wants it, and written at once.
///
/// Words at addresses that are not of the map are in memory, and the queue leaves them alone.
class FileQueue {
 public:
  /// `map` and `engine` outlive it. Throws InvalidProblem where the buffers are too small for two requests.
  FileQueue(const file::io::FileMap& map, file::io::Engine& engine, const FileBuffers& buffers);
  /// Waits for all requests.
  ~FileQueue();
  FileQueue(const FileQueue&) = delete;
  FileQueue& operator=(const FileQueue&) = delete;

  /// How blocks are cut into requests.
  static Cut cut_for(const FileBuffers& buffers);

  // The thread that lists. It waits where the buffers are full. All throw Stopped after stop().
  struct Stopped {};
  void list_read(const Storage& s, const Block& b);
  void list_write(const Storage& s, const Block& b);
  void list_add(const Storage& s, const Block& b);
  /// Nothing more is known. The machine meets the error, if there is one, where it comes to the end of the list.
  void end_list(std::exception_ptr error = nullptr);

  // The thread that computes.
  /// Calls visit(piece, storage) for the pieces of a block; `storage` is where its words lie in memory.
  template <class Visit>
  void read(const Storage& s, const Block& b, const Visit& visit) {
    for_pieces(s, b, cut(), [&](const Piece& p) {
      const Taken taken = take(p, true);
      visit(p, taken.bytes == nullptr ? p.storage : p.at(taken.bytes));
      if (taken.bytes != nullptr) give_back(*taken.run);
    });
  }
  /// Does the same, and writes what visit() leaves there.
  template <class Visit>
  void write(const Storage& s, const Block& b, const Visit& visit) {
    for_pieces(s, b, cut(), [&](const Piece& p) {
      if (!p.is_whole()) return rewrite(p, false, visit);
      std::byte* const to = begin_write(p);
      visit(p, to == nullptr ? p.storage : p.at(to));
      if (to != nullptr) send_write();
    });
  }
  /// Does the same where visit() finds what is there. Words of two pieces may be one place.
  template <class Visit>
  void add(const Storage& s, const Block& b, const Visit& visit) {
    for_pieces(s, b, cut(), [&](const Piece& p) { rewrite(p, true, visit); });
  }
  /// Waits until all that was handed to write() and add() is written. Throws IoError where that fails.
  void finish_writes();
  /// The same at the end. Throws also std::logic_error where something listed was not
  /// taken.
  void finish();
  /// The machine has failed: what lists is stopped.
  void stop();

  /// Called on the thread that computes before bytes of a file are written.
  using BeforeWrite = std::function<void(const file::io::OpenFile& file, index_t offset, index_t bytes)>;
  void before_write(BeforeWrite call) { before_write_ = std::move(call); }

  const FileTraffic& traffic() const { return traffic_; }
  index_t bytes() const { return read_ring_.size() + write_ring_.size(); }  ///< of memory

 private:
  using Request = file::io::Request;
  /// Words of several pieces that one request reads.
  struct Run {
    Request request;
    file::io::Ring::Space space;
    index_t pieces_left = 0;
    bool sent = false;
  };
  struct Listed {
    std::uintptr_t first;
    index_t bytes;
    Run* run;
  };
  struct ListedWrite {
    const file::io::OpenFile* file;
    index_t offset, bytes;
  };
  /// Words of several pieces that one request writes.
  struct Write {
    Request request;
    file::io::Ring::Space space{};
    index_t sent_as = 0;  ///< its number among those that are sent, from 1 on; 0: it is not sent, and may grow
  };
  struct Taken {
    std::byte* bytes = nullptr;
    Run* run = nullptr;
  };
  using Lock = std::unique_lock<std::mutex>;

  Cut cut() const { return cut_for(buffers_); }
  std::optional<file::io::FileMap::Place> place_of(const Piece& p) const;
  // What lists.
  void list_piece(Lock& lock, const Piece& p, const Block& b);
  void list_write_of(Lock& lock, const Piece& p);
  void wait_for_writes(Lock& lock, const file::io::FileMap::Place& place, index_t bytes);
  void wait_for_machine(Lock& lock, const auto& is_ready);
  /// `alone`: is it all of its block? Then what follows it in the file may follow it in the list, too. `shares`: may
  /// its pages serve other blocks?
  Run& run_for(Lock& lock, const file::io::FileMap::Place& place, index_t bytes, bool alone, bool shares);
  Run* run_that_has(const Request& r);
  void drop_first();
  index_t available() const;
  void send(Lock& lock, Run& run);
  void send_all(Lock& lock);
  // What computes.
  /// `counted`: are its words what the schedule reads?
  Taken take(const Piece& p, bool counted);
  Run& read_now(Lock& lock, const file::io::FileMap::Place& place, const Piece& p);
  void give_back(Run& run);
  std::byte* begin_write(const Piece& p);
  void send_write();
  void find_write(Lock& lock, const ListedWrite& piece);
  bool goes_on(const file::io::OpenFile* file, index_t end) const;
  void send(Lock& lock, const std::shared_ptr<Write>& write);
  void finish_oldest_write(Lock& lock);
  /// Reads a piece, and writes it as visit() leaves it.
  template <class Visit>
  void rewrite(const Piece& p, bool counted, const Visit& visit) {
    const Taken taken = take(p, counted);
    if (taken.bytes == nullptr) return visit(p, p.storage);
    std::byte* const to = begin_write(p);
    std::memcpy(to, taken.bytes, static_cast<std::size_t>(p.bytes));
    give_back(*taken.run);
    visit(p, p.at(to));
    send_write();
  }

  const file::io::FileMap& map_;
  file::io::Engine& engine_;
  const FileBuffers buffers_;

  std::mutex mutex_;
  std::condition_variable for_machine_, for_list_;
  file::io::Ring read_ring_, write_ring_;
  std::deque<Run> runs_;  ///< in the order of their memory
  std::size_t idle_ = 0;  ///< the first of them, whose pieces have all been taken
  /// Those with whole pages of files that are only read, by where these begin.
  std::map<std::pair<const file::io::OpenFile*, index_t>, Run*> of_pages_;
  std::vector<Run*> open_;                     ///< of them, those that are not sent
  std::deque<Listed> listed_;                  ///< pieces that the machine has not taken
  std::deque<ListedWrite> listed_writes_;      ///< the machine is making the first, or will
  std::deque<std::shared_ptr<Write>> writes_;  ///< in the order of their memory
  std::shared_ptr<Write> write_;               ///< to which the machine adds a piece
  ListedWrite piece_{};                        ///< that it adds
  index_t writes_sent_ = 0;
  bool ended_ = false, stopped_ = false, list_waits_ = false;
  index_t free_at_notice_ = 0;  ///< bytes of the read ring when the list last heard of them
  std::exception_ptr list_error_;
  FileTraffic traffic_;
  BeforeWrite before_write_;
};

}  // namespace redblue::machine
