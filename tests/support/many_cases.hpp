#pragma once
#include <cstdlib>
#include <string>

#include "support/cases.hpp"

namespace redblue::test {

/// Thousands of cases per property, or a share of them, where RC_PARAMS does not say otherwise. A failure prints the
/// RC_PARAMS that repeats it.
inline const bool kManyCases = setenv("RC_PARAMS", ("max_success=" + std::to_string(cases(3000))).c_str(), 0) == 0;

}  // namespace redblue::test
