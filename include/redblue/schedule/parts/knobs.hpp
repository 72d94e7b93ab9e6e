#pragma once
#include <algorithm>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "redblue/core/error.hpp"
#include "redblue/core/sizes.hpp"

/// Tile sizes by name. A schedule's Tiling has one function that visits its sizes in order,
///
///   void knobs(const auto& knob) { knob({"Br", &Sizes::n_q}, Br), knob({.name = "G", .groups = true}, G); }
///
/// with the name and range of each, and the variable. From it follow the list that travels, and the way back.
namespace redblue::schedule {

/// A tile size by its name, for people, JSON, and whoever holds a schedule as a value.
struct Knob {
  std::string_view name;
  index_t value = 1;
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

/// The values of a tiling. A knob that its tiling does not list has its default.
template <class Tiling>
std::vector<Knob> knobs_of(Tiling t) {
  std::vector<Knob> list;
  t.knobs([&](const KnobRange& range, index_t value, bool listed = true) {
    if (listed) list.push_back({range.name, value});
  });
  return list;
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
  if (known == list.size()) return t;
  std::string names;
  for (const KnobRange& r : knob_ranges<Tiling>()) names += (names.empty() ? "" : ", ") + std::string(r.name);
  throw InvalidProblem("a tiling has a size that its schedule does not know, or one twice; the schedule knows " +
                       (names.empty() ? "none" : names));
}

}  // namespace redblue::schedule
