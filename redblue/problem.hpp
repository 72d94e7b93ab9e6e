#pragma once
/// What is asked for: sizes, masks, modifiers, operation.
#include "redblue/problem/problem.hpp"
