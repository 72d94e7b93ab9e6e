#include "redblue/language/dimensions.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "redblue/language/error.hpp"

namespace redblue {

const std::vector<std::string>& Dimensions::names() {
  static const std::vector<std::string> kNames = {"bhsd", "bhnd", "bshd", "bnhd", "hsd",
                                                  "hnd",  "shd",  "nhd",  "sd",   "nd"};
  return kNames;
}

std::string Dimensions::choices() {
  return fmt::format("give one of {} (b batch, h heads, s or n tokens, d features)", fmt::join(names(), ", "));
}

std::optional<Dimensions> Dimensions::from_name(std::string_view name) {
  if (std::ranges::find(names(), name) == names().end()) return std::nullopt;
  return Dimensions(name);
}

Dimensions::Dimensions(std::string_view name) : name_(name), letters_(name) {
  if (std::ranges::find(names(), name) == names().end())
    throw InvalidProblem(fmt::format("layout '{}': {}", name, choices()));
  std::ranges::replace(letters_, 's', 'n');
}

std::array<index_t, 4> Dimensions::strides(const std::array<index_t, 4>& shape) const {
  constexpr std::string_view kOrder = "bhnd";  // of Tensor
  for (std::size_t i = 0; i < kOrder.size(); ++i)
    if (shape[i] != 1 && letters_.find(kOrder[i]) == std::string::npos)
      throw InvalidProblem(
          fmt::format("layout '{}' has no dimension {}, and the array has {} there", name_, kOrder[i], shape[i]));
  std::array<index_t, 4> strides{};
  strides.fill(shape[0] * shape[1] * shape[2] * shape[3]);
  index_t stride = 1;
  for (std::size_t i = letters_.size(); i-- > 0;) {
    const std::size_t dimension = kOrder.find(letters_[i]);
    strides[dimension] = stride;
    stride *= shape[dimension];
  }
  return strides;
}

}  // namespace redblue
