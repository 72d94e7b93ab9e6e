#pragma once
/// Lower bounds on the words that any schedule moves.
#include "redblue/bounds/bound.hpp"
#include "redblue/bounds/bytes.hpp"
#include "redblue/bounds/order.hpp"
