#pragma once
/// Plans of least time on this machine.
#include "redblue/planner/fastest.hpp"
#include "redblue/planner/plan_here.hpp"
