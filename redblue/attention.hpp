#pragma once
/// Describe a problem, plan it, count it, run it: where most programs begin.
#include "redblue/language/dimensions.hpp"
#include "redblue/planner/planner.hpp"
#include "redblue/problem/problem.hpp"
#include "redblue/runtime/backend.hpp"
#include "redblue/runtime/partial.hpp"
#include "redblue/runtime/run.hpp"
