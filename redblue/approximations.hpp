#pragma once
/// Polynomials and published methods in place of exact attention, for Problem::approximation, and both side by side:
/// words, errors, time.
#include "redblue/methods/compare.hpp"
#include "redblue/methods/maths/approximations.hpp"
#include "redblue/methods/regimes.hpp"
