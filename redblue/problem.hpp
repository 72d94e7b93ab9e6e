#pragma once
/// What is asked for: sizes, masks, modifiers, operation.
#include "redblue/language/error.hpp"
#include "redblue/problem/called_elsewhere.hpp"
#include "redblue/problem/options.hpp"
#include "redblue/problem/problem.hpp"
#include "redblue/problem/sequences.hpp"
#include "redblue/problem/text.hpp"
