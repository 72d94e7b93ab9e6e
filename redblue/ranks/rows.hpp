#pragma once
#include <span>
#include <vector>

#include "redblue/language/range.hpp"

namespace redblue::ranks {

/// Positions of a sequence that a rank or a tile has: ranges that go up, none empty, none touching the next.
class Rows {
 public:
  Rows() = default;
  /// The positions of ranges in any order; some may be in several.
  explicit Rows(std::vector<Range> ranges);
  static Rows of(Range one) { return Rows(std::vector{one}); }

  std::span<const Range> ranges() const { return ranges_; }
  index_t count() const;
  bool empty() const { return ranges_.empty(); }
  /// Row `place_of(p)` of a tile with these rows is position p, which they have.
  index_t place_of(index_t position) const;
  /// The position of each row, in order: the map by which a caller spreads his tensors over ranks.
  std::vector<index_t> positions() const;

  friend bool operator==(const Rows&, const Rows&) = default;

 private:
  std::vector<Range> ranges_;
};

/// What either has, and what both have.
Rows union_of(const Rows& a, const Rows& b);
Rows intersection(const Rows& a, const Rows& b);

}  // namespace redblue::ranks
