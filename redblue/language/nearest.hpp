#pragma once
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace redblue {

/// How many letters to change, add or leave out to make `b` of `a` (Levenshtein's distance). Capitals, hyphens and
/// underscores make no difference.
std::size_t edits(std::string_view a, std::string_view b);

/// The name that was probably meant by `word`, for messages: the first of those that are the nearest to it, if a third
/// of its letters or fewer differ; else "".
std::string nearest(std::string_view word, const std::vector<std::string_view>& names);

/// "did you mean flash?", or "choose from flash, naive".
std::string choice(std::string_view word, const std::vector<std::string_view>& names);

}  // namespace redblue
