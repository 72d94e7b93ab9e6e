#pragma once
#include <cstdint>
#include <set>
#include <vector>

#include "redblue/schedule/parts/ring.hpp"

/// Rings past which blocks of the other side go: queries that enter with the first block of keys that they see and
/// leave after the last one, or keys with blocks of queries. Under an interval all come and go in order; under a
/// pattern each takes any free place (theory notes 2g).
namespace redblue::schedule {

/// Items of a ring, queries or keys, that lie side by side there and meet a block together.
struct RingStep {
  Range items, rows;
  bool enters = false;  ///< all for the first time
  bool leaves = false;  ///< all for the last time
};
/// When places are free again, and what is said of items.
enum class RingOrder : std::uint8_t {
  leaving_first,  ///< those that leave make room for those that enter
  reading,        ///< the same for items that need no farewell: under an interval `leaves` is not said
  together,       ///< all that meet a block are there at once
};

/// What a ring holds, and what passes by.
struct RingSide {
  Pairs pairs;
  Blocks blocks;  ///< that pass
  bool holds_queries = false;

  static RingSide of_queries(const Pairs& pairs, index_t Bc) { return {pairs, pairs.key_blocks(Bc), true}; }
  static RingSide of_keys(const Pairs& pairs, index_t Br) { return {pairs, pairs.row_blocks(Br), false}; }

  index_t items() const { return holds_queries ? pairs.n_q : pairs.n_k; }
  Range hull(index_t b) const { return holds_queries ? pairs.rows_of(blocks(b)) : pairs.keys_of(blocks(b)); }
  Runs met(index_t b) const { return holds_queries ? pairs.runs_of_rows(blocks(b)) : pairs.runs_of_keys(blocks(b)); }
  /// Under a pattern: what each item meets.
  const RunLists& lists() const { return holds_queries ? pairs.mask.pattern->rows() : pairs.mask.pattern->keys(); }
  /// Under a pattern: f(items, first block that meets them, last one); items that meet none are left out.
  template <class F>
  void for_items(const F& f) const {
    const auto block_of = [&](index_t i) {
      return blocks.ragged_first ? blocks.count() - 1 - (blocks.n - 1 - i) / blocks.size : i / blocks.size;
    };
    lists().for_groups([&](Range items, std::span<const Range> runs) {
      if (!runs.empty()) f(items, block_of(runs.front().begin), block_of(runs.back().end - 1));
    });
  }
  /// How many items meet a block.
  [[gnu::noinline]] index_t items_met() const {
    if (pairs.mask.pattern == nullptr) return items();
    index_t met = 0;
    for_items([&](Range some, index_t, index_t) { met += some.size(); });
    return met;
  }
  /// The places that items need where those that leave go before others enter: as many as two blocks in a row both
  /// hold, and `most` for items that one block alone meets.
  [[gnu::noinline]] index_t places(index_t most) const {
    most = std::min(most, items());
    if (pairs.mask.pattern == nullptr)
      return std::max(holds_queries ? pairs.most_kept_rows(blocks.size) : pairs.most_kept(blocks.size), most);
    index_t largest = 0;
    for_blocks([&](index_t before, index_t go, index_t only, index_t come) {
      largest = std::max({largest, before - go + std::min(most, only), before - go + come});
    });
    return largest;
  }
  /// Those that they need where all that a block meets are there at once.
  [[gnu::noinline]] index_t places_together(const Sizes& x) const {
    if (pairs.mask.pattern == nullptr)
      return holds_queries ? most_seeing_rows(x, blocks.size) : most_seen_keys(x, blocks.size);
    index_t largest = 0;
    for_blocks([&](index_t before, index_t, index_t only, index_t come) {
      largest = std::max(largest, before + only + come);
    });
    return largest;
  }

 private:
  /// Under a pattern: f(items that it holds, those of them that leave, those that this block alone meets, those that
  /// enter and stay) for each block.
  template <class F>
  void for_blocks(const F& f) const {
    struct Counts {
      index_t go = 0, only = 0, come = 0;
    };
    std::vector<Counts> counts(static_cast<std::size_t>(blocks.count()));
    const auto at = [&](index_t b) -> Counts& { return counts[static_cast<std::size_t>(b)]; };
    for_items([&](Range some, index_t first, index_t last) {
      (first == last ? at(first).only : at(first).come) += some.size();
      if (first != last) at(last).go += some.size();
    });
    index_t held = 0;
    for (const Counts& c : counts) {
      f(held, c.go, c.only, c.come);
      held += c.come - c.go;
    }
  }
};

/// f(items) for those that meet no block: under a pattern there may be some.
template <class F>
[[gnu::noinline]] void for_unmet(const RingSide& side, const F& f) {
  if (side.pairs.mask.pattern == nullptr) return;
  side.lists().for_groups([&](Range items, std::span<const Range> runs) {
    if (runs.empty()) f(items);
  });
}

/// The largest words(queries, keys that they see) over blocks of `a` queries, where all those keys are resident at
/// once.
template <class BlockWords>
Words seen_keys_footprint(const Sizes& x, index_t a, const BlockWords& words) {
  if (x.mask.pattern == nullptr) return query_blocks_footprint(x, a, words);
  const Blocks blocks = x.pairs().row_blocks(std::min(a, x.n_q));
  return detail::pattern_footprint(blocks, words, [&](Range I) { return x.pairs().runs_of_keys(I).count(); });
}

/// The steps of all blocks, one block after another, with `most` items in each at most.
class RingSteps {
 public:
  [[gnu::noinline]] RingSteps(const RingSide& side, index_t places, index_t most, RingOrder order)
      : side_(side), ring_{places}, most_(most), order_(order) {
    if (side.pairs.mask.pattern == nullptr) return;
    items_.resize(static_cast<std::size_t>(side.items()));
    side.for_items([&](Range some, index_t first, index_t last) {
      for (index_t i = some.begin; i < some.end; ++i) items_[static_cast<std::size_t>(i)] = {first, last, 0};
    });
    for (index_t p = 0; p < places; ++p) free_.insert(free_.end(), p);
  }

