#pragma once
#include <cstdlib>

namespace redblue::test {

/// Thousands of cases per property, where RC_PARAMS does not say otherwise. A failure prints the RC_PARAMS that
/// repeats it.
inline const bool kManyCases = setenv("RC_PARAMS", "max_success=3000", 0) == 0;

}  // namespace redblue::test
