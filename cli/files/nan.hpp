#pragma once
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "redblue/runtime/run.hpp"

namespace redblue::cli {

enum class Unwanted { nan, nan_or_plus_inf, nan_or_infinite };

/// Where a tensor has its first unwanted entry, as "a NaN at [0, 0, 3, 5]"; nothing if it has none.
std::optional<std::string> first_unwanted(const Tensor& t, Unwanted unwanted);
/// `of`: the rows that are looked at.
std::optional<std::string> first_unwanted(const Tensor& t, Unwanted unwanted, Range of);
/// Where the first input that has a NaN has it, and what that means, as a sentence; empty where none has one. `rows`:
/// those of an array that are looked at; null: all.
std::string nan_text(const Problem& problem, const Tensors& tensors,
                     const std::function<std::vector<Range>(SlowArray)>& rows = {});
/// Where a tensor has its first finite entry that is infinite as a number of f32.
std::optional<std::string> first_beyond_f32(const Tensor& t);

}  // namespace redblue::cli
