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
  constexpr void set(Implementation<T, K> body) {
    detail::Slot<T, K>::body = body;
  }
};

extern const MethodImplementations<float> kMethodsAvx2F32, kMethodsAvx512F32;
extern const MethodImplementations<double> kMethodsAvx2F64, kMethodsAvx512F64;

}  // namespace redblue::kernel
