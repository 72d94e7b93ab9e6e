#pragma once
#include <cstddef>
#include <optional>
#include <set>
#include <vector>

namespace redblue::pebbling {

/// Words that pass, by number, and the sets of them that are needed together.
using PassingWord = std::size_t;
using PassingSet = std::set<PassingWord>;

/// A while in which the same words are there.
struct Stay {
  std::vector<PassingWord> begin{}, end{};  ///< that come before it and leave after it
  std::set<PassingSet> sets{};              ///< that are complete now, for the first time
};

/// An order in which `words` words come once each and leave, two of them at most at a time, so that each of these sets,
/// of one or two, is complete in one stay. There is none if in some part of the words no word is in all the pairs.
std::optional<std::vector<Stay>> stays_of(std::size_t words, const std::set<PassingSet>& sets);

}  // namespace redblue::pebbling
