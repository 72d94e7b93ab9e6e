#pragma once
#include <type_traits>

#include "redblue/language/layout.hpp"
#include "redblue/language/types.hpp"

namespace redblue {

/// A strided matrix of scalars that a kernel may use. Only implementations that know a packed layout may use a packed
/// matrix; but every implementation may read key_panels and padded_rows as strided matrices.
template <class T>
struct View {
  T* data = nullptr;
  Shape shape{};
  index_t row_stride = 0;
  index_t col_stride = 1;
  Layout layout = Layout::row_major;
  /// The place of the same words in another layout. For key_panels: in panels. For output_panels: in the rows,
  /// row_stride apart, that they may be stored to, not to be read or written before; or nullptr where that is unknown.
  /// For int8_rows: the scale of each row.
  T* other_form = nullptr;

  constexpr View() = default;
  constexpr View(T* data, Shape shape, index_t row_stride, index_t col_stride = 1, Layout layout = Layout::row_major)
      : data(data), shape(shape), row_stride(row_stride), col_stride(col_stride), layout(layout) {}
  /// A view of mutable words serves as a view of constant ones.
  constexpr operator View<const T>() const  // NOLINT(google-explicit-constructor)
    requires(!std::is_const_v<T>)
  {
    View<const T> v{data, shape, row_stride, col_stride, layout};
    v.other_form = other_form;
    return v;
  }

  constexpr index_t rows() const { return shape.rows; }
  constexpr index_t cols() const { return shape.cols; }
  constexpr index_t words() const { return shape.words(); }
  constexpr T& operator()(index_t i, index_t j) const { return data[i * row_stride + j * col_stride]; }
  /// Word k of a vector, be it a row or a column.
  constexpr T& operator[](index_t k) const { return shape.rows == 1 ? (*this)(0, k) : (*this)(k, 0); }
  constexpr bool packed() const { return is_packed(layout); }
  constexpr View transposed() const { return {data, {shape.cols, shape.rows}, col_stride, row_stride}; }
};

}  // namespace redblue
