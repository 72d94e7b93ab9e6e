#pragma once
/// Plans of least time on this machine.
#include "redblue/planner/fastest.hpp"
