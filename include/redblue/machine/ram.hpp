#pragma once
#include <algorithm>
#include <bit>
#include <cstdint>
#include <memory>
#include <span>
#include <stdexcept>
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
  Ram(index_t M, const SlowMemory& slow, const kernel::Bodies<T>& bodies = kernel::bodies<T>(best_isa()))
      : Ram(nullptr, M, {slow}, bodies) {}
  /// The workers of a team. `slow` is a slow memory for each item of the outermost loop that may be under way, which
  /// differ in their workspace: as many as there are workers or items, whichever are fewer; or one, for schedules
  /// without workspace and for an outermost loop whose items share it.
  Ram(Team& team, index_t M, std::vector<SlowMemory> slow,
      const kernel::Bodies<T>& bodies = kernel::bodies<T>(best_isa()))
      : Ram(&team, M, std::move(slow), bodies) {}
  /// The same in given memory: an arena for each worker.
  Ram(Team& team, index_t M, std::vector<SlowMemory> slow, const kernel::Bodies<T>& bodies,
      std::span<const ArenaMemory<T>> arenas)
      : Ram(&team, M, std::move(slow), bodies, arenas) {}
  /// Does everything but touch numbers, to learn how much memory the arena of a worker takes. `slow` has no data. Of
  /// each loop it walks the first round and the last two: only the last block is ragged, and what a mask shows grows or
  /// falls with the round, so these rounds take the most.
  static Ram without_memory(index_t M, const SlowMemory& slow, const kernel::Bodies<T>& bodies) {
    Ram ram(M, slow, bodies);
    ram.own_->arenas[0] = Arena<T>::without_memory(M);
    return ram;
  }

  /// What the arena of the first worker took.
  const ArenaWords& arena_words() const { return all_->arenas[0].words(); }

  int workers() const { return static_cast<int>(all_->arenas.size()); }
  int worker() const { return at_.index; }

  index_t open(Shape s, Layout layout) { return arena().open(s, kernel::place(bodies(), s, layout)); }
  void close(index_t depth, Shape s) { arena().close(depth, s); }
  void read(const Arg& tile, const Block& b) {
    const View<T> v = view(tile);
    if (v.packed()) {
      const View<T> plain = slow_view(b, 0);
      if (is_real()) (v.layout == Layout::query_panels ? bodies().pack_queries : bodies().pack)(plain, v.data);
      return;
    }
    if (!is_real()) return;
    const bool only_read = v.layout == Layout::read_only || v.layout == Layout::key_panels;
    if (only_read && is_view(storage(b)) && tile.shape() == arena().tile(tile.depth).shape) {
      View<T> there = direct(b);
      there.layout = v.layout;
      arena().set_view(tile.depth, there);
    } else {
      gather(storage(b), b, v.data, v.row_stride, bodies().half_rows);
    }
    const View<T> whole = arena().tile(tile.depth);
    if (whole.layout == Layout::key_panels) bodies().pack(whole, whole.panels);
  }
  void write(const Block& b, const Arg& tile) {
    View<T> v = view(tile);
    if (v.packed()) {
      const View<T> plain = is_view(storage(b)) ? direct(b) : arena().stage(0, b.shape);
      if (is_real()) bodies().unpack(v.data, plain);
      if (is_view(storage(b))) return;
      v = plain;
    }
    if (is_real()) scatter(storage(b), b, v.data, v.row_stride, v.col_stride, bodies().half_rows);
  }
  template <class K>
  void run(const K& k, std::span<const Arg> args) {
    if (is_real())
      kernel::for_parts(k, args, [&](const auto&, std::span<const Arg> a) { arena().require(passing(a)); });
    Views views = resolve(k, args, 0);
    if constexpr (std::same_as<T, float>)
      if (bodies().bf16) narrow(k, args, views);
    if (is_real()) kernel::run(bodies(), k, views.span());
  }
  template <class K>
  void modify(const K& k, std::span<const Arg> args) {
    arena().require(1 + passing(args.subspan(1)));
    Views views = resolve(k, args, 1);
    const Block& b = args[0].block;
    const bool in_place = is_view(storage(b));
    if (in_place) {
      views.list[0] = direct(b);
    } else {
      views.list[0] = arena().stage(0, b.shape);
      if (is_real() && !kernel::first_of(k))
        gather(storage(b), b, views.list[0].data, b.shape.cols, bodies().half_rows);
    }
    if (!is_real()) return;
    kernel::run(bodies(), k, views.span());
    if (!in_place) scatter(storage(b), b, views.list[0].data, b.shape.cols, 1, bodies().half_rows);
  }
  template <class Body>
  void each(index_t n, const Body& body) {
    if (!is_real()) {
      for (index_t i = 0; i < n; i = i == 0 ? std::max(index_t{1}, n - 2) : i + 1) body(*this, i);
      return;
    }
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
  /// The most words that tiles take in the arenas beside their own: layouts, and a cache line to begin on.
  index_t padding_words() const { return sum(&Arena<T>::most_skipped); }

 private:
  /// What the workers have together.
  struct Crew {
    Team* team;
    const kernel::Bodies<T>* bodies;
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

  Ram(Team* team, index_t M, std::vector<SlowMemory> slow, const kernel::Bodies<T>& bodies,
      std::span<const ArenaMemory<T>> arenas = {})
      : own_(std::make_unique<Crew>()), all_(own_.get()) {
    own_->bodies = &bodies;
    own_->team = team;
    const std::size_t workers = team == nullptr ? 1 : static_cast<std::size_t>(team->workers());
    own_->arenas.reserve(workers);
    for (std::size_t i = 0; i < workers; ++i)
      own_->arenas.push_back(i < arenas.size() ? Arena<T>(M, arenas[i]) : Arena<T>(M));
    own_->slow = std::move(slow);
    slow_ = &own_->slow.front();
  }
  Ram(Crew& all, Team::Worker at, const SlowMemory& slow) : all_(&all), at_(at), slow_(&slow) {}

  bool is_real() const { return arena().has_memory(); }
  Arena<T>& arena() const { return all_->arenas[static_cast<std::size_t>(at_.index)]; }
  const Storage& storage(const Block& b) const { return (*slow_)[index_of(b.array)]; }
  /// Fast bodies want the words of a row side by side.
  bool is_view(const Storage& s) const {
    return s.dtype == kDTypeOf<T> && s.uniform_rows() && (s.col_stride == 1 || bodies().panel == 0);
  }
  const kernel::Bodies<T>& bodies() const { return *all_->bodies; }
  View<T> direct(const Block& b) const {
    const Storage& s = storage(b);
    T* const data = is_real() ? reinterpret_cast<T*>(s.data) + s.offset(b.instance, b.row, b.col) : nullptr;
    return {data, b.shape, s.uniform_row_stride(), s.col_stride};
  }
  /// A block of slow memory to read: where it lies, or a copy in staging buffer i.
  View<T> slow_view(const Block& b, std::size_t i) {
    if (is_view(storage(b))) return direct(b);
    const View<T> v = arena().stage(i, b.shape);
    if (is_real()) gather(storage(b), b, v.data, v.row_stride, bodies().half_rows);
    return v;
  }
  /// Keys and values for bodies that multiply bf16: where they lie, or, beside packed tiles, two rows of values
  /// interleaved.
  template <class K>
  void narrow(const K& k, std::span<const Arg> args, Views& views) {
    const bool packed = std::ranges::any_of(views.span(), [](const View<T>& v) { return v.packed(); });
    for (std::size_t i = 0; i < args.size(); ++i) {
      const Layout layout = kernel::layout_of(k, i);
      if (!wants_16_bits(layout)) continue;
      const Rows16 rows = rows16(args[i], views.list[i], i);
      const Shape shape = args[i].shape();
      if (layout == Layout::key_rows || !packed) {
        views.list[i] = {reinterpret_cast<T*>(rows.data), shape, rows.stride, 1, layout};
      } else {
        const index_t lines = ceil_div(shape.cols, kLine);
        const View<T> pairs = arena().stage(0, {ceil_div(shape.rows, 2), (lines | 1) * kLine});
        if (is_real()) bodies().pair_rows(rows.data, shape, rows.stride, pairs);
        views.list[i] = {pairs.data, shape, pairs.row_stride, 1, layout};
      }
    }
  }
  /// Words of a cache line: an odd number of them from row to row spreads a column over all sets of a cache.
  static constexpr index_t kLine = 64 / sizeof(T);
  struct Rows16 {
    std::uint16_t* data;
    index_t stride;
  };
  /// Rows of 16-bit words where they lie.
  Rows16 rows16(const Block& b) const {
    const Storage& s = storage(b);
    if (!is_real()) return {nullptr, s.uniform_row_stride()};
    return {reinterpret_cast<std::uint16_t*>(s.data) + s.offset(b.instance, b.row, b.col), s.uniform_row_stride()};
  }
  /// bf16 rows of argument i: a stream's own; a tile's words came from bf16, so half of each is 0.
  Rows16 rows16(const Arg& arg, const View<T>& v, std::size_t i) {
    if (arg.kind == Arg::Kind::stream) {
      const Storage& s = storage(arg.block);
      if (s.dtype != DType::bf16 || s.col_stride != 1 || !s.uniform_rows())
        throw std::logic_error("bf16 products want rows of bf16");
      return rows16(arg.block);
    }
    const Rows16 copy{reinterpret_cast<std::uint16_t*>(arena().stage(i, v.shape).data), v.cols()};
    if (!is_real()) return copy;
    for (index_t r = 0; r < v.rows(); ++r)
      for (index_t t = 0; t < v.cols(); ++t)
        copy.data[r * copy.stride + t] = static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(v(r, t)) >> 16);
    return copy;
  }
  View<T> view(const Arg& tile) const {
    View<T> v = arena().tile(tile.depth);
    const bool whole = v.shape == tile.shape(), begins = tile.block.row == 0 && tile.block.col == 0;
    if (v.packed() && !(whole || (begins && v.layout == Layout::panel_scratch)))
      throw std::logic_error("a packed tile is used whole");
    if (v.layout == Layout::key_panels && !whole) v.layout = Layout::row_major;  // the panels are of all rows
    if (is_real()) v.data += tile.block.row * v.row_stride + tile.block.col * v.col_stride;
    v.shape = tile.shape();
    return v;
  }
  /// Views of the arguments from `from` on. Streams that `narrow` replaces are left out.
  template <class K>
  Views resolve(const K& k, std::span<const Arg> args, std::size_t from) {
    Views views;
    views.size = args.size();
    const Layout halves = rows_of_halves(k, args);
    for (std::size_t i = from; i < args.size(); ++i) {
      const Arg& a = args[i];
      const bool wants_16 = wants_16_bits(kernel::layout_of(k, i));
      if (a.kind == Arg::Kind::tile) {
        views.list[i] = view(a);
      } else if (wants_16 && halves != Layout::row_major) {
        const Rows16 rows = rows16(a.block);
        views.list[i] = {reinterpret_cast<T*>(rows.data), a.shape(), rows.stride, 1, halves};
      } else if (!(wants_16 && bodies().bf16)) {
        views.list[i] = slow_view(a.block, i);
      }
    }
    return views;
  }
  /// f16_rows or bf16_rows if queries are few, and all keys and values that stream past are of this type and lie in
  /// rows: bodies for few queries widen them as they read them. Else row_major.
  template <class K>
  Layout rows_of_halves(const K& k, std::span<const Arg> args) const {
    if (bodies().half_rows.widen == nullptr || bodies().bf16) return Layout::row_major;
    Layout rows = Layout::row_major;
    for (std::size_t i = 0; i < args.size(); ++i) {
      const Layout layout = kernel::layout_of(k, i);
      if (args[i].kind == Arg::Kind::tile) {
        const bool many = layout == Layout::query_panels && args[i].shape().rows > bodies().few_rows;
        if (many || wants_16_bits(layout)) return Layout::row_major;
      } else if (wants_16_bits(layout)) {
        const Storage& s = storage(args[i].block);
        const Layout these = s.dtype == DType::f16 ? Layout::f16_rows : Layout::bf16_rows;
        if (size_of(s.dtype) != 2 || s.col_stride != 1 || !s.uniform_rows()) return Layout::row_major;
        if (rows != Layout::row_major && rows != these) return Layout::row_major;
        rows = these;
      }
    }
    return rows;
  }
  static bool wants_16_bits(Layout l) { return l == Layout::key_rows || l == Layout::value_pairs; }
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
