#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "redblue/language/names.hpp"

namespace redblue {

/// The options, or the values of options, that other libraries call by this name, the likeliest first, as Python spells
/// them; none where no library that is known has such an option. Capitals, hyphens and underscores make no difference.
/// What reads options from people asks this before it looks for the nearest spelling.
std::vector<std::string_view> called_elsewhere(std::string_view name);

/// For messages about a value that is none of `values`: "did you mean f32?", by what other libraries call it or the
/// nearest spelling, or "choose from f64, f32".
std::string value_choice(std::string_view value, const std::vector<std::string_view>& values);

/// The value of this name. Throws Error("SUBJECT: " and a value_choice) where there is none.
template <class Error, Named E>
E value_named(std::string_view name, const std::string& subject) {
  if (const auto value = from_name<E>(name)) return *value;
  const auto& names = names_of(E{});
  throw Error(subject + ": " + value_choice(name, {names.begin(), names.end()}));
}

}  // namespace redblue
