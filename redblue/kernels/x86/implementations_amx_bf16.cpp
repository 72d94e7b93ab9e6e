#include "redblue/kernels/simd/online_attention.hpp"
#include "redblue/kernels/x86/amx.hpp"
#include "redblue/kernels/x86/bf16_key_gradients.hpp"
#include "redblue/kernels/x86/tables.hpp"

namespace redblue::kernel {

Implementations<float> with_amx(Implementations<float> b) {
  b.isa = Isa::amx_bf16;
  b.paired = simd::MultiplyAmx::kValues;
  b.set<OnlineAttention>(simd::online_attention<simd::F32x16, simd::MultiplyAmx, simd::Bf16Rows>);
  b.set<KeyGradients>(simd::bf16_key_gradients<simd::MultiplyAmx>);
  b.set<GemmOver>(simd::bf16_gemm_over<simd::MultiplyAmx>);
  b.pair_rows = simd::pair_columns;
  return b;
}

}  // namespace redblue::kernel
