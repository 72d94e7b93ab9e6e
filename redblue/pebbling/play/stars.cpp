#include "redblue/pebbling/play/stars.hpp"

#include <algorithm>

namespace redblue::pebbling {
namespace {

/// The words that each word is paired with.
std::vector<PassingSet> partners_of(std::size_t words, const std::set<PassingSet>& sets) {
  std::vector<PassingSet> partners(words);
  for (const PassingSet& s : sets)
    for (const PassingWord a : s)
      for (const PassingWord b : s)
        if (a != b) partners[a].insert(b);
  return partners;
}

}  // namespace

std::optional<std::vector<Stay>> stays_of(std::size_t words, const std::set<PassingSet>& sets) {
  if (std::ranges::any_of(sets, [](const PassingSet& s) { return s.size() > 2; })) return std::nullopt;
  const std::vector<PassingSet> partners = partners_of(words, sets);
  std::vector<Stay> stays;
  std::vector<bool> is_placed(words);
  for (PassingWord word = 0; word < words; ++word) {
    if (is_placed[word]) continue;
    const PassingSet& of_word = partners[word];
    const bool is_centre = of_word.size() != 1 || partners[*of_word.begin()].size() == 1;
    const PassingWord centre = is_centre ? word : *of_word.begin();
    stays.push_back({.begin = {centre}, .sets = {{centre}}});
    for (const PassingWord other : partners[centre]) {
      if (partners[other].size() > 1) return std::nullopt;
      stays.push_back({.begin = {other}, .end = {other}, .sets = {{other}, {centre, other}}});
      is_placed[other] = true;
    }
    stays.back().end.push_back(centre);
    is_placed[centre] = true;
  }
  return stays;
}

}  // namespace redblue::pebbling
