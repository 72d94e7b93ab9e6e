#include "kernel/simd/avx512.hpp"
#include "kernel/simd/table.hpp"
#include "kernel/tables.hpp"

namespace redblue::kernel {

constinit const Bodies<double> kAvx512F64 = simd::table<simd::F64x8>(Isa::avx512);

}  // namespace redblue::kernel
