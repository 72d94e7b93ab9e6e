#pragma once
#include <functional>
#include <memory>
#include <vector>

#include "redblue/core/error.hpp"
#include "redblue/core/machine.hpp"
#include "redblue/machine/storage.hpp"

namespace redblue::machine {

/// Runs schedules on the caller's memory. Fast memory is an arena of exactly M words of T; slow memory is read and
/// written where it lies. A stream, and a block that is updated, is a view of slow memory where its element type and
/// strides allow, else it passes through a staging buffer (reported apart: the model charges one word).
template <class T>
class Ram : public MachineFace<Ram<T>> {
 public:
  Ram(index_t M, SlowMemory slow)
      : M_(M), arena_(std::make_unique_for_overwrite<T[]>(static_cast<std::size_t>(M))), slow_(slow) {}

  index_t open(Shape s, Layout) {
    require(s.words());
    tiles_.push_back(View<T>(arena_.get() + used_, s, s.cols));
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
    for (const auto& s : staging_) words += s.size();
    return static_cast<index_t>(words);
  }

 private:
  static constexpr std::size_t kMaxArgs = 8;
  struct Views {
    std::array<View<T>, kMaxArgs> list{};
    std::size_t size = 0;
    std::span<const View<T>> span() const { return {list.data(), size}; }
  };

  void require(index_t more) const {
    if (used_ + more > M_) redblue::detail::throw_capacity(used_ + more, M_);
  }
  const Storage& storage(const Block& b) const { return slow_[index_of(b.array)]; }
  static bool is_view(const Storage& s) { return s.dtype == kDTypeOf<T> && s.uniform_rows(); }
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
    auto& buffer = staging_[i];
    if (buffer.size() < static_cast<std::size_t>(s.words())) buffer.resize(static_cast<std::size_t>(s.words()));
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

  index_t M_;
  index_t used_ = 0;
  std::unique_ptr<T[]> arena_;
  SlowMemory slow_;
  std::vector<View<T>> tiles_;
  std::array<std::vector<T>, kMaxArgs> staging_;
};

}  // namespace redblue::machine
