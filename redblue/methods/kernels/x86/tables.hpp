#pragma once
#include "redblue/methods/kernels/implementations.hpp"

/// The tables that are compiled for instruction sets of their own.
namespace redblue::kernel {

extern const MethodImplementations<float> kMethodsAvx2F32, kMethodsAvx512F32;
extern const MethodImplementations<double> kMethodsAvx2F64, kMethodsAvx512F64;

}  // namespace redblue::kernel
