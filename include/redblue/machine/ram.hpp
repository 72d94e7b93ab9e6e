#pragma once
#include <functional>
#include <memory>
#include <vector>

#include "redblue/core/error.hpp"
#include "redblue/core/machine.hpp"
#include "redblue/machine/storage.hpp"

namespace redblue::machine {

/// The most arguments of a kernel: each has a staging buffer of its own.
inline constexpr std::size_t kMaxArgs = 8;
/// Words of the staging buffer of each argument.
using StagingWords = std::array<index_t, kMaxArgs>;

/// What a Ram takes beside slow memory, where someone else provides it.
template <class T>
struct RamMemory {
  std::span<T> arena;  ///< fast memory: M words
  std::array<std::span<T>, kMaxArgs> staging;
};

/// Runs schedules on the caller's memory. Fast memory is an arena of exactly M words of T; slow memory is read and
/// written where it lies. A stream, and a block that is updated, is a view of slow memory where its element type and
/// strides allow, else it passes through a staging buffer (reported apart: the model charges one word).
template <class T>
class Ram : public MachineFace<Ram<T>> {
 public:
  /// Allocates fast memory now, and staging buffers when they are needed.
  Ram(index_t M, SlowMemory slow)
      : slow_(slow), own_(std::make_unique_for_overwrite<T[]>(static_cast<std::size_t>(M))), own_staging_(kMaxArgs) {
    memory_.arena = {own_.get(), static_cast<std::size_t>(M)};
  }
  /// Allocates nothing but its stack of tiles. Staging says how large the buffers must be.
  Ram(const RamMemory<T>& memory, SlowMemory slow) : memory_(memory), slow_(slow) {}

  /// Do streams and updates see this array where it lies?
  static bool is_view(const Storage& s) { return s.dtype == kDTypeOf<T> && s.uniform_rows(); }

  index_t open(Shape s, Layout) {
    require(s.words());
    tiles_.push_back(View<T>(memory_.arena.data() + used_, s, s.cols));
    used_ += s.words();
    return static_cast<index_t>(tiles_.size()) - 1;
  }
  void close(index_t depth, Shape s) {
    tiles_.resize(static_cast<std::size_t>(depth));
    used_ -= s.words();
  }
  void read(const Arg& tile, const Block& b) { gather(storage(b), b, view(tile).data, view(tile).row_stride); }
  void write(const Block& b, const Arg& tile) {
    const View<T> v = view(tile);
    scatter(storage(b), b, v.data, v.row_stride, v.col_stride);
  }
  template <class K>
  void run(const K& k, std::span<const Arg> args) {
    kernel::for_parts(k, args, [&](const auto&, std::span<const Arg> a) { require(passing(a)); });
    const Views views = resolve(args);
    kernel::run<T>(k, views.span());
  }
  template <class K>
  void modify(const K& k, std::span<const Arg> args) {
    require(1 + passing(args.subspan(1)));
    Views views = resolve(args.subspan(1), 1);
    const Block& b = args[0].block;
    const bool in_place = is_view(storage(b));
    if (in_place) {
      views.list[0] = direct(b);
    } else {
      views.list[0] = stage(0, b.shape);
      if (!kernel::first_of(k)) gather(storage(b), b, views.list[0].data, b.shape.cols);
    }
    kernel::run<T>(k, views.span());
    if (!in_place) scatter(storage(b), b, views.list[0].data, b.shape.cols, 1);
  }
  template <class Body>
  void each(index_t n, const Body& body) {
    for (index_t i = 0; i < n; ++i) body(*this, i);
  }

  /// Words of staging buffers held beside the arena.
  index_t staging_words() const {
    std::size_t words = 0;
    for (const auto& s : memory_.staging) words += s.size();
    return static_cast<index_t>(words);
  }

 private:
  struct Views {
    std::array<View<T>, kMaxArgs> list{};
    std::size_t size = 0;
    std::span<const View<T>> span() const { return {list.data(), size}; }
  };

  void require(index_t more) const {
    const auto M = static_cast<index_t>(memory_.arena.size());
    if (used_ + more > M) redblue::detail::throw_capacity(used_ + more, M);
  }
  const Storage& storage(const Block& b) const { return slow_[index_of(b.array)]; }
  View<T> direct(const Block& b) const {
    const Storage& s = storage(b);
    return {reinterpret_cast<T*>(s.data) + s.offset(b.instance, b.row, b.col), b.shape, s.uniform_row_stride(),
            s.col_stride};
  }
  View<T> view(const Arg& tile) const {
    View<T> v = tiles_[static_cast<std::size_t>(tile.depth)];
    v.data = &v(tile.block.row, tile.block.col);
    v.shape = tile.shape();
    return v;
  }
  View<T> stage(std::size_t i, Shape s) {
    auto& buffer = memory_.staging[i];
    const auto words = static_cast<std::size_t>(s.words());
    if (buffer.size() < words) {
      if (own_staging_.empty()) throw Error("a staging buffer is smaller than what must pass through it");
      own_staging_[i].resize(words);
      buffer = own_staging_[i];
    }
    return {buffer.data(), s, s.cols};
  }
  Views resolve(std::span<const Arg> args, std::size_t from = 0) {
    Views views;
    views.size = from + args.size();
    for (std::size_t i = 0; i < args.size(); ++i) {
      const Arg& a = args[i];
      View<T>& v = views.list[from + i];
      if (a.kind == Arg::Kind::tile) {
        v = view(a);
      } else {
        if (is_view(storage(a.block))) {
          v = direct(a.block);
        } else {
          v = stage(from + i, a.shape());
          gather(storage(a.block), a.block, v.data, v.row_stride);
        }
      }
    }
    return views;
  }

  RamMemory<T> memory_;
  index_t used_ = 0;
  SlowMemory slow_;
  std::vector<View<T>> tiles_;
  std::unique_ptr<T[]> own_;
  std::vector<std::vector<T>> own_staging_;  ///< none: the buffers are someone else's
};

}  // namespace redblue::machine
