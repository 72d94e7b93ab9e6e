#pragma once
#include <cmath>
#include <concepts>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <vector>

#include "redblue/language/data_machine.hpp"
#include "redblue/machines/ram/caller_memory.hpp"
#include "redblue/machines/ram/operands.hpp"
#include "redblue/machines/ram/worker_states.hpp"

namespace redblue::machine {

/// Runs schedules on numbers. Every worker has an arena of M words of T as fast memory (arena.hpp). Slow says what a
/// block of slow memory is: the caller's arrays, read and written where they lie (caller_memory.hpp). A stream, and a
/// block that is updated, is a view of slow memory where that can be, else it passes through a staging buffer (reported
/// apart: the model charges one word); routes.hpp decides which.
///
/// A Ram is what one worker sees: its own arena, and the slow memory of the item that it is in. It is made by `each`,
/// which hands the items of a loop to the workers of the team where the worker that meets the loop holds no tile, and
/// else runs them itself: they use its tiles.
template <class T, class Slow = CallerMemory<T>>
  requires SlowSide<Slow, T>
class Ram : public MachineFace<Ram<T, Slow>> {
 public:
  using Arrays = typename Slow::Arrays;

  /// One worker.
  Ram(index_t M, const Arrays& slow,
      const kernel::Implementations<T>& implementations = kernel::implementations<T>(best_isa()))
      : Ram(nullptr, M, {slow}, implementations, {}) {}
  /// The workers of a team. `slow` is a slow memory for each item of the outermost loop that may be under way, which
  /// differ in their workspace: as many as there are workers or items, whichever are fewer; or one, for schedules
  /// without workspace and for an outermost loop whose items share it.
  Ram(Team& team, index_t M, std::vector<Arrays> slow,
      const kernel::Implementations<T>& implementations = kernel::implementations<T>(best_isa()))
      : Ram(&team, M, std::move(slow), implementations, {}) {}
  /// The workers of a team, in given memory: an arena for each worker.
  Ram(Team& team, index_t M, std::vector<Arrays> slow, const kernel::Implementations<T>& implementations,
      std::span<const ArenaMemory<T>> arenas)
      : Ram(&team, M, std::move(slow), implementations, arenas) {}

  /// The workers of these states, which outlive it.
  explicit Ram(WorkerStates<T, Slow>& states) : Ram(states, {}, {states.slow.front(), *states.implementations}) {}

  int workers() const { return static_cast<int>(states_->arenas.size()); }
  int worker() const { return at_.index; }

  index_t open(SlowArray, Shape s, Layout layout) {
    return arena_.open(s, kernel::place(implementations(), s, layout));
  }
  void close(index_t depth, SlowArray, Shape s) { arena_.close(depth, s); }
  /// A tile of padded rows lies where it will be stored, if rows are padded alike there: to copy dS took a tenth of a
  /// nested backward pass.
  void store_hint(index_t depth, const Block& b) {
    const TileStack::Tile& tile = arena_.place_of(depth);
    const bool panels = tile.place.layout == Layout::output_panels,
               rows = tile.place.layout == Layout::padded_rows && tile.shape == b.shape;
    if (!(panels || rows) || !slow_.can_view(b)) return;
    const View<T> there = slow_.view(b);
    if (panels || is_padded(there)) arena_.set_elsewhere(depth, there);
  }
  void read(const Arg& tile, const Block& b) {
    const TileStack::Tile& place = arena_.place_of(tile.depth);
    if (is_only_read(place.place.layout)) {
      if (tile.shape() != place.shape) throw std::logic_error("a part of a tile that is only read is loaded");
      return read_only(tile, b);
    }
    const View<T> v = arena_.view(tile);
    if (!v.packed()) return slow_.fetch(b, v.data, v.row_stride);
    if (v.layout == Layout::query_panels)
      if (const std::optional<View<const T>> pairs = pairs_of(b)) return implementations().pack(*pairs, v.data);
    View<T> plain;
    if (is_staged(place, slow_, b)) {
      plain = arena_.stage(0, b.shape);
      slow_.fetch(b, plain.data, plain.row_stride);
    } else {
      plain = slow_.view(b);
    }
    (v.layout == Layout::query_panels ? implementations().pack_queries : implementations().pack)(plain, v.data);
  }
  void write(const Block& b, const Arg& tile) {
    const View<T> v = arena_.view(tile);
    if (!v.packed()) {
      const bool is_there = arena_.is_elsewhere(tile.depth) && slow_.can_view(b) && slow_.view(b).data == v.data;
      if (!is_there) slow_.put(b, v);
      return;
    }
    if (const std::optional<DType> words16 = slow_.words16(b); words16 && implementations().unpack_words16 != nullptr) {
      const Rows16 rows = slow_.rows16(b);
      return implementations().unpack_words16(*words16, v.data, b.shape, const_cast<std::uint16_t*>(rows.data),
                                              rows.stride);
    }
    const bool staged = is_staged(arena_.place_of(tile.depth), slow_, b);
    const View<T> plain = staged ? arena_.stage(0, b.shape) : slow_.view(b);
    implementations().unpack(v.data, plain);
    if (staged) slow_.put(b, plain);
  }
  template <class K>
  void run(const K& k, std::span<const Arg> args) {
    arena_.require(kernel::most_passing(k, args));
    const Views<T> views = operands(k, args, 0, arena_, slow_, implementations());
    run_on(k, views);
  }
  template <class K>
  void modify(const K& k, std::span<const Arg> args) {
    arena_.require(1 + passing(args.subspan(1)));
    Views<T> views = operands(k, args, 1, arena_, slow_, implementations());
    const Block& b = args[0].block;
    View<T>& updated = views.list[0];
    const bool in_place = slow_.can_view(b);
    updated = in_place ? slow_.view(b) : arena_.stage(0, b.shape);
    const bool adds = !in_place && kernel::adds(k) && !kernel::first_of(k);
    if (adds)
      std::fill_n(updated.data, b.shape.words(), T(0));
    else if (!in_place && !kernel::first_of(k))
      slow_.fetch(b, updated.data, updated.row_stride);
    run_on(k, views);
    if (adds)
      slow_.add(b, updated);
    else if (!in_place)
      slow_.put(b, updated);
  }
  index_t read_index(Question, const Arg& word, index_t) {
    return static_cast<index_t>(std::llround(arena_.view(word)[0]));
  }
  template <class Body>
  void each(index_t n, const Body& body) {
    if (workers() == 1 || arena_.used() > 0) {
      for (index_t i = 0; i < n; ++i) body(*this, i);
      return;
    }
    states_->team->each(at_, n, [&](Team::Worker at, index_t i) {
      Ram worker(*states_, at, at_.depth > 0 ? slow_ : states_->slow_memory(n, i, at.index));
      body(worker, i);
    });
  }

