#include "kernel/simd/bf16.hpp"
#include "kernel/simd/table.hpp"
#include "kernel/tables.hpp"

namespace redblue::kernel {

namespace {

/// The bodies of AVX-512, but attention multiplies bf16.
constexpr Bodies<float> bf16_table() {
  Bodies<float> b = simd::table<simd::F32x16>(Isa::avx512_bf16);
  b.bf16 = true;
  b.set<OnlineAttention>(simd::online_attention<simd::F32x16, simd::MultiplyBf16, simd::Bf16Rows>);
  b.pack_queries = simd::pack_bf16;
  b.pair_rows = simd::pair_rows;
  return b;
}

}  // namespace

constinit const Bodies<float> kAvx512Bf16 = bf16_table();

}  // namespace redblue::kernel
