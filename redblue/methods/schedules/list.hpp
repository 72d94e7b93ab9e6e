#pragma once
#include "redblue/schedules/schedule.hpp"

namespace redblue::plan {

/// The schedules of approximations. redblue/methods/built_in.cpp adds them to those of exact attention.
void add_approximate(Registry& registry);

}  // namespace redblue::plan
