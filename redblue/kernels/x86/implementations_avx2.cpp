#include "redblue/kernels/simd/table.hpp"
#include "redblue/kernels/x86/avx2.hpp"
#include "redblue/kernels/x86/tables.hpp"

namespace redblue::kernel {

constinit const Implementations<float> kAvx2F32 = simd::table<simd::F32x8>(Isa::avx2);
constinit const Implementations<double> kAvx2F64 = simd::table<simd::F64x4>(Isa::avx2);

}  // namespace redblue::kernel
