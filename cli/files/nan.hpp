#pragma once
#include <optional>
#include <string>

#include "redblue/runtime/run.hpp"

namespace redblue::cli {

enum class Unwanted { nan, nan_or_plus_inf, nan_or_infinite };

/// Where a tensor has its first unwanted entry, as "a NaN at [0, 0, 3, 5]"; nothing if it has none.
std::optional<std::string> first_unwanted(const Tensor& t, Unwanted unwanted);
/// `of`: the rows that are looked at.
std::optional<std::string> first_unwanted(const Tensor& t, Unwanted unwanted, Range of);
/// Where a tensor has its first finite entry that is infinite as a number of f32.
std::optional<std::string> first_beyond_f32(const Tensor& t);

}  // namespace redblue::cli
