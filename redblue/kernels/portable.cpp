#include "redblue/kernels/implementations.hpp"
#include "redblue/kernels/int8.hpp"

/// For processors whose family has no folder here (cmake/Isa.cmake): portable code alone.
namespace redblue::kernel {

template <>
const Implementations<float>& implementations(Isa /*isa*/) {
  return kPortable<float>;
}
template <>
const Implementations<double>& implementations(Isa /*isa*/) {
  return kPortable<double>;
}
const Implementations<float>& bf16_implementations(Isa /*isa*/) { return kPortable<float>; }
const Implementations<float>& int8_implementations(Isa /*isa*/) { return kPortable<float>; }

}  // namespace redblue::kernel
