#pragma once
#include "redblue/methods/kernels/implementations.hpp"
#include "redblue/methods/kernels/simd/feature_maps.hpp"
#include "redblue/methods/kernels/simd/monomials.hpp"
#include "redblue/methods/kernels/simd/polynomial_attention.hpp"

/// The implementations of one instruction set, from its vectors.
namespace redblue::kernel::simd {

template <class V>
constexpr MethodImplementations<typename V::T> method_table() {
  MethodImplementations<typename V::T> b;
  b.template set<AddMonomials>(add_monomials_implementation<V>);
  b.template set<ApplyMonomials>(apply_monomials_implementation<V>);
  b.template set<PolynomialAttention>(polynomial_attention_implementation<V>);
  b.template set<AddElu>(add_elu_implementation<V>);
  b.template set<ApplyElu>(apply_elu_implementation<V>);
  b.template set<RandomFeatures>(random_features_implementation<V>);
  b.template set<RescaleRows>(rescale_rows_implementation<V>);
  b.template set<RescaleState>(rescale_state_implementation<V>);
  b.template set<SoftmaxRows>(softmax_rows_implementation<V>);
  b.template set<PseudoInverseStep>(pseudo_inverse_step_implementation<V>);
  b.template set<UnitScores>(unit_scores_implementation<V>);
  return b;
}

}  // namespace redblue::kernel::simd
