#include "redblue/ranks/meeting.hpp"

#include <vector>

namespace redblue::ranks {
namespace {

/// The first of these rows, with half of all pairs at most, and the rest. `pairs_of` says how many a range has.
template <class F>
std::array<Rows, 2> cut(const Rows& rows, const F& pairs_of) {
  std::vector<Words> of_ranges;
  Words all, before;
  for (const Range& r : rows.ranges()) all += of_ranges.emplace_back(pairs_of(r));
  std::vector<Range> first, rest;
  for (std::size_t i = 0; i < of_ranges.size(); before += of_ranges[i++]) {
    const Range& r = rows.ranges()[i];
    const auto fit = [&](Words pairs) { return (before + pairs) * 2 <= all; };
    Range ends{fit(of_ranges[i]) ? r.end : r.begin, fit(1) ? r.end : r.begin};  // where the first part may end
    while (ends.size() > 0) {
      const index_t middle = ends.end - ends.size() / 2;
      fit(pairs_of({r.begin, middle})) ? ends.begin = middle : ends.end = middle - 1;
    }
    first.push_back({r.begin, ends.begin});
    rest.push_back({ends.begin, r.end});
  }
  return {Rows(std::move(first)), Rows(std::move(rest))};
}

}  // namespace

std::array<Meeting, 2> halves_of(const Sight& sight, const Meeting& whole) {
  const auto& [queries, keys] = whole;
  if (keys.count() > queries.count()) {
    const auto [first, rest] = cut(keys, [&](Range part) { return sight.pairs(queries, Rows::of(part)); });
    return {{{queries, first}, {queries, rest}}};
  }
  const auto [first, rest] = cut(queries, [&](Range part) { return sight.pairs(Rows::of(part), keys); });
  return {{{first, keys}, {rest, keys}}};
}

}  // namespace redblue::ranks
