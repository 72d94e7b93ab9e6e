#pragma once
#include "redblue/machines/files/file_queue.hpp"

namespace redblue::machine {

/// Adds up what requests for blocks take (listing.hpp): columns, and other blocks whose rows lie apart, take what lies
/// between.
class Cover {
 public:
  /// Thrown after this number of pieces: the rest is taken to be like them.
  struct Enough {};
  static constexpr index_t kMost = 50'000;

  explicit Cover(const FileBuffers& buffers) : cut_(FileQueue::cut_for(buffers)) {}

  void list_read(const Storage& s, const Block& b) { add(s, b, 1, 0); }
  void list_write(const Storage& s, const Block& b) { add(s, b, 0, 1); }
  void list_add(const Storage& s, const Block& b) { add(s, b, 1, 1); }
  /// Bytes of requests over bytes of words.
  double ratio() const { return words_ == 0 ? 1 : static_cast<double>(bytes_) / static_cast<double>(words_); }

 private:
  void add(const Storage& s, const Block& b, index_t reads, index_t writes) {
    for_pieces(s, b, cut_, [&](const Piece& p) {
      words_ += (reads + writes) * p.words() * p.width();
      bytes_ += (p.is_whole() ? reads + writes : 1 + writes) * p.bytes;
      if (++pieces_ == kMost) throw Enough{};
    });
  }

  Cut cut_;
  index_t words_ = 0, bytes_ = 0, pieces_ = 0;
};

}  // namespace redblue::machine
