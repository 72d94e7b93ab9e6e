#pragma once
#include <algorithm>
#include <compare>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "redblue/core/error.hpp"
#include "redblue/core/sizes.hpp"

/// Tile sizes by name. A schedule's Tiling has one function that visits its sizes in order,
///
///   void knobs(const auto& knob) { knob({"Br", &Sizes::n_q}, Br), knob({.name = "G", .groups = true}, G); }
///
/// with the name and range of each, and the variable. From it follow the list that travels, and the way back.
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
struct Knob {
  struct Own {
    CoreShape core;
    index_t value;
    friend bool operator==(const Own&, const Own&) = default;
  };
  std::string_view name;
  index_t value = 1;
  std::vector<Own> own{};  ///< cores of these shapes have a size of their own
  friend bool operator==(const Knob&, const Knob&) = default;
};

/// A knob, and what it may be set to.
struct KnobRange {
  std::string_view name;
  index_t Sizes::* along = nullptr;  ///< the dimension that it is a tile of; null: none
  index_t least = 1;
  index_t most = 0;  ///< 0: the size of the dimension; any number where there is none
  /// A number of groups of keys, for as many workers. It makes no plan move fewer words.
  bool groups = false;
};

/// A tiling of a schedule, and those of cores that have one of their own.
template <class One>
struct Tilings {
  One all{};
  std::map<CoreShape, One> own{};

  Tilings() = default;
  Tilings(One t) : all(std::move(t)) {}  // NOLINT(google-explicit-constructor): a tiling is one for all

  const One& of(const Sizes& core) const {
    if (own.empty()) return all;
    const auto found = own.find(CoreShape(core));
    return found == own.end() ? all : found->second;
  }
  void knobs(const auto& knob) { all.knobs(knob); }
};
template <class T>
concept HasOwnTilings = requires(T t) { t.own; };

/// The values of a tiling. A knob that its tiling does not list has its default.
template <class Tiling>
std::vector<Knob> knobs_of(Tiling t) {
  std::vector<Knob> list, unlisted;
  t.knobs([&](const KnobRange& range, index_t value, bool listed = true) {
    (listed ? list : unlisted).push_back({range.name, value});
  });
  if constexpr (HasOwnTilings<Tiling>)
    for (auto& [core, own] : t.own)
      own.knobs([&](const KnobRange& range, index_t value, bool listed = true) {
        if (!listed) return;
        auto knob = std::ranges::find(list, range.name, &Knob::name);
        if (knob == list.end()) {
          const auto hidden = std::ranges::find(unlisted, range.name, &Knob::name);
          knob = list.insert(knob, *hidden);
        }
        knob->own.push_back({core, value});
      });
  return list;
}
/// The values that cores have of their own, by their shapes. A knob that is not among them has its default.
inline std::map<CoreShape, std::vector<Knob>> own_tilings(std::span<const Knob> list) {
  std::map<CoreShape, std::vector<Knob>> own;
  for (const Knob& k : list)
    for (const Knob::Own& one : k.own) own[one.core].push_back({k.name, one.value});
  return own;
}
/// What they may be.
template <class Tiling>
std::vector<KnobRange> knob_ranges() {
  Tiling t{};
  std::vector<KnobRange> list;
  t.knobs([&](const KnobRange& range, index_t, bool = true) { list.push_back(range); });
  return list;
}
/// The tiling with these values; knobs that are not in the list keep their defaults. Throws InvalidProblem where the
/// list has a name that the tiling has not.
template <class Tiling>
Tiling tiling_from(std::span<const Knob> list) {
  Tiling t{};
  std::size_t known = 0;
  t.knobs([&](const KnobRange& range, index_t& value, bool = true) {
    for (const Knob& k : list)
      if (k.name == range.name) value = k.value, ++known;
  });
  if constexpr (HasOwnTilings<Tiling>)
    for (const Knob& k : list)
      for (const Knob::Own& one : k.own)
        t.own[one.core].knobs([&](const KnobRange& range, index_t& value, bool = true) {
          if (k.name == range.name) value = one.value;
        });
  if (known == list.size()) return t;
  std::string names;
  for (const KnobRange& r : knob_ranges<Tiling>()) names += (names.empty() ? "" : ", ") + std::string(r.name);
  throw InvalidProblem("a tiling has a size that its schedule does not know, or one twice; the schedule knows " +
                       (names.empty() ? "none" : names));
}

}  // namespace redblue::schedule
