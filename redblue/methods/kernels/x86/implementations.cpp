#include "redblue/methods/kernels/x86/tables.hpp"

namespace redblue::kernel {

template <>
const MethodImplementations<float>* method_implementations(Isa isa) {
  return includes(isa, Isa::avx512) ? &kMethodsAvx512F32 : includes(isa, Isa::avx2) ? &kMethodsAvx2F32 : nullptr;
}
template <>
const MethodImplementations<double>* method_implementations(Isa isa) {
  return includes(isa, Isa::avx512) ? &kMethodsAvx512F64 : includes(isa, Isa::avx2) ? &kMethodsAvx2F64 : nullptr;
}

}  // namespace redblue::kernel
