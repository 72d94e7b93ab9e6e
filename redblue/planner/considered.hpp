#pragma once
#include <algorithm>

#include "redblue/problem/sequences.hpp"
#include "redblue/schedules/parts/traits.hpp"

/// Which schedules a planner speaks of where none was asked for.
namespace redblue::plan {

/// Does a query not see the first key?
inline bool has_left_edge(const Sizes& x) {
  const auto parts = sequences_of(x);
  return std::ranges::any_of(parts, [](const Sizes& part) { return !part.mask.from_first_key(); });
}

/// Has a batch several sequences?
inline bool is_packed(const Sizes& x) { return std::ssize(sequences_of(x)) > batches_of(x); }

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

/// Is it listed only where it is chosen? It is for narrow rows, which these are not, or for patterns.
inline bool is_special(const schedule::Traits& t, const Sizes& x) {
  return (t.narrow && !has_left_edge(x) && !is_packed(x)) || (t.lists_pairs && !has_pattern(x));
}

}  // namespace redblue::plan
