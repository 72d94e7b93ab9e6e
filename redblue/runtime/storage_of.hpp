#pragma once
#include "redblue/machines/ram/storage.hpp"
#include "redblue/runtime/run.hpp"

namespace redblue {

/// Has the caller given it? (A size can be asked for before there is data.)
inline bool is_given(const Tensor& t) { return t.shape[0] > 0; }

/// Where a tensor lies, for a machine. `group` query heads share one instance (1 for what belongs to keys).
inline machine::Storage storage_of(const Tensor& t, index_t kv_heads, index_t group, bool writable) {
  machine::Storage s;
  s.data = static_cast<std::byte*>(t.data);
  s.dtype = t.dtype;
  s.writable = writable;
  s.kv_heads = kv_heads;
  s.group = group;
  s.batch_stride = t.strides[0];
  s.kv_head_stride = group * t.strides[1];
  s.head_stride = t.strides[1];
  s.row_stride = t.strides[2];
  s.col_stride = t.strides[3];
  s.scales = t.scales;
  return s;
}

/// How an array of modifiers lies: where its shape says 1, all share one.
inline machine::Storage storage_of_modifier(Tensor t, const Problem& p, bool writable) {
  for (std::size_t k = 0; k < 4; ++k)
    if (t.shape[k] == 1) t.strides[k] = 0;
  return storage_of(t, p.instances() / p.batch, p.group(), writable);
}

/// Throws InvalidProblem unless every array of the list has data and the shape the problem says.
void require_shapes(const Problem& p, const std::vector<SlowArray>& arrays, const Tensors& tensors);
/// Throws InvalidProblem for a tensor of this operation whose option the problem does not have: nothing would read it,
/// or write it.
void require_no_more(const Problem& p, const Tensors& tensors);

}  // namespace redblue
