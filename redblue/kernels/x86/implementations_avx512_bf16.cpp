#include "redblue/kernels/simd/online_attention.hpp"
#include "redblue/kernels/x86/bf16_key_gradients.hpp"
#include "redblue/kernels/x86/tables.hpp"

namespace redblue::kernel {

Implementations<float> with_bf16(Implementations<float> b) {
  b.isa = Isa::avx512_bf16;
  b.bf16 = true;
  b.set<OnlineAttention>(simd::online_attention<simd::F32x16, simd::MultiplyBf16, simd::Bf16Rows>);
  b.set<KeyGradients>(simd::bf16_key_gradients<simd::MultiplyBf16>);
  b.set<GemmOver>(simd::bf16_gemm_over<simd::MultiplyBf16>);
  b.pack_queries = simd::pack_bf16;
  b.pack = simd::pack_bf16_keys;
  b.pair_rows = simd::pair_rows;
  return b;
}

bool few_queries_of_int8(const OnlineAttention& step, std::span<const View<float>> x) {
  return simd::few_queries<simd::F32x16, simd::Int8Rows>(step, x);
}

}  // namespace redblue::kernel
