#include "redblue/kernels/x86/avx512.hpp"
#include "redblue/methods/kernels/simd/table.hpp"
#include "redblue/methods/kernels/x86/tables.hpp"

namespace redblue::kernel {

constinit const MethodImplementations<double> kMethodsAvx512F64 = simd::method_table<simd::F64x8>();

}  // namespace redblue::kernel
