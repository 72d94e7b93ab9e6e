#pragma once
/// Attention over ranks: layouts and their words, bounds, plans, simulated time, and threads as ranks.
#include "redblue/ranks/bounds.hpp"
#include "redblue/ranks/count.hpp"
#include "redblue/ranks/in_process.hpp"
#include "redblue/ranks/plan.hpp"
#include "redblue/ranks/simulate.hpp"
#include "redblue/ranks/whole.hpp"
