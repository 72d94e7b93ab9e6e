#pragma once
#include <array>
#include <functional>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "redblue/schedules/parts/limits.hpp"

/// Under a pattern: what passes a ring in blocks, and the few that do not pass but are pinned, because they see much
/// more than others: global tokens (theory notes 2g). Pinned ones are resident for the whole run, and meet each item of
/// the ring when it enters.
namespace redblue::schedule {

namespace detail {
inline index_t length_of(std::span<const Range> runs) {
  index_t sum = 0;
  for (const Range& run : runs) sum += run.size();
  return sum;
}
inline index_t longest_of(std::span<const Range> runs) {
  index_t most = 0;
  for (const Range& run : runs) most = std::max(most, run.size());
  return most;
}
/// f(run, row) for runs that lie below each other in a tile, from its row `row` on.
template <class F>
void for_runs_in_tile(std::span<const Range> runs, const F& f) {
  index_t row = 0;
  for (const Range& run : runs) {
    f(run, row);
    row += run.size();
  }
}
/// Degrees, from the largest down, and of each how many have it.
inline std::map<index_t, index_t, std::greater<>> degrees_of(const RunLists& lists) {
  std::map<index_t, index_t, std::greater<>> degrees;
  lists.for_groups([&](Range some, std::span<const Range> runs) { degrees[length_of(runs)] += some.size(); });
  return degrees;
}
}  // namespace detail

/// The `count` rows, or keys, that see the most; of those that see equally many the first.
[[gnu::noinline]] inline std::span<const Range> pins_of(const Pattern& pattern, bool keys, index_t count) {
  if (count == 0) return {};
  return pattern.found("pins", {keys ? 1 : 0, count}, [&] {
    const RunLists& lists = keys ? pattern.keys() : pattern.rows();
    index_t least = 0, ties = count;  // the degree of the last of them, and how many have it
    for (const auto& [degree, some] : detail::degrees_of(lists)) {
      least = degree;
      if (some >= ties) break;
      ties -= some;
    }
    std::vector<Range> pins;
    lists.for_groups([&](Range some, std::span<const Range> runs) {
      const index_t degree = detail::length_of(runs);
      if (degree == least)
        some.end = some.begin + std::min(some.size(), std::exchange(ties, std::max<index_t>(0, ties - some.size())));
      if (degree >= least) pins.push_back(some);
    });
    sort_and_join(pins);
    return pins;
  });
}

/// Numbers of rows, or of keys, that may be worth pinning: all numbers where there are few rows or keys. Otherwise 0,
/// and the numbers whose last row or key sees at least 5/4 times as many as the next one: the three with the widest
/// gaps.
inline std::vector<index_t> pin_counts_of(const Pattern& pattern, bool keys, index_t step) {
  std::vector<index_t> counts{0};
  constexpr double kGap = 1.25;
  constexpr index_t kFew = 48;
  constexpr std::size_t kMost = 3;
  const index_t n = keys ? pattern.n_k() : pattern.n_q();
  if (n <= kFew) {
    counts.reserve(kFew);
    for (index_t count = step; count < n; count += step) counts.push_back(count);
    return counts;
  }
  std::vector<std::pair<double, index_t>> gaps;
  index_t above = 0, last = 0;
  for (const auto& [degree, some] : detail::degrees_of(keys ? pattern.keys() : pattern.rows())) {
    const double gap = static_cast<double>(last) / static_cast<double>(std::max<index_t>(1, degree));
    const index_t rounded = ceil_div(above, step) * step;
    if (above > 0 && gap >= kGap && rounded < n) gaps.emplace_back(gap, rounded);
    above += some;
    last = degree;
  }
  std::ranges::sort(gaps, std::greater<>());
  gaps.resize(std::min(kMost, gaps.size()));
  for (const auto& gap : gaps) counts.push_back(gap.second);
  return counts;
}
[[gnu::noinline]] inline std::vector<index_t> pin_counts(const Pairs& pairs, bool keys, index_t step) {
  if (pairs.mask.pattern == nullptr) return {0};
  return pairs.mask.pattern->found("numbers of pins", {keys ? 1 : 0, step},
                                   [&] { return pin_counts_of(*pairs.mask.pattern, keys, step); });
}

/// These numbers, ordered: the first is the one with which this tiling takes the least room.
template <class Tiling, class Footprint>
std::vector<index_t> pin_counts_by_room(const Sizes& x, std::vector<index_t> counts, Tiling t,
                                        const Footprint& footprint) {
  const auto room = [&](index_t pinned) {
    t.pinned = pinned;
    return footprint(x, t);
  };
  if (counts.size() > 1) std::ranges::stable_sort(counts, [&](index_t a, index_t b) { return room(a) < room(b); });
  return counts;
}
/// How many are pinned: none with a bias that all queries share, or its gradient that all keys share, which would have
/// to pass once more.
inline index_t pinned_rows(const Sizes& x, index_t pinned) {
  const Modifiers& m = x.modifiers;
  return m.bias == Modifiers::Bias::of_keys || (m.bias_gradient && m.bias_over_keys) ? 0 : pinned;
}

/// Blocks that pass; between pinned ones rows are cut from the last one on, keys from the first.
class RingBlocks {
 public:
  explicit RingBlocks(const Blocks& even) : even_(even) {}
  /// The blocks of keys, or of rows, that are not pinned.
  RingBlocks(const Blocks& even, const Pattern& pattern, bool keys, index_t pinned)
      : even_(even), pins_(pins_of(pattern, keys, pinned)) {
    if (pinned > 0)
      list_ = pattern.found("between pins", {keys ? 1 : 0, pinned, even.size}, [&] { return cut(!keys); });
  }

