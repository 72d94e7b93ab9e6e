#pragma once
#include "redblue/kernels/implementations.hpp"

/// The tables that are compiled for instruction sets of their own: a file each for AVX2 and for the types of AVX-512,
/// which take the longest of all files to compile.
namespace redblue::kernel {

extern const Bodies<float> kAvx2F32, kAvx512F32;
extern const Bodies<double> kAvx2F64, kAvx512F64;

/// The bodies of AVX-512, but attention multiplies bf16. For machines that have AVX512-BF16.
Bodies<float> with_bf16(Bodies<float> avx512);
/// The bodies of with_bf16, but attention multiplies matrix tiles. For machines that have AMX-BF16.
Bodies<float> with_amx(Bodies<float> bf16);

}  // namespace redblue::kernel
