#include "redblue/kernels/x86/avx2.hpp"
#include "redblue/methods/kernels/simd/table.hpp"
#include "redblue/methods/kernels/x86/tables.hpp"

namespace redblue::kernel {

constinit const MethodImplementations<float> kMethodsAvx2F32 = simd::method_table<simd::F32x8>();
constinit const MethodImplementations<double> kMethodsAvx2F64 = simd::method_table<simd::F64x4>();

}  // namespace redblue::kernel
