#pragma once
#include <algorithm>

#include "redblue/kernels/simd/fetch.hpp"
#include "redblue/language/view.hpp"

/// Packed panels of a matrix: [panel][column][row], a panel being as many rows as a register tile is wide, the last one
/// as many whole vectors as are left, which may be one more. Rows beyond the last are 0.
namespace redblue::kernel::simd {

/// Vectors across a full panel of rows.
template <class V>
inline constexpr int kPanelVectors = V::kAccumulators == 24 ? 3 : 2;
template <class V>
inline constexpr index_t kPanelWidth = kPanelVectors<V> * V::kLanes;

/// Vectors across the last panel, at most: a single vector that is left joins the panel before it, because a tile of
/// one vector spends as many loads as multiply-adds.
template <class V>
inline constexpr int kWidestPanel = V::kAccumulators == 24 ? 4 : 2;

template <class V>
index_t panel_width(index_t rows_left) {
  const index_t vectors = ceil_div(rows_left, V::kLanes);
  return (vectors <= kWidestPanel<V> ? vectors : kPanelVectors<V>)*V::kLanes;
}

/// f(first row, rows, width, offset of the panel) for each panel of a matrix.
template <class V, class F>
void for_panels(Shape s, const F& f) {
  for (index_t first = 0, width = 0; first < s.rows; first += width) {
    width = panel_width<V>(s.rows - first);
    f(first, std::min(width, s.rows - first), width, first * s.cols);
  }
}

/// What a transposition fetches: the rows below its own, one panel on, or nothing.
enum class Fetch { next_panel, nothing };

/// Writes `rows` x `cols` words at `from` transposed to `to`, whose rows are `width` words apart: a multiple of lanes.
template <class V, Fetch kFetch = Fetch::next_panel>
void transpose_in(View<const typename V::T> from, typename V::T* to, index_t width) {
  constexpr index_t L = V::kLanes;
  index_t columns = 0, rows = 0;  // of squares: the words of `to` in order, and the rows of the next panel on their way
  if constexpr (requires { transpose_square(V{}, from.data, L, to, L); })
    if (from.col_stride == 1) {
      columns = from.cols() / L * L;
      rows = from.rows() / L * L;
      for (index_t t = 0; t < columns; t += L)
        for (index_t r = 0; r < rows; r += L) {
          if constexpr (kFetch == Fetch::next_panel)
            for (index_t i = 0; i < L; ++i) fetch(&from(r + i + width, t));
          transpose_square(V{}, &from(r, t), from.row_stride, to + t * width + r, width);
        }
    }
  for (index_t r = 0; r < width; r += L)
    for (index_t t = r < rows ? columns : 0; t < from.cols(); ++t)
      for (index_t i = 0; i < L; ++i) to[t * width + r + i] = r + i < from.rows() ? from(r + i, t) : 0;
}

/// The way back: rows of `to` from columns of a panel.
template <class V>
void transpose_out(const typename V::T* from, index_t width, View<typename V::T> to) {
  constexpr index_t L = V::kLanes;
  for (index_t r = 0; r < to.rows(); r += L) {
    index_t t = 0;
    if constexpr (requires { transpose_square(V{}, from, L, to.data, L); })
      if (to.col_stride == 1 && r + L <= to.rows())
        for (; t + L <= to.cols(); t += L) {
          for (index_t i = 0; i < L; ++i)
            __builtin_prefetch(&to(r + i + L, t), 1);  // O may be far away: its next rows are asked for
          transpose_square(V{}, from + t * width + r, width, &to(r, t), to.row_stride);
        }
    for (; t < to.cols(); ++t)
      for (index_t i = 0; i < std::min(L, to.rows() - r); ++i) to(r + i, t) = from[t * width + r + i];
  }
}

template <class T>
View<T> rows_of(View<T> x, index_t first, index_t count) {
  x.data += first * x.row_stride;
  x.shape.rows = count;
  return x;
}

template <class V>
void pack(View<const typename V::T> from, typename V::T* panels) {
  for_panels<V>(from.shape, [&](index_t first, index_t rows, index_t width, index_t offset) {
    transpose_in<V>(rows_of(from, first, rows), panels + offset, width);
  });
}

template <class V>
void unpack(const typename V::T* panels, View<typename V::T> to) {
  for_panels<V>(to.shape, [&](index_t first, index_t rows, index_t width, index_t offset) {
    transpose_out<V>(panels + offset, width, rows_of(to, first, rows));
  });
}

}  // namespace redblue::kernel::simd
