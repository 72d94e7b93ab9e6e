#include "redblue/language/nearest.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <numeric>
#include <utility>

namespace redblue {

std::string letters_of(std::string_view name) {
  std::string letters;
  for (const char c : name)
    if (std::isalnum(static_cast<unsigned char>(c)) != 0)
      letters += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return letters;
}

namespace {

/// How many letters to change, add or leave out to make `b` of `a` (Levenshtein's distance), of letters_of() each.
std::size_t edits(std::string_view a, std::string_view b) {
  const std::string from = letters_of(a), to = letters_of(b);
  std::vector<std::size_t> row(to.size() + 1);  // for the letters of `from` so far, and each beginning of `to`
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < from.size(); ++i) {
    std::size_t before = std::exchange(row[0], i + 1);
    for (std::size_t j = 0; j < to.size(); ++j) {
      const std::size_t here = std::min({row[j] + 1, row[j + 1] + 1, before + (from[i] == to[j] ? 0 : 1)});
      before = std::exchange(row[j + 1], here);
    }
  }
  return row.back();
}

}  // namespace

std::string nearest(std::string_view word, const std::vector<std::string_view>& names) {
  std::string found;
  std::size_t least = letters_of(word).size() / 3 + 1;
  for (const std::string_view name : names)
    if (const std::size_t n = edits(word, name); n < least) {
      least = n;
      found = name;
    }
  return found;
}

std::string choice(std::string_view word, const std::vector<std::string_view>& names) {
  const std::string meant = nearest(word, names);
  return meant.empty() ? fmt::format("choose from {}", fmt::join(names, ", ")) : fmt::format("did you mean {}?", meant);
}

}  // namespace redblue
