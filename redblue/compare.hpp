#pragma once
/// Exact attention and approximations side by side: words, errors, time.
#include "redblue/methods/compare.hpp"
#include "redblue/methods/regimes.hpp"
