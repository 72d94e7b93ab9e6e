#pragma once
#include "redblue/problem/sizes.hpp"

/// The workspace of a schedule S, its slow memory beside inputs and outputs: S::workspace names the arrays, S::Operands
/// has their sizes, S::needs(sizes, array) says which of them a problem takes, and S::copies(tiling) the number of
/// copies of a partial array, which lie below each other.
namespace redblue::schedule {

/// The matrix of `operands` that is called `array`.
template <class Operands>
SlowMatrix matrix_of(const Operands& operands, SlowArray array) {
  for (const SlowMatrix& m : operands.all())
    if (m.array == array) return m;
  return {array, {0, 0}};
}

/// Is it a partial result, of one group of keys?
constexpr bool is_partial(SlowArray a) {
  return a == SlowArray::Og || a == SlowArray::lse_g || a == SlowArray::dQg || a == SlowArray::LQg;
}

/// The workspace of one instance.
template <class S>
std::array<SlowMatrix, S::workspace.size()> workspace_of(const typename S::Operands& operands,
                                                         const typename S::Tiling& t) {
  std::array<SlowMatrix, S::workspace.size()> list;
  for (std::size_t i = 0; i < list.size(); ++i) {
    list[i] = matrix_of(operands, S::workspace[i]);
    if (is_partial(list[i].array)) list[i].shape.rows *= S::copies(t);
    if (!S::needs(operands.shape, list[i].array)) list[i].shape.rows = 0;
  }
  return list;
}

}  // namespace redblue::schedule
