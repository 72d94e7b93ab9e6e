#pragma once
/// Polynomials and published methods in place of exact attention, for Problem::approximation.
#include "redblue/methods/maths/approximations.hpp"
