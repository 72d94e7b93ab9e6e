#include "kernel/simd/avx2.hpp"
#include "kernel/simd/table.hpp"
#include "kernel/tables.hpp"

namespace redblue::kernel {

constinit const Bodies<float> kAvx2F32 = simd::table<simd::F32x8>(Isa::avx2);
constinit const Bodies<double> kAvx2F64 = simd::table<simd::F64x4>(Isa::avx2);

}  // namespace redblue::kernel
