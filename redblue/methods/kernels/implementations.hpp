#pragma once
#include "redblue/kernels/implementations.hpp"
#include "redblue/methods/kernels/feature_maps.hpp"
#include "redblue/methods/kernels/landmarks.hpp"
#include "redblue/methods/kernels/polynomial_weights.hpp"
#include "redblue/methods/kernels/sorting.hpp"

/// Faster implementations of the kernels of approximations, a table for each instruction set.
namespace redblue::kernel {

template <class T>
struct MethodImplementations
    : detail::Slots<T, AddMonomials, ApplyMonomials, PolynomialAttention, AddElu, ApplyElu, RandomFeatures, RescaleRows,
                    RescaleState, SoftmaxRows, PseudoInverseStep, UnitScores> {
  template <class K>
  constexpr void set(Implementation<T, K> implementation) {
    detail::Slot<T, K>::implementation = implementation;
  }
};

/// The table for an instruction set that this machine can run, or null. The folder of the processor's family (x86/) has
/// it, or portable.cpp.
template <class T>
const MethodImplementations<T>* method_implementations(Isa isa);
template <>
const MethodImplementations<float>* method_implementations(Isa isa);
template <>
const MethodImplementations<double>* method_implementations(Isa isa);

}  // namespace redblue::kernel
