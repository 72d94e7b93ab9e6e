#pragma once
#include <array>
#include <memory>
#include <new>
#include <vector>

#include "redblue/core/error.hpp"
#include "redblue/core/view.hpp"

namespace redblue::machine {

/// The fast memory of one worker: a stack of tiles that together hold at most M words of T, and staging buffers beside
/// it. Each tile begins on a cache line of its own; the words left out for that belong to no tile and are not counted
/// among the M. What it takes from the system it takes when the first tile is opened, by the thread that will use it.
template <class T>
class alignas(64) Arena {
 public:
  static constexpr std::size_t kMaxArgs = 8;  ///< arguments of a kernel, so staging buffers

  explicit Arena(index_t M) : M_(M) {}

  index_t used() const { return used_; }                  ///< words of the tiles that are open
  index_t most_skipped() const { return most_skipped_; }  ///< the most words left out between tiles
  index_t staging_words() const {
    std::size_t words = 0;
    for (const auto& s : staging_) words += s.size();
    return static_cast<index_t>(words);
  }

  /// Throws CapacityError unless so many more words fit.
  void require(index_t more) const {
    if (used_ + more > M_) redblue::detail::throw_capacity(used_ + more, M_);
  }
  /// Opens a tile on top of the stack. Returns its depth.
  index_t open(Shape s) {
    require(s.words());
    const index_t first = ceil_div(top_, kLine) * kLine;
    reserve(first + s.words());
    tiles_.push_back({first, s});
    used_ += s.words();
    top_ = first + s.words();
    most_skipped_ = std::max(most_skipped_, top_ - used_);
    return static_cast<index_t>(tiles_.size()) - 1;
  }
  /// Closes the topmost tile.
  void close(index_t depth, Shape s) {
    tiles_.resize(static_cast<std::size_t>(depth));
    used_ -= s.words();
    top_ = tiles_.empty() ? 0 : tiles_.back().first + tiles_.back().shape.words();
  }
  /// Valid until the next tile is opened: the memory may move then.
  View<T> tile(index_t depth) const {
    const Place& p = tiles_[static_cast<std::size_t>(depth)];
    return {memory_.get() + p.first, p.shape, p.shape.cols};
  }
  /// A row-major buffer for argument i of a kernel; what was in it is gone.
  View<T> stage(std::size_t i, Shape s) {
    auto& buffer = staging_[i];
    if (buffer.size() < static_cast<std::size_t>(s.words())) buffer.resize(static_cast<std::size_t>(s.words()));
    return {buffer.data(), s, s.cols};
  }

 private:
  static constexpr std::size_t kAlignment = 64;  // bytes
  static constexpr index_t kLine = kAlignment / sizeof(T);
  struct Place {
    index_t first;
    Shape shape;
  };
  struct Free {
    void operator()(T* p) const { ::operator delete(p, std::align_val_t(kAlignment)); }
  };

  void reserve(index_t words) {
    if (memory_ && words <= capacity_) return;
    const index_t capacity = memory_ ? words + words / 2 : std::max(words, M_ + 8 * kLine);
    std::unique_ptr<T[], Free> larger(
        static_cast<T*>(::operator new(static_cast<std::size_t>(capacity) * sizeof(T), std::align_val_t(kAlignment))));
    std::copy_n(memory_.get(), top_, larger.get());
    memory_ = std::move(larger);
    capacity_ = capacity;
  }

  index_t M_;
  index_t used_ = 0;
  index_t top_ = 0;  ///< the end of the topmost tile in memory_
  index_t most_skipped_ = 0;
  index_t capacity_ = 0;
  std::unique_ptr<T[], Free> memory_;
  std::vector<Place> tiles_;
  std::array<std::vector<T>, kMaxArgs> staging_;
};

}  // namespace redblue::machine
