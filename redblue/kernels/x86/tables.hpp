#pragma once
#include "redblue/kernels/implementations.hpp"

/// The tables that are compiled for instruction sets of their own: a file each for AVX2 and for the types of AVX-512,
/// which take the longest of all files to compile.
namespace redblue::kernel {

extern const Implementations<float> kAvx2F32, kAvx512F32;
extern const Implementations<double> kAvx2F64, kAvx512F64;

/// The implementations of AVX-512, but attention multiplies bf16. For machines that have AVX512-BF16.
Implementations<float> with_bf16(Implementations<float> avx512);
/// The implementations of with_bf16, but attention multiplies matrix tiles. For machines that have AMX-BF16.
Implementations<float> with_amx(Implementations<float> bf16);
/// OnlineAttention to rows of int8 by products of bf16, where queries are few and came from bf16. For machines that
/// have AVX512-BF16.
bool few_queries_of_int8(const OnlineAttention& step, std::span<const View<float>> x);

}  // namespace redblue::kernel
