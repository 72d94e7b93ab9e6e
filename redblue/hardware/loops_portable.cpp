#include <cmath>

#include "redblue/hardware/loops.hpp"
#include "redblue/hardware/vector_loops.hpp"

namespace redblue::hardware {

namespace {

/// A vector of 16 bytes, which every 64-bit processor has. On x86-64 a multiply-add is a multiplication and an
/// addition, because the baseline has no fused instruction.
template <class T>
struct Vector {
  using Element = T;
  using Type __attribute__((vector_size(16))) = T;
  static constexpr int lanes = 16 / sizeof(T);
  static constexpr int chains = 14;  // of 16 registers; two hold constants
  static Type set1(T x) { return x - Type{}; }
  static Type load(const T* p) { return *reinterpret_cast<const Type*>(p); }
  static void store(T* p, Type v) { *reinterpret_cast<Type __attribute__((aligned(alignof(T))))*>(p) = v; }
  static Type fma(Type a, Type b, Type c) { return a * b + c; }
  static Type add(Type a, Type b) { return a + b; }
};

/// As the portable kernels do it: one element after another.
template <class T>
double library_exp2(const void* from, void* to, std::int64_t n, std::int64_t passes) {
  const T* const x = static_cast<const T*>(from);
  T* const y = static_cast<T*>(to);
  T total = 0;
  for (std::int64_t pass = 0; pass < passes; ++pass)
    for (std::int64_t i = 0; i < n; ++i) total += y[i] = std::exp2(x[i] * T(0.125) - 1);
  return static_cast<double>(total);
}

template <class T>
constexpr Loops loops() {
  using V = Vector<T>;
  return {Isa::portable, kDTypeOf<T>, V::lanes, V::chains, multiply_add<V>, library_exp2<T>, read_loop<V>};
}

}  // namespace

const Loops kPortableF32 = loops<float>(), kPortableF64 = loops<double>();

}  // namespace redblue::hardware
