#include "redblue/ranks/meeting.hpp"

#include <gtest/gtest.h>

#include <vector>

#include "ranks/worlds.hpp"

namespace redblue::ranks::test {
namespace {

/// Rows in ranges at random.
Rows any_rows(index_t most) {
  std::vector<Range> ranges;
  for (index_t begin = drawn(0, 3); begin < most;) {
    const index_t end = std::min(most, begin + drawn(1, most));
    ranges.push_back({begin, end});
    begin = end + drawn(1, 4);
  }
  return Rows(std::move(ranges));
}

RC_GTEST_PROP(RankMeetings, HalvesShareThePairsEvenly, ()) {
  const Problem p = any_shared_problem(30);
  const Sight sight(p);
  const Meeting whole{any_rows(p.n_q), any_rows(p.n_k)};
  const auto [first, rest] = halves_of(sight, whole);
  const bool keys = whole.keys.count() > whole.queries.count();
  const Rows &cut = keys ? rest.keys : rest.queries, &before = keys ? first.keys : first.queries;
  RC_ASSERT((keys ? first.queries : first.keys) == (keys ? whole.queries : whole.keys));
  RC_ASSERT((keys ? rest.queries : rest.keys) == (keys ? whole.queries : whole.keys));
  RC_ASSERT(union_of(before, cut) == (keys ? whole.keys : whole.queries));
  RC_ASSERT(intersection(before, cut).empty());
  const auto pairs = [&](const Meeting& m) { return sight.pairs(m.queries, m.keys); };
  RC_ASSERT(pairs(first) + pairs(rest) == pairs(whole));
  RC_ASSERT(pairs(first) * 2 <= pairs(whole));
  for (const index_t position : cut.positions()) {  // the next row that has pairs is too much
    const Rows row = Rows::of({position, position + 1});
    const Words more = pairs(keys ? Meeting{whole.queries, row} : Meeting{row, whole.keys});
    if (more == 0) continue;
    RC_ASSERT((pairs(first) + more) * 2 > pairs(whole));
    return;
  }
}

}  // namespace
}  // namespace redblue::ranks::test
