#pragma once
/// What a schedule of your own needs: operands, limits, kernels, and describe() to plan and run it.
#include "redblue/kernels/attention.hpp"
#include "redblue/kernels/backward.hpp"
#include "redblue/kernels/materialised.hpp"
#include "redblue/kernels/softmax.hpp"
#include "redblue/schedules/describe.hpp"
#include "redblue/schedules/operands/backward.hpp"
#include "redblue/schedules/operands/forward.hpp"
#include "redblue/schedules/parts/limits.hpp"
