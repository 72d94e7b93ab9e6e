#pragma once
#include <vector>

#include "redblue/ranks/layout.hpp"

namespace redblue::ranks {

/// Keys of a set, counted from the first position on: for sums over queries whose ends move by one key from each to the
/// next.
class KeySums {
 public:
  explicit KeySums(const Rows& keys);
  /// The pairs of queries p in `rows` with the keys of the set before clamp(p + shift, least, most).
  Words before(Range rows, index_t shift, index_t least, index_t most) const;

 private:
  struct Start {
    index_t at, count;
    Words sum;
  };
  /// SUM of count(y) over y < x, and count(x): the keys before x.
  Words sum(index_t x) const;
  index_t count(index_t x) const;
  const Start* last_before(index_t x) const;
  std::vector<Range> ranges_;
  std::vector<Start> starts_;  ///< at the begin of each range
};

/// Pairs of one query head at each place of the grid.
std::vector<Words> pairs_of_places(const World& world);

}  // namespace redblue::ranks
