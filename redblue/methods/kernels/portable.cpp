#include "redblue/methods/kernels/implementations.hpp"

/// For processors whose family has no folder here (cmake/Isa.cmake): portable code alone.
namespace redblue::kernel {

template <>
const MethodImplementations<float>* method_implementations(Isa /*isa*/) {
  return nullptr;
}
template <>
const MethodImplementations<double>* method_implementations(Isa /*isa*/) {
  return nullptr;
}

}  // namespace redblue::kernel