  index_t places() const { return ring_.places; }
  /// Of the next block.
  [[gnu::noinline]] const std::vector<RingStep>& next() {
    steps_.clear();
    if (side_.pairs.mask.pattern == nullptr)
      next_of_interval();
    else
      next_of_pattern();
    ++block_;
    return steps_;
  }

 private:
  struct Item {
    index_t first = 0, last = 0, place = 0;
  };

  void next_of_interval() {
    const Range met = side_.hull(block_);
    const index_t staying = block_ + 1 < side_.blocks.count() ? side_.hull(block_ + 1).begin : side_.items();
    for (index_t i = met.begin; i < met.end;) {
      index_t end = std::min(i + most_, met.end);
      if (i < entered_) end = std::min(end, entered_);
      if (i < staying && order_ != RingOrder::reading) end = std::min(end, staying);
      ring_.for_parts({i, end},
                      [&](Range items, Range rows) { steps_.push_back({items, rows, i >= entered_, end <= staying}); });
      i = end;
    }
    entered_ = met.end;
  }

  void next_of_pattern() {
    const Runs met = side_.met(block_);
    const auto add_where = [&](const auto& chosen) {
      for (const Range& run : met)
        for (index_t i = run.begin; i < run.end; ++i) {
          Item& item = items_[static_cast<std::size_t>(i)];
          const bool enters = item.first == block_, leaves = item.last == block_;
          if (chosen(enters, leaves)) add(i, item, enters, leaves);
        }
      finish();
    };
    if (order_ == RingOrder::together) {
      add_where([](bool, bool) { return true; });
      for (const RingStep& step : steps_)
        if (step.leaves) release(step);
      return;
    }
    add_where([](bool enters, bool leaves) { return !enters && leaves; });
    add_where([](bool enters, bool leaves) { return enters && leaves; });  // these come and go
    add_where([](bool enters, bool leaves) { return !enters && !leaves; });
    add_where([](bool enters, bool leaves) { return enters && !leaves; });
  }
  void add(index_t i, Item& item, bool enters, bool leaves) {
    if (open_) {
      const RingStep& step = steps_.back();
      const bool goes_on = step.items.size() < most_ && step.items.end == i && step.enters == enters &&
                           step.leaves == leaves &&
                           (enters ? free_.contains(step.rows.end) : step.rows.end == item.place);
      if (!goes_on) finish();
    }
    if (enters) {
      item.place = open_ ? steps_.back().rows.end : *free_.begin();
      free_.erase(item.place);
    }
    if (!open_) steps_.push_back({{i, i}, {item.place, item.place}, enters, leaves});
    open_ = true;
    ++steps_.back().items.end;
    ++steps_.back().rows.end;
  }
  /// The step that is open has no more items.
  void finish() {
    if (open_ && steps_.back().leaves && order_ != RingOrder::together) release(steps_.back());
    open_ = false;
  }
  void release(const RingStep& step) {
    for (index_t p = step.rows.begin; p < step.rows.end; ++p) free_.insert(p);
  }

  RingSide side_;
  Ring ring_;
  index_t most_;
  RingOrder order_;
  index_t block_ = 0;
  index_t entered_ = 0;      ///< under an interval: items before it are in the ring, or were
  std::vector<Item> items_;  ///< under a pattern
  std::set<index_t> free_;
  std::vector<RingStep> steps_;
  bool open_ = false;  ///< may the last step have more items?
};

/// The items of steps, one step after another.
[[gnu::noinline]] inline Runs items_of(const std::vector<RingStep>& steps) {
  std::vector<Range> items;
  items.reserve(steps.size());
  for (const RingStep& step : steps) items.push_back(step.items);
  return Runs(std::move(items));
}
/// Steps without what they enter and leave, those that go on together joined; of each also its columns in a tile that
/// holds all items of the block.
struct RingPart {
  Range items, rows, columns;
};
[[gnu::noinline]] inline std::vector<RingPart> joined(const std::vector<RingStep>& steps) {
  std::vector<RingPart> parts;
  index_t columns = 0;
  for (const RingStep& step : steps) {
    const index_t end = columns + step.items.size();
    if (!parts.empty() && parts.back().items.end == step.items.begin && parts.back().rows.end == step.rows.begin) {
      parts.back().items.end = step.items.end;
      parts.back().rows.end = step.rows.end;
      parts.back().columns.end = end;
    } else {
      parts.push_back({step.items, step.rows, {columns, end}});
    }
    columns = end;
  }
  return parts;
}

}  // namespace redblue::schedule
