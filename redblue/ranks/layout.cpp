#include "redblue/ranks/layout.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "redblue/language/error.hpp"

namespace redblue::ranks {
namespace {

/// Work in blocks, in the order of their positions, on ranks that have all of a sum.
void require_reproducible(const Problem& problem, const Layout& l, index_t kv_heads) {
  const auto refuse = [&](bool asked, const std::string& what, std::string_view instead) {
    if (asked) throw InvalidProblem(fmt::format("reproducible = {} {}: {}", l.reproducible, what, instead));
  };
  refuse(l.reproducible < 0, "rows in a block", "give 1 or more, or 0 for none");
  refuse(l.grid_cols > 1, fmt::format("with {} columns", l.grid_cols),
         "queries stay at home and keys come to them; give one column");
  refuse(l.grid_rows > 1 && l.transfer != Transfer::gather, fmt::format("with transfer {}", name_of(l.transfer)),
         "keys are taken in the order of their positions, when all of them are there; give gather");
  refuse(l.head_groups > kv_heads, fmt::format("with {} groups of {} key-value heads", l.head_groups, kv_heads),
         "a head of keys and its queries stay together; give no more groups than key-value heads");
  refuse(l.block % l.reproducible != 0, fmt::format("with block = {}", l.block),
         "a rank has whole blocks; give a multiple of the former as the latter");
  refuse(problem.bias_gradient || problem.sinks_gradient, "with gradients of a bias or of sinks",
         "they are summed over ranks; leave them out");
  refuse(problem.bias && problem.op == Operation::backward && l.grid_rows > 1, "with the gradient under a bias",
         "queries come to keys, and the rows of a bias stay at home; run it on one rank");
}

void require_layout(const Problem& problem, const Layout& l) {
  for (const auto& [name, value] :
       {std::pair{"head_groups", l.head_groups}, {"grid_rows", l.grid_rows}, {"grid_cols", l.grid_cols}})
    if (value < 1) throw InvalidProblem(fmt::format("{} = {}: give 1 or more", name, value));
  const index_t groups = l.head_groups, kv_heads = problem.kv_heads.value_or(problem.heads);
  if (problem.heads % groups != 0)
    throw InvalidProblem(
        fmt::format("head_groups = {} for {} query heads: give a divisor of them", groups, problem.heads));
  if (kv_heads % groups != 0 && groups % kv_heads != 0)
    throw InvalidProblem(fmt::format("head_groups = {} for {} key-value heads: give a divisor of them, or a multiple",
                                     groups, kv_heads));
  if (l.keeps_heads && groups == 1)
    throw InvalidProblem("keeps_heads with 1 head group: no head changes ranks; leave it out, or give more groups");
  if (l.reproducible != 0) require_reproducible(problem, l, kv_heads);
  if (l.transfer == Transfer::ring && l.grid_rows > 1 && l.grid_cols > 1)
    throw InvalidProblem(
        fmt::format("a ring of {} x {} ranks: a ring is one row or one column of a grid; grids go with "
                    "exchange and gather",
                    l.grid_rows, l.grid_cols));
}

}  // namespace

World::World(const Problem& problem, const Layout& layout) : problem_(problem), layout_(layout), sight_(problem) {
  require_layout(problem, layout);
  owned_ =
      owned_rows(problem, layout.ranks(), layout.ownership, layout.block, std::max<index_t>(1, layout.reproducible));
  const int places = layout.grid_rows * layout.grid_cols;
  for (const Side side : {Side::queries, Side::keys}) {
    auto& of_places = places_[index(side)];
    for (int v = 0; v < places; ++v) {
      std::vector<Range> rows;
      for (int g = 0; g < layout.head_groups; ++g)
        for (const Range& r : rows_of(side, v * layout.head_groups + g).ranges()) rows.push_back(r);
      of_places.emplace_back(std::move(rows));
    }
    std::vector<std::vector<Range>> blocks(
        static_cast<std::size_t>(side == Side::queries ? layout.grid_rows : layout.grid_cols));
    for (int v = 0; v < places; ++v)
      for (const Range& r : of_places[static_cast<std::size_t>(v)].ranges())
        blocks[static_cast<std::size_t>(side == Side::queries ? row_of(v) : col_of(v))].push_back(r);
    for (auto& ranges : blocks) blocks_[index(side)].emplace_back(std::move(ranges));
  }
}

Range World::heads_of(Side side, int group) const {
  const index_t all = all_heads(side).end, groups = layout_.head_groups;
  if (all >= groups) return {group * (all / groups), (group + 1) * (all / groups)};
  const index_t head = group / (groups / all);
  return {head, head + 1};
}

}  // namespace redblue::ranks
