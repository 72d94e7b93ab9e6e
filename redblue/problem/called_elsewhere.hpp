#pragma once
#include <string_view>
#include <vector>

namespace redblue {

/// The options that other libraries call by this name, the likeliest first, as Python spells them; none where no
/// library that is known has such an option. Capitals, hyphens and underscores make no difference. What reads options
/// from people asks this before it looks for the nearest spelling.
std::vector<std::string_view> called_elsewhere(std::string_view name);

}  // namespace redblue
