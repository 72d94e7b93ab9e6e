#pragma once
#include <compare>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "redblue/problem/sizes.hpp"

/// Tile sizes by name. A schedule's Tiling has one function that visits its sizes in order,
///
///   void tile_sizes(const auto& tile_size) { tile_size({"Br", &Sizes::n_q}, Br), tile_size({.name = "G", .groups =
///   true}, G); }
///
/// with the name and range of each, and the variable. From it follow the list that travels, and the way back. A Tiling
/// has nothing but these sizes, and visits all of them whatever they are.
namespace redblue::schedule {

/// What tells the cores of a problem apart (parts/cores.hpp): those of one shape cost the same with the same tiles.
struct CoreShape {
  index_t n_q = 0, n_k = 0;            ///< rows of stacked query heads, and keys
  index_t lo = 0, hi = 0, prefix = 0;  ///< its Mask
  explicit CoreShape(const Sizes& core)
      : n_q(core.n_q), n_k(core.n_k), lo(core.mask.lo), hi(core.mask.hi), prefix(core.mask.prefix) {}
  friend auto operator<=>(const CoreShape&, const CoreShape&) = default;
};

/// A tile size by its name, for people, JSON, and whoever holds a schedule as a value.
struct TileSize {
  struct Own {
    CoreShape core;
    index_t value;
    friend bool operator==(const Own&, const Own&) = default;
  };
  std::string_view name;
  index_t value = 1;
  std::vector<Own> own{};  ///< cores of these shapes have a size of their own
  friend bool operator==(const TileSize&, const TileSize&) = default;
};

/// A tile size, and what it may be set to.
struct TileSizeRange {
  std::string_view name;
  index_t Sizes::* along = nullptr;  ///< the dimension that it is a tile of; null: none
  index_t least = 1;
  index_t most = 0;  ///< 0: the size of the dimension; any number where there is none
  /// A number of groups of keys, for as many workers. It makes no plan move fewer words.
  bool groups = false;
};

/// A size of a tiling: its tile size, the variable in the tiling, and whether the tiling lists it.
struct Variable {
  TileSizeRange range;
  index_t* value;
  bool listed;
};
using Variables = std::vector<Variable>;
template <class Tiling>
Variables variables_of(Tiling& t) {
  Variables list;
  t.tile_sizes(
      [&](const TileSizeRange& range, index_t& value, bool listed = true) { list.push_back({range, &value, listed}); });
  return list;
}

std::vector<index_t> sizes_of(const Variables& tiling);
void put_sizes(const Variables& tiling, std::span<const index_t> sizes);

/// The sizes of tilings that cores have of their own, in the order of their tile sizes.
using OwnSizes = std::map<CoreShape, std::vector<index_t>>;

/// A tiling of a schedule, and those of cores that have one of their own.
template <class One>
struct Tilings {
  One all{};
  OwnSizes own{};

  Tilings() = default;
  Tilings(One t) : all(std::move(t)) {}  // NOLINT(google-explicit-constructor): a tiling is one for all

  One of(const CoreShape& core) const {
    One t = all;
    if (const auto found = own.find(core); found != own.end()) put_sizes(variables_of(t), found->second);
    return t;
  }
  One of(const Sizes& core) const { return own.empty() ? all : of(CoreShape(core)); }
  void set_own(const CoreShape& core, One t) { own.insert_or_assign(core, sizes_of(variables_of(t))); }
  void tile_sizes(const auto& tile_size) { all.tile_sizes(tile_size); }
};
template <class T>
concept HasOwnTilings = requires(T t) { t.own; };

/// The values of a tiling. A tile size that its tiling does not list has its default.
std::vector<TileSize> tile_sizes_of(const Variables& tiling);
/// Adds those that a core has of its own.
void add_own(std::vector<TileSize>& list, const Variables& tiling, const CoreShape& core, const Variables& own);
template <class Tiling>
std::vector<TileSize> tile_sizes_of(Tiling t) {
  const Variables all = variables_of(t);
  std::vector<TileSize> list = tile_sizes_of(all);
  if constexpr (HasOwnTilings<Tiling>)
    for (const auto& [core, sizes] : t.own) {
      auto own = t.of(core);
      add_own(list, all, core, variables_of(own));
    }
  return list;
}

/// The values that cores have of their own, by their shapes. A tile size that is not among them has its default.
std::map<CoreShape, std::vector<TileSize>> own_tilings(std::span<const TileSize> list);

/// What they may be.
template <class Tiling>
std::vector<TileSizeRange> tile_size_ranges() {
  Tiling t{};
  std::vector<TileSizeRange> list;
  for (const Variable& v : variables_of(t)) list.push_back(v.range);
  return list;
}

/// Sets a tiling to these values. Throws InvalidProblem where the list has a name that the tiling has not, or one
/// twice.
void set_tile_sizes(const Variables& tiling, std::span<const TileSize> list);
/// The tiling with these values; tile sizes that are not in the list keep their defaults. Throws as set_tile_sizes
/// does.
template <class Tiling>
Tiling tiling_from(std::span<const TileSize> list) {
  Tiling t{};
  set_tile_sizes(variables_of(t), list);
  if constexpr (HasOwnTilings<Tiling>)
    for (const auto& [core, tile_sizes] : own_tilings(list)) {
      auto own = Tiling{}.all;
      set_tile_sizes(variables_of(own), tile_sizes);
      t.set_own(core, own);
    }
  return t;
}

}  // namespace redblue::schedule
