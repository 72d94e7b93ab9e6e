#pragma once
#include <algorithm>
#include <cstdint>

#include "redblue/problem/sequences.hpp"
#include "redblue/schedules/schedule.hpp"

/// Which schedules a planner speaks of where none was asked for.
namespace redblue::plan {

/// Does a query not see the first key?
inline bool has_left_edge(const Sizes& x) {
  const auto parts = sequences_of(x);
  return std::ranges::any_of(parts, [](const Sizes& part) { return !part.mask.from_first_key(); });
}

/// Has a batch several sequences?
inline bool is_packed(const Sizes& x) { return std::ssize(sequences_of(x)) > batches_of(x); }

/// How far a planner goes for lists of pairs without a pattern.
enum class PairLists : std::uint8_t { none, short_ones, long_ones };

/// Does it list pairs? Without a pattern that pays in a fast memory M of some d^2 (docs/schedules.md), but lists take
/// time for each row and key, unless all rows see all keys. Long ones are for problems that nothing else fits.
inline bool may_list_pairs(const Sizes& x, Words M, PairLists lists) {
  if (has_pattern(x)) return true;
  if (lists == PairLists::none) return false;
  constexpr index_t kAlike = 1 << 17, kShort = 2048, kLong = 8192, kSquares = 64;
  Words length;
  for (const Sizes& part : sequences_of(x)) length += part.n_q + part.n_k;
  const bool alike = x.mask.full() && x.sequences == nullptr, all = lists == PairLists::long_ones;
  return length <= (alike ? kAlike : all ? kLong : kShort) && (all || M <= kSquares * x.tile(SlowArray::K, x.d, x.d_v));
}

/// Is this a schedule of second derivatives that keeps matrices over pairs in slow memory, in a fast memory of M words
/// in which others move fewer? Planners of time leave it out there: it never wins, and to walk it takes long.
inline bool wants_small_cache(const Schedule& s, const Sizes& x, Words M) {
  constexpr index_t kSquares = 4;
  return has_directions(s.operation) && s.has_quadratic_workspace() && M > kSquares * x.tile(SlowArray::K, x.d, x.d_v);
}

/// Is a schedule for such a problem? Others compute something else, or never pay. PairLists::none is for planners of
/// time.
inline bool is_for(const Schedule& s, const Sizes& x, Words M, PairLists lists) {
  const schedule::Traits& t = s.traits;
  return (!t.windows || has_left_edge(x)) && (!t.lists_pairs || may_list_pairs(x, M, lists)) &&
         (!t.only_score || x.score == *t.only_score) && x.method_kind() == t.method && x.by_rows() == t.by_rows &&
         (lists != PairLists::none || !wants_small_cache(s, x, M));
}

/// Is it listed only where it is chosen? It is for narrow rows, which these are not, or for patterns.
inline bool is_special(const schedule::Traits& t, const Sizes& x) {
  return (t.narrow && !has_left_edge(x) && !is_packed(x)) || (t.lists_pairs && !has_pattern(x));
}

}  // namespace redblue::plan
