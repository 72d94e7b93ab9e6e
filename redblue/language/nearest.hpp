#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace redblue {

/// The letters and digits of a name, without capitals: what is left where people write it in different ways.
std::string letters_of(std::string_view name);

/// The name that was probably meant by `word`, for messages: the first of those that are the nearest to it, if a third
/// of its letters or fewer differ; else "".
std::string nearest(std::string_view word, const std::vector<std::string_view>& names);

/// "did you mean flash?", or "choose from flash, naive".
std::string choice(std::string_view word, const std::vector<std::string_view>& names);

}  // namespace redblue
