#pragma once
#include "redblue/kernels/implementations.hpp"

namespace redblue::kernel {

/// The table for Q in bf16, and K and V in int8, if products of few queries may be of bf16: implementations(isa) if the
/// set has no such products; the results are then more exact.
const Implementations<float>& int8_implementations(Isa isa);

}  // namespace redblue::kernel
