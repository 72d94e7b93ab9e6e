#include "redblue/schedules/parts/tile_sizes.hpp"

#include <algorithm>
#include <string>

#include "redblue/language/error.hpp"

namespace redblue::schedule {

std::vector<index_t> sizes_of(const Variables& tiling) {
  std::vector<index_t> sizes;
  sizes.reserve(tiling.size());
  for (const Variable& v : tiling) sizes.push_back(*v.value);
  return sizes;
}

void put_sizes(const Variables& tiling, std::span<const index_t> sizes) {
  for (std::size_t i = 0; i < tiling.size(); ++i) *tiling[i].value = sizes[i];
}

std::vector<TileSize> tile_sizes_of(const Variables& tiling) {
  std::vector<TileSize> list;
  for (const Variable& v : tiling)
    if (v.listed) list.push_back({v.range.name, *v.value});
  return list;
}

void add_own(std::vector<TileSize>& list, const Variables& tiling, const CoreShape& core, const Variables& own) {
  for (const Variable& v : own) {
    if (!v.listed) continue;
    auto tile_size = std::ranges::find(list, v.range.name, &TileSize::name);
    if (tile_size == list.end()) {
      const auto unlisted = std::ranges::find(tiling, v.range.name, [](const Variable& w) { return w.range.name; });
      tile_size = list.insert(tile_size, {v.range.name, *unlisted->value});
    }
    tile_size->own.push_back({core, *v.value});
  }
}

std::map<CoreShape, std::vector<TileSize>> own_tilings(std::span<const TileSize> list) {
  std::map<CoreShape, std::vector<TileSize>> own;
  for (const TileSize& k : list)
    for (const TileSize::Own& one : k.own) own[one.core].push_back({k.name, one.value});
  return own;
}

void set_tile_sizes(const Variables& tiling, std::span<const TileSize> list) {
  std::size_t known = 0;
  for (const Variable& v : tiling)
    for (const TileSize& k : list)
      if (k.name == v.range.name) *v.value = k.value, ++known;
  if (known == list.size()) return;
  std::string names;
  for (const Variable& v : tiling) names += (names.empty() ? "" : ", ") + std::string(v.range.name);
  throw InvalidProblem("a tiling has a size that its schedule does not know, or one twice; the schedule knows " +
                       (names.empty() ? "none" : names));
}

}  // namespace redblue::schedule
