#pragma once
#include <algorithm>
#include <span>
#include <vector>

#include "redblue/core/pattern.hpp"

/// Tiles of pairs: keys of a block of rows, as far as there is room for their pairs, however sparse these lie (theory
/// notes 2g).
namespace redblue::schedule {

/// A tile: the pairs of these rows and keys.
struct PairTile {
  Range rows, keys;
  index_t pairs = 0;
  index_t r = 0, c = 0;  ///< rows and keys that have a pair
};

/// Rows, as runs with gaps between them.
class RowSet {
 public:
  void clear() { runs_.clear(); }
  /// How many of these are not there.
  index_t missing(Range rows) const {
    index_t count = rows.size();
    for (auto run = first_from(rows.begin); run != runs_.end() && run->begin < rows.end; ++run)
      count -= intersection(*run, rows).size();
    return count;
  }
  void add(Range rows) {
    const auto first = runs_.begin() + (first_from(rows.begin - 1) - runs_.cbegin());  // it may touch
    auto last = first;
    for (; last != runs_.end() && last->begin <= rows.end; ++last)
      rows = {std::min(rows.begin, last->begin), std::max(rows.end, last->end)};
    if (first == last) {
      runs_.insert(first, rows);
    } else {
      *first = rows;
      runs_.erase(first + 1, last);
    }
  }

 private:
  /// The first run that ends after i.
  std::vector<Range>::const_iterator first_from(index_t i) const {
    return std::ranges::partition_point(runs_, [&](const Range& run) { return run.end <= i; });
  }
  std::vector<Range> runs_;
};

/// f(tile) for the tiles of the rows I, from the first key on.
template <class F>
void for_pair_tiles(const Pattern& pattern, Range I, index_t room, const F& f) {
  PairTile tile{I, {}, 0, 0, 0};
  RowSet has;
  const auto new_rows = [&](std::span<const Range> runs) {
    index_t rows = 0;
    for_inside(runs, I, [&](Range run) { rows += has.missing(run); });
    return rows;
  };
  const auto finish = [&] {
    if (tile.pairs > 0) f(tile);
    has.clear();
    tile = {I, {}, 0, 0, 0};
  };
  for (const Range& seen : union_of(pattern.rows(), I))
    pattern.keys().for_groups(seen, [&](Range keys, std::span<const Range> runs) {
      const index_t each = pattern.keys().count(keys.begin, I);  // pairs of one key
      while (keys.size() > 0) {
        const index_t rows = tile.r == I.size() ? 0 : new_rows(runs), left = room - tile.pairs;
        // Beside the pairs a tile needs a word for each row or for each key, whichever are fewer.
        const index_t beside_rows = (left - tile.r - rows) / each, beside_keys = (left - tile.c) / (each + 1);
        index_t fitting = std::clamp<index_t>(std::max(beside_rows, beside_keys), 0, keys.size());
        if (fitting == 0 && tile.pairs > 0) {
          finish();
          continue;
        }
        fitting = std::max<index_t>(1, fitting);
        if (tile.pairs == 0) tile.keys.begin = keys.begin;
        if (rows > 0) for_inside(runs, I, [&](Range run) { has.add(run); });
        tile.r += rows;
        tile.c += fitting;
        tile.pairs += fitting * each;
        keys.begin += fitting;
        tile.keys.end = keys.begin;
      }
    });
  finish();
}

}  // namespace redblue::schedule
