#pragma once
#include <string_view>

namespace redblue {

inline constexpr std::string_view kVersion = "0.2.0";

}  // namespace redblue
