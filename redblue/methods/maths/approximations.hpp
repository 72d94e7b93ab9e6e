#pragma once
#include <memory>

#include "redblue/methods/maths/method.hpp"
#include "redblue/methods/maths/row_polynomials.hpp"

/// What an opaque approximation is: the only casts.
namespace redblue {

/// One of the published methods.
class PublishedMethod final : public Approximation {
 public:
  explicit PublishedMethod(const Method& m) : Approximation(kind_of(m)), method(m) {}

  std::string text(index_t n_k) const override;
  std::string title(index_t n_k) const override { return text_of(redblue::fitted(method, n_k)); }
  bool same(const Approximation& other) const override {
    return method == static_cast<const PublishedMethod&>(other).method;
  }
  AnyApproximation fitted(index_t n_k) const override;
  void require_sound(const Problem& problem) const override;
  MethodWorkspace workspace(const Sizes& x) const override;
  std::vector<bound::Bound> bounds(Operation op, const bound::AttentionProblem& x) const override;
  bool has_edges() const override { return kind() == methods::kCoreset; }
  bool amplifies_roundings() const override {
    return kind() == methods::kNystroemformer || kind() == methods::kCoreset;
  }
  std::shared_ptr<const oracle::ApproximateRows<float>> rows(const oracle::Instance<float>& x) const override;
  std::shared_ptr<const oracle::ApproximateRows<double>> rows(const oracle::Instance<double>& x) const override;
  std::shared_ptr<const oracle::ApproximateRows<long double>> rows(
      const oracle::Instance<long double>& x) const override;

  Method method;
};

/// To be shared: Problem::approximation. Null for exact attention.
inline AnyApproximation approximate_by(const Method& m) {
  return m.index() == 0 ? nullptr : std::make_shared<const PublishedMethod>(m);
}

/// Null where rows have none of their own.
inline const RowPolynomials* row_polynomials_of(const AnyApproximation& a) {
  const bool is = a != nullptr && a->by_rows() && a->kind() == methods::kPolynomial;
  return is ? static_cast<const RowPolynomials*>(a.get()) : nullptr;
}
/// row_polynomials_of(a), to be shared.
inline std::shared_ptr<const RowPolynomials> shared_row_polynomials_of(const AnyApproximation& a) {
  return {a, row_polynomials_of(a)};
}
/// The polynomial in place of e^z; that of the whole range where each row has its own. Null where there is none.
inline const Polynomial* polynomial_of(const AnyApproximation& a) {
  if (a == nullptr || a->kind() != methods::kPolynomial) return nullptr;
  return a->by_rows() ? &static_cast<const RowPolynomials*>(a.get())->last() : static_cast<const Polynomial*>(a.get());
}
/// std::monostate where it is none of them.
inline const Method& method_of(const AnyApproximation& a) {
  static const Method none;
  const bool is = a != nullptr && a->kind() != methods::kPolynomial;
  return is ? static_cast<const PublishedMethod*>(a.get())->method : none;
}

/// What the approximation of a Problem, or of Sizes, is.
template <class X>
  requires requires(const X& x) { x.approximation; }
const RowPolynomials* row_polynomials_of(const X& x) {
  return row_polynomials_of(x.approximation);
}
template <class X>
  requires requires(const X& x) { x.approximation; }
const Polynomial* polynomial_of(const X& x) {
  return polynomial_of(x.approximation);
}
template <class X>
  requires requires(const X& x) { x.approximation; }
const Method& method_of(const X& x) {
  return method_of(x.approximation);
}

}  // namespace redblue
