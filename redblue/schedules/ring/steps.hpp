#pragma once
#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "redblue/language/error.hpp"
#include "redblue/schedules/ring/side.hpp"

/// What a ring does, block by block: for its text, where ring_side.hpp is for its costs.
namespace redblue::schedule {

/// Items of a ring, queries or keys, that lie side by side there and meet a block together.
struct RingStep {
  Range items, rows;
  bool enters = false;  ///< all for the first time
  bool leaves = false;  ///< all for the last time
};
/// Items that lie side by side, whatever they do; and their columns in a tile that holds all items of a block.
struct RingPart {
  Range items, rows, columns;
};
/// When places are free again.
enum class RingOrder : std::uint8_t {
  leaving_first,  ///< those that leave make room for those that enter
  reading,        ///< the same for items that are only read: under an interval steps are not cut where some leave
  together,       ///< all that meet a block are there at once
};

/// Places of a ring that hold no item.
class FreePlaces {
 public:
  void release(Range places) {
    if (places.end > static_cast<index_t>(is_free_.size())) is_free_.resize(static_cast<std::size_t>(places.end));
    for (index_t p = places.begin; p < places.end; ++p) is_free_[static_cast<std::size_t>(p)] = true;
    from_ = std::min(from_, places.begin);
  }
  bool has(index_t place) const {
    return place < static_cast<index_t>(is_free_.size()) && is_free_[static_cast<std::size_t>(place)];
  }
  /// The first of them.
  index_t first() {
    while (from_ < static_cast<index_t>(is_free_.size()) && !has(from_)) ++from_;
    if (!has(from_)) throw RuleError("a ring has too few places");
    return from_;
  }
  void take(index_t place) { is_free_[static_cast<std::size_t>(place)] = false; }

 private:
  std::vector<bool> is_free_;
  index_t from_ = 0;  ///< none before it is free
};

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
    free_.release({0, places});
  }

  index_t places() const { return ring_.places; }
  /// The steps of the next block.
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
    const Range met = side_.envelope(block_);
    const index_t staying = block_ + 1 < side_.blocks.count() ? side_.envelope(block_ + 1).begin : side_.items();
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
    if (order_ == RingOrder::together) {
      for (const Range& run : side_.met(block_)) add_all(run);
      finish();
      for (const RingStep& step : steps_)
        if (step.leaves) free_.release(step.rows);
      return;
    }
    // The items that leave, that come and go, that stay, and that enter, in this order.
    std::array<std::vector<Range>, 4> chosen;
    for (const Range& run : side_.met(block_))
      for (index_t i = run.begin; i < run.end; ++i) {
        std::vector<Range>& list = chosen[leaves(i) ? (enters(i) ? 1 : 0) : (enters(i) ? 3 : 2)];
        if (list.empty() || list.back().end != i) list.push_back({i, i});
        ++list.back().end;
      }
    for (const std::vector<Range>& list : chosen) {
      for (const Range& run : list) add_all(run);
      finish();
    }
  }
  const Item& item(index_t i) const { return items_[static_cast<std::size_t>(i)]; }
  bool enters(index_t i) const { return item(i).first == block_; }
  bool leaves(index_t i) const { return item(i).last == block_; }
  void add_all(Range run) {
    for (index_t i = run.begin; i < run.end; ++i) add(i, items_[static_cast<std::size_t>(i)], enters(i), leaves(i));
  }
  void add(index_t i, Item& item, bool enters, bool leaves) {
    if (open_) {
      const RingStep& step = steps_.back();
      const bool goes_on = step.items.size() < most_ && step.items.end == i && step.enters == enters &&
                           step.leaves == leaves && (enters ? free_.has(step.rows.end) : step.rows.end == item.place);
      if (!goes_on) finish();
    }
    if (enters) {
      item.place = open_ ? steps_.back().rows.end : free_.first();
      free_.take(item.place);
    }
    if (!open_) steps_.push_back({{i, i}, {item.place, item.place}, enters, leaves});
    open_ = true;
    ++steps_.back().items.end;
    ++steps_.back().rows.end;
  }
  /// The step that is open has no more items.
  void finish() {
    if (open_ && steps_.back().leaves && order_ != RingOrder::together) free_.release(steps_.back().rows);
    open_ = false;
  }

  RingSide side_;
  Ring ring_;
  index_t most_;
  RingOrder order_;
  index_t block_ = 0;
  index_t entered_ = 0;      ///< under an interval: items before it are in the ring, or were
  std::vector<Item> items_;  ///< under a pattern
  FreePlaces free_;
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
/// Steps without what they enter and leave, those that go on together joined.
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

/// The columns of a tile that holds these parts.
inline index_t columns_of(const std::vector<RingPart>& parts) { return parts.empty() ? 0 : parts.back().columns.end; }

/// f(columns) for `most` of n columns at a time.
template <class F>
void for_columns(index_t n, index_t most, const F& f) {
  for (index_t c = 0; c < n; c += most) f(Range{c, std::min(c + most, n)});
}

}  // namespace redblue::schedule
