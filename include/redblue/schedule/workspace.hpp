#pragma once
#include "redblue/schedule/shape.hpp"

/// What a schedule S keeps in slow memory beside inputs and outputs: S::workspace names the arrays, S::Operands says
/// how large they are.
namespace redblue::schedule {

/// The matrix of `operands` that is called `array`.
template <class Operands>
SlowMatrix matrix_of(const Operands& operands, SlowArray array) {
  for (const SlowMatrix& m : operands.all())
    if (m.array == array) return m;
  return {array, {0, 0}};
}

/// Words of workspace of one instance.
template <class S>
Words workspace_words(const AttentionShape& x) {
  const typename S::Operands operands(x, 1);
  Words words;
  for (const SlowArray a : S::workspace) {
    const Shape s = matrix_of(operands, a).shape;
    words += Words(s.rows) * s.cols;
  }
  return words;
}

/// Does S keep a matrix with an entry for every query and key?
template <class S>
constexpr bool has_quadratic_workspace() {
  for (const SlowArray a : S::workspace)
    for (const SlowArray square : {SlowArray::S, SlowArray::P, SlowArray::A, SlowArray::f, SlowArray::q, SlowArray::p})
      if (a == square) return true;
  return false;
}

}  // namespace redblue::schedule
