#pragma once
#include "redblue/hardware/loops.hpp"

namespace redblue::hardware {

// One file for each instruction set; call only what is_available().
extern const Loops kAvx2F32, kAvx2F64;
extern const Loops kAvx512F32, kAvx512F64;
extern const Loops kAvx512Bf16;
extern const Loops kAmxBf16;

}  // namespace redblue::hardware
