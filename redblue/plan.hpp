#pragma once
/// Choose schedule and tiles for the fewest words or bytes, and tables of regimes.
#include "redblue/language/bytes.hpp"
#include "redblue/language/word_type.hpp"
#include "redblue/planner/options.hpp"
#include "redblue/planner/planner.hpp"
#include "redblue/planner/widths.hpp"
