#pragma once
#include <cstddef>

#include "redblue/files/io/open_file.hpp"

namespace redblue::file::io {

/// Memory for requests that is given back in the order in which it was taken: pieces of whole pages, side by side. What
/// it holds is counted from its first use on, round after round.
class Ring {
 public:
  /// Throws MemoryError where the system has not as much.
  explicit Ring(index_t bytes);
  ~Ring();
  Ring(const Ring&) = delete;
  Ring& operator=(const Ring&) = delete;

  struct Space {
    std::byte* memory = nullptr;  ///< null: there is no room now
    index_t begin = 0, end = 0;   ///< as numbers that only grow
  };
  /// Takes memory for this number of bytes. There is room for any that are not more than all, where nothing is taken.
  Space take(index_t bytes);
  /// Gives back the end of the piece that was taken last, from its first `bytes` bytes on; of another piece nothing.
  void cut(Space& space, index_t bytes);
  /// Gives back all that was taken up to this end.
  void give_back(index_t end);

  index_t size() const { return size_; }
  index_t free() const { return size_ - (head_ - tail_); }

 private:
  index_t size_;
  std::byte* memory_;
  index_t head_ = 0, tail_ = 0;
};

}  // namespace redblue::file::io
