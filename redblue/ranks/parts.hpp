#pragma once
#include <functional>

#include "redblue/planner/planner.hpp"
#include "redblue/ranks/layout.hpp"

/// How a rank divides its work on some queries and keys.
namespace redblue::ranks {

/// f of all pairs of these rows and keys, as problems that accumulate, in the order in which they are worked on. They
/// are as large as can be, or, where results are reproducible, blocks of queries and of keys that are the same whoever
/// has them: keys of a query come in the order of their positions, and queries of a key.
void for_parts(const World& world, const Rows& queries, const Rows& keys, const std::function<void(const Part&)>& f);

/// The ranges of queries that are worked on at once where no keys are: the blocks of each packed sequence, or all
/// neighbours.
std::vector<Range> blocks_of_rows(const World& world, const Rows& rows);

/// The problem of a part for these query heads and key-value heads; dropout counts as it does in the whole.
Problem problem_of_part(const Part& part, Range heads, Range kv_heads);

/// The options of the plan of a part: those given, or for reproducible results a schedule and tiles that are the same
/// for all parts.
plan::Options options_of_part(const World& world, const plan::Options& given);

}  // namespace redblue::ranks
