#pragma once
#include <type_traits>

#include "redblue/kernels/dense.hpp"
#include "redblue/kernels/simd/panels.hpp"
#include "redblue/kernels/simd/product.hpp"

/// C <- [C +] A B for row-major C and B (their words of a row lie side by side) and any A.
namespace redblue::kernel::simd {

enum class Into {
  overwrite,
  add,    ///< what is summed here is summed on its own, kPiece products at a time, and added to C
  go_on,  ///< C <- C + A B in one chain of multiply-adds from what C holds: the same bits however k is cut
};

/// What of the depth of a product some rows of C need: A is 0 elsewhere.
struct Depth {
  index_t first, end;
};
/// depth(row, rows) of a product: the same for all rows, or what a function says, which must outlive this. One type for
/// all, so that strips are compiled once.
template <class V>
class Depths {
 public:
  Depths(Depth all) : all_(all) {}  // NOLINT(google-explicit-constructor): a depth is that of all rows
  template <class F>
    requires std::is_invocable_r_v<Depth, const F&, index_t, index_t>
  Depths(const F& f)  // NOLINT(google-explicit-constructor): a function stands for what it says
      : f_(&f),
        say_([](const void* said, index_t row, index_t rows) { return (*static_cast<const F*>(said))(row, rows); }) {}
  Depth operator()(index_t row, index_t rows) const { return f_ == nullptr ? all_ : say_(f_, row, rows); }

 private:
  Depth all_{};
  const void* f_ = nullptr;
  Depth (*say_)(const void*, index_t, index_t) = nullptr;
};

/// Columns of C that one pass takes: NV vectors, the last one perhaps in part.
template <class V, int NV, bool kTail, class A>
void strip(View<typename V::T> C, A a, const typename V::T* b, index_t ldb, const Depths<V>& depth, Into into) {
  using T = typename V::T;
  const index_t last = C.cols() - (NV - 1) * V::kLanes;  // lanes of the last vector
  const auto load = [&](const T* p, int v) __attribute__((always_inline)) {
    if constexpr (kTail)
      if (v == NV - 1) return V::load_first(p + v * V::kLanes, last);
    return V::load(p + v * V::kLanes);
  };
  for_row_blocks<kRows<V, NV>>(C.rows(), [&]<int R>(index_t row, Height<R>) {
    V c[R][NV];
    T* const out = C.data + row * C.row_stride;
    // What is added to at the end, or by the next tile at its beginning, is on its way while this one is multiplied.
    const index_t fetched = into == Into::go_on ? row + R : row;
    for (index_t r = fetched; r < std::min(fetched + R, C.rows()); ++r)
      for (int v = 0; v < NV; ++v) __builtin_prefetch(C.data + r * C.row_stride + v * V::kLanes, 1);
    auto [first, end] = depth(row, R);
    bool adds = into == Into::add;
    do {
      const index_t piece = into == Into::go_on ? end - first : std::min(end - first, kPiece);
      clear(c);
      if (into == Into::go_on)
#pragma GCC unroll 24
        for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
          for (int v = 0; v < NV; ++v) c[r][v] = load(out + r * C.row_stride, v);
      multiply(c, a.from(row).after(first), b + first * ldb, ldb, piece, Multiply<V>{}, load);
      if (adds)
#pragma GCC unroll 24
        for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
          for (int v = 0; v < NV; ++v) c[r][v] = load(out + r * C.row_stride, v) + c[r][v];
#pragma GCC unroll 24
      for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
        for (int v = 0; v < NV; ++v) {
          T* const to = out + r * C.row_stride;
          if (kTail && v == NV - 1)
            c[r][v].store_first(to + v * V::kLanes, last);
          else
            c[r][v].store(to + v * V::kLanes);
        }
      first += piece;
      adds = true;
    } while (first < end);
  });
}

/// f(first column, NV) for strips of at most `most` vectors that cover `cols` columns as evenly as they can.
template <class V, class F>
void for_strips(index_t cols, const F& f) {
  constexpr index_t kMost = V::kAccumulators == 24 ? 4 : 2;
  index_t vectors = ceil_div(cols, V::kLanes), first = 0;
  while (vectors > 0) {
    const index_t now = ceil_div(vectors, ceil_div(vectors, kMost));
    f(first, now);
    first += now * V::kLanes;
    vectors -= now;
  }
}

template <class V, class A>
void multiply_into(View<typename V::T> C, A a, const typename V::T* b, index_t ldb, const Depths<V>& depth, Into into) {
  for_strips<V>(C.cols(), [&](index_t first, index_t vectors) {
    View<typename V::T> part = C;
    part.data += first;
    part.shape.cols = std::min(vectors * V::kLanes, C.cols() - first);
    const bool tail = part.cols() % V::kLanes != 0;
    const auto run = [&]<int NV>(Height<NV>) {
      if (tail)
        strip<V, NV, true>(part, a, b + first, ldb, depth, into);
      else
        strip<V, NV, false>(part, a, b + first, ldb, depth, into);
    };
    switch (vectors) {
      case 1:
        return run(Height<1>{});
      case 2:
        return run(Height<2>{});
      case 3:
        if constexpr (V::kAccumulators == 24) return run(Height<3>{});
        break;
      default:
        if constexpr (V::kAccumulators == 24) return run(Height<4>{});
        break;
    }
  });
}

/// Any A and B; C with its words of a row, or of a column, side by side. False for what else there is. What lies
/// outside of `depth` may be left out.
template <class V>
bool gemm(View<typename V::T> C, View<const typename V::T> A, View<const typename V::T> B, Into into,
          const Depths<V>& depth) {
  using T = typename V::T;
  if (C.packed() || A.packed() || B.packed()) return false;
  if (C.col_stride != 1) {
    if (C.row_stride != 1) return false;
    return gemm<V>(C.transposed(), B.transposed(), A.transposed(), into, Depth{0, A.cols()});
  }
  const index_t k = A.cols();
  if (k == 1 && into == Into::add) into = Into::go_on;  // with one rounding instead of two
  const auto a = [&](index_t t) { return Rows<T>{A.data + t * A.col_stride, A.row_stride, A.col_stride}; };
  if (B.col_stride == 1) {
    if (A.row_stride == 1)
      multiply_into<V>(C, Side<T>{A.data, A.col_stride}, B.data, B.row_stride, depth, into);
    else
      multiply_into<V>(C, a(0), B.data, B.row_stride, depth, into);
    return true;
  }
  // B lies transposed: packed a panel at a time, kDeep of its rows.
  constexpr index_t kDeep = 128;
  alignas(64) T panel[kDeep * kWidestPanel<V> * V::kLanes];
  if (k == 0 && into == Into::overwrite) multiply_into<V>(C, a(0), panel, 0, Depth{}, into);
  for (index_t t = 0; t < k; t += kDeep) {
    const index_t deep = std::min(kDeep, k - t);
    for_panels<V>({C.cols(), 1}, [&](index_t col, index_t cols, index_t width, index_t) {
      transpose_in<V>({B.data + t * B.row_stride + col * B.col_stride, {cols, deep}, B.col_stride, B.row_stride}, panel,
                      width);
      View<T> part = C;
      part.data += col;
      part.shape.cols = cols;
      multiply_into<V>(part, a(t), panel, width, Depth{0, deep}, t == 0 || into == Into::go_on ? into : Into::add);
    });
  }
  return true;
}
template <class V>
bool gemm(View<typename V::T> C, View<const typename V::T> A, View<const typename V::T> B, Into into) {
  return gemm<V>(C, A, B, into, Depth{0, A.cols()});
}

}  // namespace redblue::kernel::simd
