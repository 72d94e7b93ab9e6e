#include "kernel/simd/avx512.hpp"
#include "kernel/simd/table.hpp"
#include "kernel/tables.hpp"

namespace redblue::kernel {

constinit const Bodies<float> kAvx512F32 = simd::table<simd::F32x16>(Isa::avx512);

}  // namespace redblue::kernel
