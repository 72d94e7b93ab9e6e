#pragma once
#include <algorithm>

#include "redblue/problem/sequences.hpp"
#include "redblue/schedules/traits.hpp"

/// Which schedules a planner speaks of where none was asked for.
namespace redblue::plan {

/// Does a query not see the first key?
inline bool has_left_edge(const Sizes& x) {
  const auto parts = sequences_of(x);
  return std::ranges::any_of(parts, [](const Sizes& part) { return !part.mask.from_first_key(); });
}

/// Is it worth while to go over lists of pairs? Without a pattern that saves words only in a fast memory M of a few
/// d^2, and fewer the more queries there are (docs/schedules.md), while lists take ever longer.
inline bool may_list_pairs(const Sizes& x, Words M) {
  constexpr index_t kMostPairs = 1 << 18, kSquares = 4;
  return has_pattern(x) || (Words(x.n_q) * x.n_k <= kMostPairs && M <= kSquares * x.tile(SlowArray::K, x.d, x.d_v));
}

/// Is a schedule with these traits for such a problem? Others compute something else, or never pay.
inline bool is_for(const schedule::Traits& t, const Sizes& x, Words M) {
  return (!t.windows || has_left_edge(x)) && (!t.lists_pairs || may_list_pairs(x, M)) &&
         (!t.only_score || x.score == *t.only_score) && x.method_kind() == t.method && x.by_rows() == t.by_rows;
}

}  // namespace redblue::plan
