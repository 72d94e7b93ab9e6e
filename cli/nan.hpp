#pragma once
#include <optional>
#include <string>

#include "redblue/attention.hpp"

namespace redblue::cli {

/// Where a tensor has its first NaN, as "[0, 0, 3, 5]"; nothing if it has none.
std::optional<std::string> first_nan(const Tensor& t);

}  // namespace redblue::cli
