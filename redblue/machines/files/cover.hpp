#pragma once
#include <algorithm>
#include <deque>

#include "redblue/machines/files/file_queue.hpp"

namespace redblue::machine {

inline Range pages_of(index_t first, index_t bytes) {
  return {file::io::down_to_page(first), file::io::up_to_page(first + bytes)};
}

/// The pages that were moved last, as far as they are at hand: those of a few ranges, and of no more than some bytes.
class LastPages {
 public:
  LastPages(std::size_t ranges, index_t bytes) : most_(ranges), bytes_(bytes) {}

  /// Bytes of the pages from `first` on that are not at hand. They are from now on.
  index_t add(index_t first, index_t bytes) {
    const Range pages = pages_of(first, bytes);
    const auto near = std::ranges::find_if(ranges_, [&](Range r) {
      return r.begin <= pages.begin && (pages.end <= r.end || (pages.begin <= r.end && r.size() < bytes_));
    });
    if (near != ranges_.end()) {
      const index_t more = std::max<index_t>(0, pages.end - near->end);
      near->end += more;
      held_ += more;
      return more;
    }
    ranges_.push_back(pages);
    held_ += pages.size();
    while (ranges_.size() > most_ || (held_ > bytes_ && ranges_.size() > 1)) {
      held_ -= ranges_.front().size();
      ranges_.pop_front();
    }
    return pages.size();
  }

 private:
  std::size_t most_;
  index_t bytes_, held_ = 0;
  std::deque<Range> ranges_;
};

/// Adds up what requests for blocks take (listing.hpp): whole pages, and of columns, and of other blocks whose rows lie
/// apart, what lies between.
class Cover {
 public:
  /// Thrown after this number of pieces: the rest is taken to be like them.
  struct Enough {};
  static constexpr index_t kMost = 50'000;

  explicit Cover(const FileBuffers& buffers)
      : cut_(FileQueue::cut_for(buffers)),
        kept_(kRanges, buffers.read),
        read_(kRuns, buffers.request),
        written_(kRuns, buffers.request) {}

  void list_read(const Storage& s, const Block& b) { add(s, b, 1, 0); }
  void list_write(const Storage& s, const Block& b) { add(s, b, 0, 1); }
  void list_add(const Storage& s, const Block& b) { add(s, b, 1, 1); }
  /// Bytes of requests over bytes of words, and 1 where pages that serve several blocks make it less.
  double ratio() const {
    return words_ == 0 ? 1 : std::max(1.0, static_cast<double>(bytes_) / static_cast<double>(words_));
  }

 private:
  static constexpr std::size_t kRanges = 256, kRuns = 8;

  void add(const Storage& s, const Block& b, index_t reads, index_t writes) {
    for_pieces(s, b, cut_, [&](const Piece& p) {
      words_ += (reads + writes) * p.words() * p.width();
      const auto first = static_cast<index_t>(p.first);
      if (s.writable && !p.is_whole()) {  // each such piece is read, and written, by itself
        bytes_ += (1 + writes) * pages_of(first, p.bytes).size();
      } else {
        if (reads > 0) bytes_ += (shares_pages(p, b) ? kept_ : read_).add(first, p.bytes);
        if (writes > 0) bytes_ += written_.add(first, p.bytes);
      }
      if (++pieces_ == kMost) throw Enough{};
    });
  }

  Cut cut_;
  LastPages kept_;            ///< those that serve several blocks: they stay in the buffers
  LastPages read_, written_;  ///< those of requests that grow
  index_t words_ = 0, bytes_ = 0, pieces_ = 0;
};

}  // namespace redblue::machine
