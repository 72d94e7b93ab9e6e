#pragma once
/// What is claimed of every schedule, as a function that tries it on one.
#include "redblue/verify/claims.hpp"
