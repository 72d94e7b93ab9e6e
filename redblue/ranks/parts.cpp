#include "redblue/ranks/parts.hpp"

#include <algorithm>
#include <stdexcept>

#include "redblue/language/range.hpp"

namespace redblue::ranks {
namespace {

/// Tiles of whole vectors, which stay in the second cache for heads of up to 256 features.
constexpr index_t kRowsOfTile = 128;
/// Fast memory that fits any tile: tiles are fixed, and no plan looks for others.
constexpr Words kMOfAnyTile = index_t{1} << 50;

/// f of each block that has some of these rows, in order.
template <class F>
void for_blocks(const Rows& rows, index_t size, const F& f) {
  index_t next = 0;
  for (const Range& r : rows.ranges())
    for (index_t b = std::max(next, r.begin / size); b * size < r.end; next = ++b) f(Range{b * size, (b + 1) * size});
}
/// Are these rows there? A rank has all of them, or none.
bool are_here(const Rows& rows, Range part) {
  const index_t here = intersection(rows, Rows::of(part)).count();
  if (here != 0 && here != part.size()) throw std::logic_error("a rank has some rows of a block, and others not");
  return here != 0;
}

}  // namespace

void for_parts(const World& world, const Rows& queries, const Rows& keys, const std::function<void(const Part&)>& f) {
  const index_t size = world.layout().reproducible;
  if (size == 0) {
    for (const Part& part : world.sight().parts(queries, keys)) f(part);
    return;
  }
  // A block may have packed sequences of other ranks beside those of this one.
  for_blocks(queries, size, [&](Range of_queries) {
    for_blocks(keys, size, [&](Range of_keys) {
      for (const Part& part : world.sight().parts(Rows::of(of_queries), Rows::of(of_keys)))
        if (are_here(queries, part.queries) && are_here(keys, part.keys)) f(part);
    });
  });
}

std::vector<Range> blocks_of_rows(const World& world, const Rows& rows) {
  const index_t size = world.layout().reproducible;
  if (size == 0) return {rows.ranges().begin(), rows.ranges().end()};
  std::vector<index_t> ends;
  for (const Document& d : world.sight().documents()) ends.insert(ends.end(), {d.queries.begin, d.queries.end});
  std::vector<Range> list;
  for (const Range& r : rows.ranges())
    for (index_t begin = r.begin; begin < r.end; begin = list.back().end) {
      const auto end = std::ranges::upper_bound(ends, begin);
      list.push_back({begin, std::min({r.end, (begin / size + 1) * size, end == ends.end() ? r.end : *end})});
    }
  return list;
}

Problem problem_of_part(const Part& part, Range heads, Range kv_heads) {
  Problem p = part.problem;
  if (p.dropout > 0) p.dropout_from = {heads.begin, p.heads, part.queries.begin, part.keys.begin};
  p.heads = heads.size();
  p.kv_heads = kv_heads.size();
  if (p.bias && (*p.bias)[1] != 1) (*p.bias)[1] = p.heads;
  return p;
}

plan::Options options_of_part(const World& world, const plan::Options& given) {
  if (world.layout().reproducible == 0) return given;
  const bool backward = world.problem().op == Operation::backward;
  return {.M = kMOfAnyTile,
          .schedule = backward ? "fused_query_outer" : "flash",
          .tiling = plan::Tiling{{.name = "Br", .value = kRowsOfTile},
                                 {.name = backward ? "bc" : "Bc", .value = kRowsOfTile}}};
}

}  // namespace redblue::ranks
