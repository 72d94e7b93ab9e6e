#pragma once
#include <array>
#include <memory>
#include <new>
#include <numeric>
#include <span>
#include <stdexcept>
#include <vector>

#include "redblue/language/arg.hpp"
#include "redblue/language/view.hpp"
#include "redblue/machines/ram/tile_stack.hpp"

namespace redblue::machine {

/// The most arguments of a kernel: each has a staging buffer of its own.
inline constexpr std::size_t kMaxArgs = 14;

/// What an arena takes: words for tiles, with those left out between them, and for each staging buffer.
struct ArenaWords {
  index_t tiles = 0;
  std::array<index_t, kMaxArgs> staging{};

  /// Staging buffer i holds a matrix of this shape.
  void stage(std::size_t i, Shape s) { staging[i] = std::max(staging[i], s.words()); }
  /// For another use of the same arena, too.
  void grow(const ArenaWords& other) {
    tiles = std::max(tiles, other.tiles);
    for (std::size_t i = 0; i < staging.size(); ++i) staging[i] = std::max(staging[i], other.staging[i]);
  }
};

/// Memory for an arena: as many words, each piece beginning on a cache line.
template <class T>
struct ArenaMemory {
  std::span<T> tiles;
  std::array<std::span<T>, kMaxArgs> staging;
};

/// The fast memory of one worker: the words of a stack of tiles, and staging buffers beside it.
template <class T>
class alignas(64) Arena {
 public:
  /// Takes memory from the system as it is needed, by the thread that will use it.
  explicit Arena(index_t M) : tiles_(M, sizeof(T)) {}
  /// Has this memory and takes no other.
  Arena(index_t M, const ArenaMemory<T>& memory) : Arena(M) { begin(M, memory); }
  /// As a new one, which has this memory and takes no other.
  void begin(index_t M, const ArenaMemory<T>& memory) {
    tiles_.begin(M);
    elsewhere_.clear();
    words_ = {};
    given_ = true;
    memory_ = memory;
  }

  index_t used() const { return tiles_.used(); }  ///< words of the tiles that are open
  index_t most_used() const { return tiles_.most_used(); }
  index_t most_skipped() const { return tiles_.most_skipped(); }
  index_t staging_words() const { return std::accumulate(words_.staging.begin(), words_.staging.end(), index_t{0}); }
  /// Holds `more` further words for a moment. Throws CapacityError unless they fit.
  void require(index_t more) { tiles_.hold(more); }

  /// Opens a tile on top of the stack and returns its depth.
  index_t open(Shape s, const kernel::Placement& place) {
    tiles_.require(TileStack::words_of(s, place));
    reserve(tiles_.next() + place.words);
    const index_t depth = tiles_.open(s, place);
    if (size(elsewhere_) == depth)
      elsewhere_.push_back({});
    else
      set_here(depth);
    return depth;
  }
  index_t open(Shape s) { return open(s, {s.words(), s.cols, Layout::row_major}); }
  /// Closes the topmost tile.
  void close(index_t depth, Shape s) { tiles_.close(depth, s); }
  const TileStack::Tile& place_of(index_t depth) const { return tiles_[depth]; }

  /// set_elsewhere: a tile that kernels only read, or one of padded rows, is a view of `there`, and the memory for its
  /// rows stays unused; a tile of output panels may be stored there. set_here: it lies in its own memory again; where
  /// it will be stored is unknown.
  void set_elsewhere(index_t depth, const View<T>& there) { elsewhere_[static_cast<std::size_t>(depth)] = there; }
  void set_here(index_t depth) { elsewhere_[static_cast<std::size_t>(depth)].data = nullptr; }
  bool is_elsewhere(index_t depth) const { return elsewhere_[static_cast<std::size_t>(depth)].data != nullptr; }

  /// A whole tile. Valid until the next one is opened: the memory may move then.
  View<T> tile(index_t depth) const {
    const TileStack::Tile& t = tiles_[depth];
    T* const own = memory_.tiles.data() + t.first;
    View<T> v{own + t.place.panels, t.shape, t.place.row_stride, 1, t.place.layout};
    const View<T>& there = elsewhere_[static_cast<std::size_t>(depth)];
    if (t.place.layout == Layout::output_panels) {
      v.other_form = there.data;
      v.row_stride = there.row_stride;
    } else if (there.data != nullptr) {
      v.data = there.data;
      v.row_stride = there.row_stride;
      v.col_stride = there.col_stride;
    }
    if (t.place.panels > 0) v.other_form = own;
    return v;
  }
  /// The rectangle of a tile that an argument names.
  View<T> view(const Arg& tile) const {
    View<T> v = this->tile(tile.depth);
    const bool whole = v.shape == tile.shape(), begins = tile.block.row == 0 && tile.block.col == 0;
    if (v.packed() && !(whole || (begins && v.layout == Layout::panel_scratch)))
      throw std::logic_error("a packed tile is used whole");
    if (v.layout == Layout::key_panels && !whole) v.layout = Layout::row_major;  // the panels are of all rows
    v.data += tile.block.row * v.row_stride + tile.block.col * v.col_stride;
    v.shape = tile.shape();
    return v;
  }

  /// The words of all open tiles, and those between them.
  std::span<T> open_words() const { return memory_.tiles.first(static_cast<std::size_t>(tiles_.top())); }

  /// A row-major buffer for argument i of a kernel; what was in it is gone.
  View<T> stage(std::size_t i, Shape s) {
    std::span<T>& buffer = memory_.staging[i];
    words_.stage(i, s);
    if (s.words() > size(buffer)) {
      require_own();
      own_staging_[i].resize(static_cast<std::size_t>(s.words()));
      buffer = own_staging_[i];
    }
    return {buffer.data(), s, s.cols};
  }

 private:
  struct Free {
    void operator()(T* p) const { ::operator delete(p, std::align_val_t(TileStack::kLineBytes)); }
  };

  static index_t size(const auto& list) { return static_cast<index_t>(list.size()); }
  void require_own() const {
    if (given_) throw Error("an arena was given less memory than its schedule takes");
  }
  /// Provides memory for at least this many words; keeps the words of open tiles.
  void reserve(index_t words) {
    if (words <= size(memory_.tiles)) return;
    require_own();
    constexpr index_t kLines = 8 * TileStack::kLineBytes / sizeof(T);
    const index_t capacity = own_ ? words + words / 2 : std::max(words, tiles_.M() + kLines);
    std::unique_ptr<T[], Free> larger(static_cast<T*>(
        ::operator new(static_cast<std::size_t>(capacity) * sizeof(T), std::align_val_t(TileStack::kLineBytes))));
    std::copy_n(own_.get(), tiles_.top(), larger.get());
    own_ = std::move(larger);
    memory_.tiles = {own_.get(), static_cast<std::size_t>(capacity)};
  }

  TileStack tiles_;
  std::vector<View<T>> elsewhere_;  ///< by depth: where the tile lies if not in its own memory, or may be stored
  ArenaWords words_;
  bool given_ = false;
  ArenaMemory<T> memory_;
  std::unique_ptr<T[], Free> own_;
  std::array<std::vector<T>, kMaxArgs> own_staging_;
};

}  // namespace redblue::machine
