#pragma once
#include <functional>
#include <memory>
#include <vector>

#include "redblue/core/machine.hpp"
#include "redblue/machine/arena.hpp"
#include "redblue/machine/storage.hpp"
#include "redblue/machine/team.hpp"

namespace redblue::machine {

/// Runs schedules on the caller's memory. Every worker has an arena of M words of T as fast memory; slow memory is read
/// and written where it lies. A stream, and a block that is updated, is a view of slow memory where its element type
/// and strides allow, else it passes through a staging buffer (reported apart: the model charges one word).
///
/// A Ram is what one worker sees: its own arena, and the slow memory of the item that it is in. It is made by `each`,
/// which hands the items of a loop to the workers of the team where the worker that meets the loop holds no tile, and
/// else runs them itself: they use its tiles.
template <class T>
class Ram : public MachineFace<Ram<T>> {
 public:
  /// One worker.
  Ram(index_t M, const SlowMemory& slow) : Ram(nullptr, M, {slow}) {}
  /// The workers of a team. `slow` is a slow memory for each item of the outermost loop that may be under way, which
  /// differ in their workspace: as many as there are workers or items, whichever are fewer; or one, for schedules
  /// without workspace and for an outermost loop whose items share it.
  Ram(Team& team, index_t M, std::vector<SlowMemory> slow) : Ram(&team, M, std::move(slow)) {}
  /// The same with memory for the arena of each worker.
  Ram(Team& team, index_t M, std::vector<SlowMemory> slow, std::span<const ArenaMemory<T>> arenas)
      : Ram(&team, M, std::move(slow), arenas) {}

  int workers() const { return static_cast<int>(all_->arenas.size()); }
  int worker() const { return at_.index; }

  /// Do streams and updates see this array where it lies? Else they are staged.
  static bool is_view(const Storage& s) { return s.dtype == kDTypeOf<T> && s.uniform_rows(); }

  index_t open(Shape s, Layout) { return arena().open(s); }
  void close(index_t depth, Shape s) { arena().close(depth, s); }
  void read(const Arg& tile, const Block& b) { gather(storage(b), b, view(tile).data, view(tile).row_stride); }
  void write(const Block& b, const Arg& tile) {
    const View<T> v = view(tile);
    scatter(storage(b), b, v.data, v.row_stride, v.col_stride);
  }
  template <class K>
  void run(const K& k, std::span<const Arg> args) {
    kernel::for_parts(k, args, [&](const auto&, std::span<const Arg> a) { arena().require(passing(a)); });
    const Views views = resolve(args);
    kernel::run<T>(k, views.span());
  }
  template <class K>
  void modify(const K& k, std::span<const Arg> args) {
    arena().require(1 + passing(args.subspan(1)));
    Views views = resolve(args.subspan(1), 1);
    const Block& b = args[0].block;
    const bool in_place = is_view(storage(b));
    if (in_place) {
      views.list[0] = direct(b);
    } else {
      views.list[0] = arena().stage(0, b.shape);
      if (!kernel::first_of(k)) gather(storage(b), b, views.list[0].data, b.shape.cols);
    }
    kernel::run<T>(k, views.span());
    if (!in_place) scatter(storage(b), b, views.list[0].data, b.shape.cols, 1);
  }
  template <class Body>
  void each(index_t n, const Body& body) {
    if (workers() == 1 || arena().used() > 0) {
      for (index_t i = 0; i < n; ++i) body(*this, i);
      return;
    }
    all_->team->each(at_, n, [&](Team::Worker at, index_t i) {
      Ram worker(*all_, at, at_.depth > 0 ? *slow_ : all_->slow_memory(n, i, at.index));
      body(worker, i);
    });
  }

  /// Words of staging buffers that the workers hold beside their arenas.
  index_t staging_words() const { return sum(&Arena<T>::staging_words); }
  /// The most words that the arenas leave out between tiles, so that each begins on a cache line.
  index_t padding_words() const { return sum(&Arena<T>::most_skipped); }

 private:
  /// What the workers have together.
  struct Crew {
    Team* team;
    std::vector<Arena<T>> arenas;
    std::vector<SlowMemory> slow;
    /// For item i of n of the outermost loop: an item's own while there are enough, else a worker's own, who is in one
    /// such item at a time.
    const SlowMemory& slow_memory(index_t n, index_t i, int worker) const {
      const std::size_t own =
          static_cast<std::size_t>(n) <= slow.size() ? static_cast<std::size_t>(i) : static_cast<std::size_t>(worker);
      return slow[slow.size() == 1 ? 0 : own];
    }
  };
  struct Views {
    std::array<View<T>, kMaxArgs> list{};
    std::size_t size = 0;
    std::span<const View<T>> span() const { return {list.data(), size}; }
  };

  Ram(Team* team, index_t M, std::vector<SlowMemory> slow, std::span<const ArenaMemory<T>> arenas = {})
      : own_(std::make_unique<Crew>()), all_(own_.get()) {
    own_->team = team;
    for (std::size_t i = 0; i < (team == nullptr ? 1 : static_cast<std::size_t>(team->workers())); ++i)
      own_->arenas.push_back(i < arenas.size() ? Arena<T>(M, arenas[i]) : Arena<T>(M));
    own_->slow = std::move(slow);
    slow_ = &own_->slow.front();
  }
  Ram(Crew& all, Team::Worker at, const SlowMemory& slow) : all_(&all), at_(at), slow_(&slow) {}

  Arena<T>& arena() const { return all_->arenas[static_cast<std::size_t>(at_.index)]; }
  const Storage& storage(const Block& b) const { return (*slow_)[index_of(b.array)]; }
  View<T> direct(const Block& b) const {
    const Storage& s = storage(b);
    return {reinterpret_cast<T*>(s.data) + s.offset(b.instance, b.row, b.col), b.shape, s.uniform_row_stride(),
            s.col_stride};
  }
  View<T> view(const Arg& tile) const {
    View<T> v = arena().tile(tile.depth);
    v.data = &v(tile.block.row, tile.block.col);
    v.shape = tile.shape();
    return v;
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
          v = arena().stage(from + i, a.shape());
          gather(storage(a.block), a.block, v.data, v.row_stride);
        }
      }
    }
    return views;
  }
  index_t sum(index_t (Arena<T>::*words)() const) const {
    index_t total = 0;
    for (const Arena<T>& a : all_->arenas) total += (a.*words)();
    return total;
  }

  std::unique_ptr<Crew> own_;  // of the Ram that a user makes; empty in those that `each` makes
  Crew* all_;
  Team::Worker at_{};
  const SlowMemory* slow_;
};

}  // namespace redblue::machine
