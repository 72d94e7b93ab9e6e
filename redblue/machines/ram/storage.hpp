#pragma once
#include <array>
#include <cstddef>

#include "redblue/kernels/implementations.hpp"
#include "redblue/language/dtype.hpp"
#include "redblue/language/scales.hpp"
#include "redblue/language/slow_matrix.hpp"

namespace redblue::machine {

/// Where one array of slow memory lies: the caller's memory, any strides (in elements), all batches and heads.
/// Instance i is batch i / kv_heads, key-value head i % kv_heads; row r is position r / group of head r % group.
struct Storage {
  std::byte* data = nullptr;
  DType dtype = DType::f64;
  bool writable = false;
  index_t kv_heads = 1;
  index_t group = 1;
  index_t batch_stride = 0;
  index_t kv_head_stride = 0;
  index_t head_stride = 0;  ///< between the query heads of one group
  index_t row_stride = 0;   ///< between positions
  index_t col_stride = 1;
  Scales scales{};  ///< of int8 words, whose rows are positions: group is 1

  constexpr index_t offset(index_t instance, index_t row, index_t col) const {
    return (instance / kv_heads) * batch_stride + (instance % kv_heads) * kv_head_stride + (row / group) * row_stride +
           (row % group) * head_stride + col * col_stride;
  }
  float scale(index_t instance, index_t row) const { return scales.of(instance / kv_heads, instance % kv_heads, row); }
  /// Do all rows lie at one stride?
  constexpr bool uniform_rows() const { return group == 1 || row_stride == group * head_stride; }
  constexpr index_t uniform_row_stride() const { return group == 1 ? row_stride : head_stride; }
  /// Do they, and the words of a row side by side?
  constexpr bool plain_rows() const { return uniform_rows() && col_stride == 1; }

  /// A plain row-major matrix, the same for every instance.
  template <class T>
  static Storage matrix(T* data, Shape shape) {
    Storage s;
    s.data = reinterpret_cast<std::byte*>(data);
    s.dtype = kDTypeOf<T>;
    s.writable = true;
    s.row_stride = shape.cols;
    return s;
  }
};

/// Slow memory of one problem.
using SlowMemory = std::array<Storage, kSlowArrays>;

/// Copies `b` out of slow memory into a row-major buffer of leading dimension ld, converting the element type.
template <class T>
void gather(const Storage& s, const Block& b, T* out, index_t ld, const kernel::RowConversion<T>& row_conversion = {});
/// Copies a buffer with the given strides into slow memory, rounding to nearest even.
template <class T>
void scatter(const Storage& s, const Block& b, const T* in, index_t row_stride, index_t col_stride,
             const kernel::RowConversion<T>& row_conversion = {});
/// Adds a buffer to slow memory, word by word and row by row: words of `b` that lie at one place add up there.
template <class T>
void add_to(const Storage& s, const Block& b, const View<const T>& from);

}  // namespace redblue::machine
