#include "redblue/kernels/simd/table.hpp"
#include "redblue/kernels/x86/avx512.hpp"
#include "redblue/kernels/x86/tables.hpp"

namespace redblue::kernel {

constinit const Implementations<double> kAvx512F64 = simd::table<simd::F64x8>(Isa::avx512);

}  // namespace redblue::kernel
