// Attention as loops around cblas_sgemm of OpenBLAS, one head at a time to each thread.
#include <cblas.h>

#include "attention_loops.hpp"

extern "C" char* openblas_get_config(void);
extern "C" char* openblas_get_corename(void);
extern "C" void openblas_set_num_threads(int);

namespace {

struct Gemm {
  static const float* keys_of(const float* k, long, long, float*) { return k; }
  static void scores(float* s, long lds, const float* q, const float* k, long rows, long keys, long d) {
    product(CblasNoTrans, CblasTrans, rows, keys, d, q, d, k, d, 0, s, lds);
  }
  static void accumulate(float* c, const float* a, long lda, const float* b, long m, long n, long k, bool first) {
    product(CblasNoTrans, CblasNoTrans, m, n, k, a, lda, b, n, first ? 0 : 1, c, n);
  }
  static void accumulate_transposed(float* c, const float* a, long lda, const float* b, long m, long n, long k) {
    product(CblasTrans, CblasNoTrans, m, n, k, a, lda, b, n, 1, c, n);
  }
  static void product(CBLAS_TRANSPOSE ta, CBLAS_TRANSPOSE tb, long m, long n, long k, const float* a, long lda,
                      const float* b, long ldb, float beta, float* c, long ldc) {
    const auto i = [](long x) { return static_cast<blasint>(x); };
    cblas_sgemm(CblasRowMajor, ta, tb, i(m), i(n), i(k), 1, a, i(lda), b, i(ldb), beta, c, i(ldc));
  }
};

constexpr peer::Blocks kBlocks[] = {
    {64, peer::kAll}, {192, peer::kAll}, {256, 512}, {512, 1024}, {peer::kAll, peer::kAll}};
using Loops = peer::Loops<Gemm>;

}  // namespace

const char* peer_about() {
  static const std::string text = std::string(openblas_get_config()) + ", core " + openblas_get_corename();
  return text.c_str();
}
int peer_variants(const PeerCell* cell) {
  if (cell->bf16) return 0;
  return cell->n > 2048 ? 4 : 5;  // the last holds n x n scores
}
const char* peer_variant_name(const PeerCell*, int variant) {
  static std::string name;
  return (name = peer::name_of(kBlocks[variant])).c_str();
}
void* peer_make(const PeerCell* cell, int variant) {
  openblas_set_num_threads(1);
  return new Loops(*cell, kBlocks[variant]);
}
void peer_run(void* made, const PeerArrays* arrays) { static_cast<Loops*>(made)->run(*arrays); }
void peer_free(void* made) { delete static_cast<Loops*>(made); }
