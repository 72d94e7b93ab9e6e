#include "redblue/kernels/simd/table.hpp"
#include "redblue/kernels/x86/avx512.hpp"
#include "redblue/kernels/x86/tables.hpp"

namespace redblue::kernel {

constinit const Implementations<float> kAvx512F32 = simd::table<simd::F32x16>(Isa::avx512);

}  // namespace redblue::kernel
