#include "kernel/simd/bf16.hpp"
#include "kernel/simd/online_attention.hpp"
#include "kernel/tables.hpp"

namespace redblue::kernel {

Bodies<float> with_bf16(Bodies<float> b) {
  b.isa = Isa::avx512_bf16;
  b.bf16 = true;
  b.set<OnlineAttention>(simd::online_attention<simd::F32x16, simd::MultiplyBf16, simd::Bf16Rows>);
  b.pack_queries = simd::pack_bf16;
  b.pair_rows = simd::pair_rows;
  return b;
}

}  // namespace redblue::kernel
