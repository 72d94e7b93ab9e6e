#include "redblue/kernels/x86/avx512.hpp"
#include "redblue/methods/kernels/simd/table.hpp"
#include "redblue/methods/kernels/x86/tables.hpp"

namespace redblue::kernel {

constinit const MethodImplementations<float> kMethodsAvx512F32 = simd::method_table<simd::F32x16>();

}  // namespace redblue::kernel
