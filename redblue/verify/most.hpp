#pragma once
#include <cmath>

namespace redblue {

/// The larger of two errors; NaN if one is: what is not a number is not near.
inline double most(double a, double b) { return std::isnan(a) || b <= a ? a : b; }

}  // namespace redblue
