#pragma once
#include "redblue/core/sizes.hpp"

/// The workspace of a schedule S, its slow memory beside inputs and outputs: S::workspace names the arrays, S::Operands
/// has their sizes, and S::copies(tiling) the number of copies of a partial array, which lie below each other.
namespace redblue::schedule {

/// The matrix of `operands` that is called `array`.
template <class Operands>
SlowMatrix matrix_of(const Operands& operands, SlowArray array) {
  for (const SlowMatrix& m : operands.all())
    if (m.array == array) return m;
  return {array, {0, 0}};
}

/// Is it a partial result, of one group of keys?
constexpr bool is_partial(SlowArray a) { return a == SlowArray::Og || a == SlowArray::lse_g || a == SlowArray::dQg; }

/// The workspace of one instance.
template <class S>
std::array<SlowMatrix, S::workspace.size()> workspace_of(const typename S::Operands& operands,
                                                         const typename S::Tiling& t) {
  std::array<SlowMatrix, S::workspace.size()> list;
  for (std::size_t i = 0; i < list.size(); ++i) {
    list[i] = matrix_of(operands, S::workspace[i]);
    if (is_partial(list[i].array)) list[i].shape.rows *= S::copies(t);
  }
  return list;
}
/// Its words.
template <class S>
Words workspace_words(const Sizes& x, const typename S::Tiling& t) {
  Words words;
  for (const SlowMatrix& m : workspace_of<S>(typename S::Operands(x, 1), t))
    words += Words(m.shape.rows) * m.shape.cols;
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
