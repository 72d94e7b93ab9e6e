#include <immintrin.h>

#include "redblue/hardware/vector_loops.hpp"
#include "redblue/hardware/x86/loops.hpp"

namespace redblue::hardware {

namespace {

constexpr int kNearest = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;

struct F32 {
  using Element = float;
  using Type = __m512;
  static constexpr int lanes = 16;
  static constexpr int chains = 16;
  static constexpr float lowest_exponent = -126;
  static Type set1(float x) { return _mm512_set1_ps(x); }
  static Type load(const float* p) { return _mm512_load_ps(p); }
  static void store(float* p, Type v) { _mm512_storeu_ps(p, v); }
  static Type fma(Type a, Type b, Type c) { return _mm512_fmadd_ps(a, b, c); }
  static Type add(Type a, Type b) { return _mm512_add_ps(a, b); }
  static Type sub(Type a, Type b) { return _mm512_sub_ps(a, b); }
  static Type max(Type a, Type b) { return _mm512_max_ps(a, b); }
  static Type round(Type a) { return _mm512_roundscale_ps(a, kNearest); }
  static Type times_power_of_two(Type p, Type n) { return _mm512_scalef_ps(p, n); }
};

struct F64 {
  using Element = double;
  using Type = __m512d;
  static constexpr int lanes = 8;
  static constexpr int chains = 16;
  static constexpr double lowest_exponent = -1022;
  static Type set1(double x) { return _mm512_set1_pd(x); }
  static Type load(const double* p) { return _mm512_load_pd(p); }
  static void store(double* p, Type v) { _mm512_storeu_pd(p, v); }
  static Type fma(Type a, Type b, Type c) { return _mm512_fmadd_pd(a, b, c); }
  static Type add(Type a, Type b) { return _mm512_add_pd(a, b); }
  static Type sub(Type a, Type b) { return _mm512_sub_pd(a, b); }
  static Type max(Type a, Type b) { return _mm512_max_pd(a, b); }
  static Type round(Type a) { return _mm512_roundscale_pd(a, kNearest); }
  static Type times_power_of_two(Type p, Type n) { return _mm512_scalef_pd(p, n); }
};

}  // namespace

const Loops kAvx512F32 = {Isa::avx512,       DType::f32,     F32::lanes,    F32::chains,
                          multiply_add<F32>, exp2_loop<F32>, read_loop<F32>};
const Loops kAvx512F64 = {Isa::avx512,       DType::f64,     F64::lanes,    F64::chains,
                          multiply_add<F64>, exp2_loop<F64>, read_loop<F64>};

}  // namespace redblue::hardware