  index_t size() const { return even_.size; }
  std::span<const Range> pins() const { return pins_; }
  index_t count() const { return pins_.empty() ? even_.count() : static_cast<index_t>(list_.size()); }
  Range operator()(index_t b) const { return pins_.empty() ? even_(b) : list_[static_cast<std::size_t>(b)]; }
  /// The block that holds i, which is not pinned, looked for first at `near` and after it.
  index_t block_of(index_t i, index_t near) const {
    for (index_t b = near; b < std::min(near + 2, count()); ++b)
      if ((*this)(b).holds(i)) return b;
    return block_of(i);
  }
  index_t block_of(index_t i) const {
    if (pins_.empty()) return even_.of(i);
    return std::ranges::partition_point(list_, [&](const Range& block) { return block.end <= i; }) - list_.begin();
  }
  /// The first of these that is not pinned, and the last one; nothing where all are.
  std::optional<std::array<index_t, 2>> ends_of(std::span<const Range> runs) const {
    const auto pin_at = [&](index_t i) {
      const auto pin = std::ranges::partition_point(pins_, [&](const Range& p) { return p.end <= i; });
      return pin != pins_.end() && pin->begin <= i ? *pin : Range{i, i};
    };
    for (const Range& run : runs)
      if (const index_t first = pin_at(run.begin).end; first < run.end)
        for (std::size_t r = runs.size(); r > 0; --r) {
          const Range& back = runs[r - 1];
          const Range pin = pin_at(back.end - 1);
          const index_t last = pin.size() > 0 ? pin.begin - 1 : back.end - 1;
          if (last >= back.begin) return {{first, last}};
        }
    return std::nullopt;
  }

 private:
  std::vector<Range> cut(bool ragged_first) const {
    std::vector<Range> list;
    index_t done = 0;
    const auto cut_part = [&](Range between) {
      const Blocks blocks{between.size(), even_.size, ragged_first};
      for (index_t b = 0; b < blocks.count(); ++b) list.push_back(blocks(b).shifted(between.begin));
    };
    for (const Range& pin : pins_) {
      cut_part({done, pin.begin});
      done = pin.end;
    }
    cut_part({done, even_.n});
    return list;
  }
  Blocks even_;
  std::span<const Range> pins_, list_;  ///< of the pattern
};

}  // namespace redblue::schedule
