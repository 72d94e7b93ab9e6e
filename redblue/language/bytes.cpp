#include "redblue/language/bytes.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

namespace redblue {

std::optional<Words> bytes_from(std::string_view text) {
  constexpr std::array<std::pair<std::string_view, double>, 10> kUnits{{{"", 1},
                                                                        {"B", 1},
                                                                        {"KiB", 0x1p10},
                                                                        {"MiB", 0x1p20},
                                                                        {"GiB", 0x1p30},
                                                                        {"TiB", 0x1p40},
                                                                        {"KB", 1e3},
                                                                        {"MB", 1e6},
                                                                        {"GB", 1e9},
                                                                        {"TB", 1e12}}};
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc()) return std::nullopt;
  const auto left = static_cast<std::size_t>(text.data() + text.size() - end);
  const std::string_view unit = text.substr(text.size() - left);
  const auto found = std::ranges::find(kUnits, unit, &std::pair<std::string_view, double>::first);
  if (found == kUnits.end()) return std::nullopt;
  const double bytes = number * found->second;
  if (!(bytes >= 1 && bytes < 0x1p62)) return std::nullopt;
  return Words(static_cast<index_t>(bytes));
}

}  // namespace redblue
