#include "redblue/kernel/bodies.hpp"

#include "kernel/tables.hpp"

namespace redblue::kernel {

namespace {

template <class T>
const Bodies<T>& choose(Isa isa, const Bodies<T>& avx2, const Bodies<T>& avx512) {
  static constexpr Bodies<T> portable;
  return isa == Isa::portable ? portable : isa == Isa::avx2 ? avx2 : avx512;
}

}  // namespace

template <>
const Bodies<float>& bodies(Isa isa) {
  return choose(isa, kAvx2F32, kAvx512F32);
}
template <>
const Bodies<double>& bodies(Isa isa) {
  return choose(isa, kAvx2F64, kAvx512F64);
}

const Bodies<float>& bf16_bodies(Isa isa) {
  if (isa != Isa::avx512_bf16) return bodies<float>(isa);
  static const Bodies<float> bf16 = with_bf16(kAvx512F32);
  return bf16;
}

}  // namespace redblue::kernel
