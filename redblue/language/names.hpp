#pragma once
#include <cstddef>
#include <optional>
#include <string_view>

namespace redblue {

/// An enum whose values have names: names_of(any value) is the array of all, in the order of the values, which count
/// from 0.
template <class E>
concept Named = requires(E e) { names_of(e)[0]; };

template <Named E>
constexpr std::string_view name_of(E e) {
  return names_of(e)[static_cast<std::size_t>(e)];
}
template <Named E>
constexpr std::optional<E> from_name(std::string_view name) {
  const auto& names = names_of(E{});
  for (std::size_t i = 0; i < names.size(); ++i)
    if (names[i] == name) return static_cast<E>(i);
  return std::nullopt;
}

}  // namespace redblue
