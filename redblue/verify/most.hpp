#pragma once
#include <cmath>

namespace redblue {

/// The larger of two errors; NaN if one of them is, so that a NaN never passes as a small error.
inline double most(double a, double b) { return std::isnan(a) || b <= a ? a : b; }

}  // namespace redblue
