#pragma once
#include <algorithm>
#include <array>
#include <memory>
#include <new>
#include <span>
#include <vector>

#include "redblue/core/error.hpp"
#include "redblue/core/view.hpp"
#include "redblue/kernel/bodies.hpp"

namespace redblue::machine {

/// The most arguments of a kernel: each has a staging buffer of its own.
inline constexpr std::size_t kMaxArgs = 10;

/// What an arena takes: words for tiles, with those left out between them, and for each staging buffer.
struct ArenaWords {
  index_t tiles = 0;
  std::array<index_t, kMaxArgs> staging{};
};

/// Memory for an arena: as many words, each piece beginning on a cache line.
template <class T>
struct ArenaMemory {
  std::span<T> tiles;
  std::array<std::span<T>, kMaxArgs> staging;
};

/// The fast memory of one worker: a stack of tiles that together hold at most M words of T, and staging buffers beside
/// it. Each tile begins on a cache line of its own and lies as its layout asks; words left out or added for that are
/// not counted among the M.
template <class T>
class alignas(64) Arena {
 public:
  /// Takes memory from the system as it is needed, by the thread that will use it.
  explicit Arena(index_t M) : M_(M) {}
  /// Has this memory and takes no other.
  Arena(index_t M, const ArenaMemory<T>& memory) : M_(M), kind_(Kind::given), memory_(memory) {}
  /// Has none: its tiles and buffers lie nowhere. To learn how much memory such an arena takes.
  static Arena without_memory(index_t M) {
    Arena a(M);
    a.kind_ = Kind::none;
    return a;
  }

  bool has_memory() const { return kind_ != Kind::none; }
  /// The most that was taken at a time.
  const ArenaWords& words() const { return words_; }

  index_t used() const { return used_; }                  ///< words of the tiles that are open
  index_t most_skipped() const { return most_skipped_; }  ///< the most words that layouts and cache lines take beside
  index_t staging_words() const {
    index_t words = 0;
    for (const index_t w : words_.staging) words += w;
    return words;
  }

  /// Throws CapacityError unless so many more words fit.
  void require(index_t more) const {
    if (used_ + more > M_) redblue::detail::throw_capacity(used_ + more, M_);
  }
  /// Opens a tile on top of the stack, which counts the words of its shape and lies as `place` says. Returns its depth.
  index_t open(Shape s, const kernel::Placement& place) {
    require(s.words());
    const index_t first = ceil_div(top_, kLine) * kLine;
    reserve(first + place.words);
    tiles_.push_back({first, s, place, {}});
    used_ += s.words();
    top_ = first + place.words;
    words_.tiles = std::max(words_.tiles, top_);
    most_skipped_ = std::max(most_skipped_, top_ - used_);
    return static_cast<index_t>(tiles_.size()) - 1;
  }
  index_t open(Shape s) { return open(s, {s.words(), s.cols, Layout::row_major}); }
  /// Closes the topmost tile.
  void close(index_t depth, Shape s) {
    tiles_.resize(static_cast<std::size_t>(depth));
    used_ -= s.words();
    top_ = tiles_.empty() ? 0 : tiles_.back().first + tiles_.back().place.words;
  }
  /// A tile that kernels only read is `there` already: the memory for its rows stays unused.
  void set_view(index_t depth, const View<T>& there) { tiles_[static_cast<std::size_t>(depth)].view = there; }
  /// Valid until the next tile is opened: the memory may move then.
  View<T> tile(index_t depth) const {
    const Tile& t = tiles_[static_cast<std::size_t>(depth)];
    T* const own = has_memory() ? memory_.tiles.data() + t.first : nullptr;
    View<T> v{has_memory() ? own + t.place.panels : nullptr, t.shape, t.place.row_stride, 1, t.place.layout};
    if (t.view.data != nullptr) v = t.view;
    if (t.place.panels > 0) v.panels = own;
    return v;
  }
  /// A row-major buffer for argument i of a kernel; what was in it is gone.
  View<T> stage(std::size_t i, Shape s) {
    std::span<T>& buffer = memory_.staging[i];
    words_.staging[i] = std::max(words_.staging[i], s.words());
    if (s.words() > size(buffer) && has_memory()) {
      require_own();
      own_staging_[i].resize(static_cast<std::size_t>(s.words()));
      buffer = own_staging_[i];
    }
    return {buffer.data(), s, s.cols};
  }

 private:
  static constexpr std::size_t kAlignment = 64;  // bytes
  static constexpr index_t kLine = kAlignment / sizeof(T);
  enum class Kind : std::uint8_t { own, given, none };
  struct Tile {
    index_t first;
    Shape shape;
    kernel::Placement place;
    View<T> view{};
  };
  struct Free {
    void operator()(T* p) const { ::operator delete(p, std::align_val_t(kAlignment)); }
  };

  static index_t size(std::span<T> s) { return static_cast<index_t>(s.size()); }
  void require_own() const {
    if (kind_ == Kind::given) throw Error("an arena was given less memory than its schedule takes");
  }
  void reserve(index_t words) {
    if (words <= size(memory_.tiles) || !has_memory()) return;
    require_own();
    const index_t capacity = own_ ? words + words / 2 : std::max(words, M_ + 8 * kLine);
    std::unique_ptr<T[], Free> larger(
        static_cast<T*>(::operator new(static_cast<std::size_t>(capacity) * sizeof(T), std::align_val_t(kAlignment))));
    std::copy_n(own_.get(), top_, larger.get());
    own_ = std::move(larger);
    memory_.tiles = {own_.get(), static_cast<std::size_t>(capacity)};
  }

  index_t M_;
  index_t used_ = 0;
  index_t top_ = 0;  ///< the end of the topmost tile in memory_
  index_t most_skipped_ = 0;
  ArenaWords words_;
  Kind kind_ = Kind::own;
  ArenaMemory<T> memory_;
  std::vector<Tile> tiles_;
  std::unique_ptr<T[], Free> own_;
  std::array<std::vector<T>, kMaxArgs> own_staging_;
};

}  // namespace redblue::machine
