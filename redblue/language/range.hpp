#pragma once
#include <algorithm>

#include "redblue/language/types.hpp"

namespace redblue {

/// Consecutive rows or keys: begin, ..., end - 1.
struct Range {
  index_t begin = 0;
  index_t end = 0;
  constexpr index_t size() const { return end - begin; }
  constexpr bool holds(index_t i) const { return begin <= i && i < end; }
  constexpr Range shifted(index_t by) const { return {begin + by, end + by}; }
  friend constexpr bool operator==(const Range&, const Range&) = default;
};
/// What both hold; empty if nothing.
constexpr Range intersection(Range a, Range b) {
  const index_t begin = std::max(a.begin, b.begin);
  return {begin, std::max(begin, std::min(a.end, b.end))};
}

}  // namespace redblue
