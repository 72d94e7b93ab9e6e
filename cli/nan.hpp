#pragma once
#include <optional>
#include <string>

#include "redblue/attention.hpp"

namespace redblue::cli {

/// Where a tensor has its first NaN, as "a NaN at [0, 0, 3, 5]"; nothing if it has none.
std::optional<std::string> first_nan(const Tensor& t);
/// The same of its first NaN or +inf, "+inf at [0, 0, 3, 5]".
std::optional<std::string> first_nan_or_inf(const Tensor& t);

}  // namespace redblue::cli
