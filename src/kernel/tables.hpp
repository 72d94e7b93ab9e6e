#pragma once
#include "redblue/kernel/bodies.hpp"

/// The tables that are compiled for instruction sets of their own, one file each.
namespace redblue::kernel {

extern const Bodies<float> kAvx2F32, kAvx512F32, kAvx512Bf16;
extern const Bodies<double> kAvx2F64, kAvx512F64;

}  // namespace redblue::kernel
