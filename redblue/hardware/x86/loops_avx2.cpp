#include <immintrin.h>

#include "redblue/hardware/vector_loops.hpp"
#include "redblue/hardware/x86/loops.hpp"

namespace redblue::hardware {

namespace {

constexpr int kNearest = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;

struct F32 {
  using Element = float;
  using Type = __m256;
  static constexpr int lanes = 8;
  static constexpr int chains = 12;  // of 16 registers; two hold constants
  static constexpr float lowest_exponent = -126;
  static Type set1(float x) { return _mm256_set1_ps(x); }
  static Type load(const float* p) { return _mm256_load_ps(p); }
  static void store(float* p, Type v) { _mm256_storeu_ps(p, v); }
  static Type fma(Type a, Type b, Type c) { return _mm256_fmadd_ps(a, b, c); }
  static Type add(Type a, Type b) { return _mm256_add_ps(a, b); }
  static Type sub(Type a, Type b) { return _mm256_sub_ps(a, b); }
  static Type max(Type a, Type b) { return _mm256_max_ps(a, b); }
  static Type round(Type a) { return _mm256_round_ps(a, kNearest); }
  static Type times_power_of_two(Type p, Type n) {
    const __m256i exponent = _mm256_slli_epi32(_mm256_cvtps_epi32(n), 23);
    return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(p), exponent));
  }
};

struct F64 {
  using Element = double;
  using Type = __m256d;
  static constexpr int lanes = 4;
  static constexpr int chains = 12;
  static constexpr double lowest_exponent = -1022;
  static Type set1(double x) { return _mm256_set1_pd(x); }
  static Type load(const double* p) { return _mm256_load_pd(p); }
  static void store(double* p, Type v) { _mm256_storeu_pd(p, v); }
  static Type fma(Type a, Type b, Type c) { return _mm256_fmadd_pd(a, b, c); }
  static Type add(Type a, Type b) { return _mm256_add_pd(a, b); }
  static Type sub(Type a, Type b) { return _mm256_sub_pd(a, b); }
  static Type max(Type a, Type b) { return _mm256_max_pd(a, b); }
  static Type round(Type a) { return _mm256_round_pd(a, kNearest); }
  static Type times_power_of_two(Type p, Type n) {
    const __m256i exponent = _mm256_slli_epi64(_mm256_cvtepi32_epi64(_mm256_cvtpd_epi32(n)), 52);
    return _mm256_castsi256_pd(_mm256_add_epi64(_mm256_castpd_si256(p), exponent));
  }
};

}  // namespace

const Loops kAvx2F32 = {Isa::avx2,         DType::f32,     F32::lanes,    F32::chains,
                        multiply_add<F32>, exp2_loop<F32>, read_loop<F32>};
const Loops kAvx2F64 = {Isa::avx2,         DType::f64,     F64::lanes,    F64::chains,
                        multiply_add<F64>, exp2_loop<F64>, read_loop<F64>};

}  // namespace redblue::hardware
