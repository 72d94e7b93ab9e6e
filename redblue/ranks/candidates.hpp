#pragma once
#include <vector>

#include "redblue/ranks/plan.hpp"

namespace redblue::ranks {

/// What layouts a planner looks at, with exchanges or with the transfer that is wanted: all divisions of the ranks into
/// head groups, rows and columns that the problem allows, and with `fewer` some that leave ranks unused.
std::vector<Layout> candidates(const Problem& problem, const Wanted& wanted, bool fewer);

/// May the heads of a problem stand in this many groups?
bool groups_divide(const Problem& problem, int head_groups);

/// The orders of rows that a planner tries: the one that is wanted, or those that go with the problem.
std::vector<Ownership> ownerships(const Problem& problem, const Wanted& wanted);

/// A value that no rank mean is below, where every query sees every key: words of a rank, or seconds.
double least_value(const Problem& problem, const Wanted& wanted, const Layout& layout, bool sees_all, Words all_pairs);

}  // namespace redblue::ranks
