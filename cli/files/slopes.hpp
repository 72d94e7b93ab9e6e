#pragma once
#include <vector>

#include "redblue/language/types.hpp"

namespace redblue::cli {

/// The slopes of Press et al. (Train short, test long, 2022): powers of 2^(-8 / heads), for a power of two of heads;
/// else those of the largest power of two below, then every second one of twice as many heads.
std::vector<double> alibi_slopes(index_t heads);

}  // namespace redblue::cli
