// Attention as loops around kernels that libxsmm generates for the very sizes, one head at a time to each thread.
#include <libxsmm.h>

#include <cstdio>
#include <cstdlib>

#include "attention_loops.hpp"

namespace {

/// libxsmm is column-major: what is C = A B here is C^T = B^T A^T there.
struct Gemm {
  /// [d][rows]: libxsmm cannot transpose its first factor.
  static const float* keys_of(const float* k, long rows, long d, float* to) {
    for (long f = 0; f < d; ++f)
      for (long j = 0; j < rows; ++j) to[f * rows + j] = k[j * d + f];
    return to;
  }
  static void scores(float* s, long lds, const float* q, const float* kt, long rows, long keys, long d) {
    product(LIBXSMM_GEMM_FLAG_NONE, keys, rows, d, kt, keys, q, d, s, lds, true);
  }
  static void accumulate(float* c, const float* a, long lda, const float* b, long m, long n, long k, bool first) {
    product(LIBXSMM_GEMM_FLAG_NONE, n, m, k, b, n, a, lda, c, n, first);
  }
  static void accumulate_transposed(float* c, const float* a, long lda, const float* b, long m, long n, long k) {
    product(LIBXSMM_GEMM_FLAG_TRANS_B, n, m, k, b, n, a, lda, c, n, false);
  }
  static void product(int flags, long m, long n, long k, const float* a, long lda, const float* b, long ldb, float* c,
                      long ldc, bool first) {
    const auto i = [](long x) { return static_cast<libxsmm_blasint>(x); };
    const libxsmm_blasint la = i(lda), lb = i(ldb), lc = i(ldc);
    const float alpha = 1, beta = first ? 0 : 1;
    const int prefetch = LIBXSMM_GEMM_PREFETCH_NONE;
    const libxsmm_smmfunction f =
        libxsmm_smmdispatch(i(m), i(n), i(k), &la, &lb, &lc, &alpha, &beta, &flags, &prefetch);
    if (f == nullptr) {
      std::fprintf(stderr, "libxsmm makes no kernel for m %ld n %ld k %ld flags %d\n", m, n, k, flags);
      std::abort();
    }
    f(a, b, c);
  }
};

constexpr peer::Blocks kBlocks[] = {{32, 128}, {48, 256}, {64, 64}, {64, 256}, {128, 512}};
using Loops = peer::Loops<Gemm>;

}  // namespace

const char* peer_about() {
  libxsmm_init();
  static const std::string text = "libxsmm " LIBXSMM_VERSION ", target " + std::string(libxsmm_get_target_arch());
  return text.c_str();
}
int peer_variants(const PeerCell* cell) { return cell->bf16 ? 0 : static_cast<int>(std::size(kBlocks)); }
const char* peer_variant_name(const PeerCell*, int variant) {
  static std::string name;
  return (name = peer::name_of(kBlocks[variant])).c_str();
}
void* peer_make(const PeerCell* cell, int variant) {
  libxsmm_init();
  return new Loops(*cell, kBlocks[variant]);
}
void peer_run(void* made, const PeerArrays* arrays) { static_cast<Loops*>(made)->run(*arrays); }
void peer_free(void* made) { delete static_cast<Loops*>(made); }
