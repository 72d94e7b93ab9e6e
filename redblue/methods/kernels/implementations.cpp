#include "redblue/methods/kernels/implementations.hpp"

namespace redblue::kernel {

namespace {

/// The implementation of K for an instruction set that this machine can run; null where there is none.
template <class T, class K>
Implementation<T, K> implementation_of(Isa isa) {
  const detail::Slot<T, K>* const slot = method_implementations<T>(isa);
  return slot == nullptr ? nullptr : slot->implementation;
}

}  // namespace

template <class T>
Implementation<T, AddMonomials> AddMonomials::implementation(Isa isa) {
  return implementation_of<T, AddMonomials>(isa);
}
template <class T>
Implementation<T, ApplyMonomials> ApplyMonomials::implementation(Isa isa) {
  return implementation_of<T, ApplyMonomials>(isa);
}
template <class T>
Implementation<T, PolynomialAttention> PolynomialAttention::implementation(Isa isa) {
  return implementation_of<T, PolynomialAttention>(isa);
}
template <class T>
Implementation<T, AddElu> AddElu::implementation(Isa isa) {
  return implementation_of<T, AddElu>(isa);
}
template <class T>
Implementation<T, ApplyElu> ApplyElu::implementation(Isa isa) {
  return implementation_of<T, ApplyElu>(isa);
}
template <class T>
Implementation<T, RandomFeatures> RandomFeatures::implementation(Isa isa) {
  return implementation_of<T, RandomFeatures>(isa);
}
template <class T>
Implementation<T, RescaleRows> RescaleRows::implementation(Isa isa) {
  return implementation_of<T, RescaleRows>(isa);
}
template <class T>
Implementation<T, RescaleState> RescaleState::implementation(Isa isa) {
  return implementation_of<T, RescaleState>(isa);
}
template <class T>
Implementation<T, SoftmaxRows> SoftmaxRows::implementation(Isa isa) {
  return implementation_of<T, SoftmaxRows>(isa);
}
template <class T>
Implementation<T, PseudoInverseStep> PseudoInverseStep::implementation(Isa isa) {
  return implementation_of<T, PseudoInverseStep>(isa);
}
template <class T>
Implementation<T, UnitScores> UnitScores::implementation(Isa isa) {
  return implementation_of<T, UnitScores>(isa);
}

template Implementation<float, AddMonomials> AddMonomials::implementation<float>(Isa);
template Implementation<double, AddMonomials> AddMonomials::implementation<double>(Isa);
template Implementation<float, ApplyMonomials> ApplyMonomials::implementation<float>(Isa);
template Implementation<double, ApplyMonomials> ApplyMonomials::implementation<double>(Isa);
template Implementation<float, PolynomialAttention> PolynomialAttention::implementation<float>(Isa);
template Implementation<double, PolynomialAttention> PolynomialAttention::implementation<double>(Isa);
template Implementation<float, AddElu> AddElu::implementation<float>(Isa);
template Implementation<double, AddElu> AddElu::implementation<double>(Isa);
template Implementation<float, ApplyElu> ApplyElu::implementation<float>(Isa);
template Implementation<double, ApplyElu> ApplyElu::implementation<double>(Isa);
template Implementation<float, RandomFeatures> RandomFeatures::implementation<float>(Isa);
template Implementation<double, RandomFeatures> RandomFeatures::implementation<double>(Isa);
template Implementation<float, RescaleRows> RescaleRows::implementation<float>(Isa);
template Implementation<double, RescaleRows> RescaleRows::implementation<double>(Isa);
template Implementation<float, RescaleState> RescaleState::implementation<float>(Isa);
template Implementation<double, RescaleState> RescaleState::implementation<double>(Isa);
template Implementation<float, SoftmaxRows> SoftmaxRows::implementation<float>(Isa);
template Implementation<double, SoftmaxRows> SoftmaxRows::implementation<double>(Isa);
template Implementation<float, PseudoInverseStep> PseudoInverseStep::implementation<float>(Isa);
template Implementation<double, PseudoInverseStep> PseudoInverseStep::implementation<double>(Isa);
template Implementation<float, UnitScores> UnitScores::implementation<float>(Isa);
template Implementation<double, UnitScores> UnitScores::implementation<double>(Isa);

}  // namespace redblue::kernel
