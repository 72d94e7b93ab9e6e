#pragma once
/// The cheapest approximation whose error is proved to be small enough.
#include "redblue/methods/tolerance.hpp"