  /// All that this worker's fast memory holds between two operations, where no tile is a view of slow memory.
  std::span<T> fast_memory() const { return arena_.open_words(); }

  /// The most words that the tiles of a worker held at a time.
  index_t most_held() const {
    index_t most = 0;
    for (const Arena<T>& a : states_->arenas) most = std::max(most, a.most_used());
    return most;
  }
  /// Words of staging buffers that the workers hold beside their arenas.
  index_t staging_words() const { return states_->sum(&Arena<T>::staging_words); }
  /// The most words that tiles take in the arenas beside their own: layouts, and a cache line to begin on.
  index_t padding_words() const { return states_->sum(&Arena<T>::most_skipped); }

 private:
  using Workers = WorkerStates<T, Slow>;

  Ram(Team* team, index_t M, std::vector<Arrays> slow, const kernel::Implementations<T>& implementations,
      std::span<const ArenaMemory<T>> arenas)
      : own_(std::make_unique<Workers>(team, M, std::move(slow), implementations, arenas)),
        states_(own_.get()),
        arena_(states_->arena_of(at_)),
        slow_(states_->slow.front(), implementations) {}
  Ram(Workers& states, Team::Worker at, const Slow& slow)
      : states_(&states), at_(at), arena_(states.arena_of(at)), slow_(slow) {}

  const kernel::Implementations<T>& implementations() const { return *states_->implementations; }
  template <class K>
  void run_on(const K& k, const Views<T>& views) {
    if (states_->below != nullptr) return states_->below->run(at_.index, kernel::erase(k), views.span());
    kernel::run(implementations(), k, views.span());
  }
  /// Do these words lie as those of a tile of padded rows (kernel::place)? No vector that a kernel writes goes past
  /// them.
  bool is_padded(const View<T>& there) const {
    const index_t lanes = implementations().lanes;
    return there.col_stride == 1 && there.row_stride % (2 * lanes) == lanes && there.cols() % lanes == 0 &&
           reinterpret_cast<std::uintptr_t>(there.data) % TileStack::kLineBytes == 0;
  }
  /// A block of bf16 words, where implementations multiply pairs of them: each pair as one word, if all lie where words
  /// may.
  std::optional<View<const T>> pairs_of(const Block& b) const {
    if constexpr (std::same_as<T, float>)
      if (implementations().bf16 && b.shape.cols % 2 == 0 && slow_.words16(b) == DType::bf16) {
        const Rows16 rows = slow_.rows16(b);
        if (rows.stride % 2 == 0 && reinterpret_cast<std::uintptr_t>(rows.data) % alignof(T) == 0)
          return View<const T>(reinterpret_cast<const T*>(rows.data), {b.shape.rows, b.shape.cols / 2},
                               rows.stride / 2);
      }
    return std::nullopt;
  }
  /// Loads a tile that kernels only read: it lies where its words do, if they can be viewed.
  void read_only(const Arg& tile, const Block& b) {
    if (slow_.can_view(b)) {
      arena_.set_elsewhere(tile.depth, slow_.view(b));
    } else {
      arena_.set_here(tile.depth);
      const View<T> v = arena_.tile(tile.depth);
      slow_.fetch(b, v.data, v.row_stride);
    }
    const View<T> whole = arena_.tile(tile.depth);
    if (whole.layout == Layout::key_panels) implementations().pack(whole, whole.other_form);
  }

  std::unique_ptr<Workers> own_;  // of the Ram that a user makes; empty in those that `each` makes
  Workers* states_;
  Team::Worker at_{};
  Arena<T>& arena_;
  Slow slow_;
};

}  // namespace redblue::machine
