#pragma once
#include <algorithm>
#include <cstdlib>

namespace redblue::test {

/// How many random cases to run where a full run takes `all`: a tenth if REDBLUE_FEW_CASES is set, as scripts/test.sh
/// does where the same test runs with all its cases elsewhere.
inline int cases(int all) { return std::getenv("REDBLUE_FEW_CASES") == nullptr ? all : std::max(1, all / 10); }

}  // namespace redblue::test
