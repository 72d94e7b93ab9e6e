#pragma once
#include "redblue/schedules/schedule.hpp"

namespace redblue::test {

/// Has this build approximations? (-DREDBLUE_METHODS=OFF leaves them out.)
inline bool has_approximations() { return plan::Registry::built_in().find(Operation::forward, "performer") != nullptr; }

}  // namespace redblue::test
