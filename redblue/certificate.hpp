#pragma once
/// Proven errors of approximations, and the cheapest approximation whose error is proved to be small enough.
#include "redblue/methods/certificate.hpp"
#include "redblue/methods/tolerance.hpp"
