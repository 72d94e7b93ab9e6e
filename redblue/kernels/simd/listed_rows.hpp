#pragma once
#include <cstdint>

#include "redblue/kernels/simd/few_rows.hpp"

/// Products with some rows of a matrix, which a list names: the keys that a query sees here and there, or the queries
/// that see a key. Features lie in lanes; a score is summed across them.
namespace redblue::kernel::simd {

template <class V>
struct ListedRows {
  using T = typename V::T;
  static constexpr index_t L = V::kLanes;
  static constexpr int kRegisters = V::kAccumulators == 24 ? 8 : 4;

  View<const T> rows;  ///< whose words lie side by side

  /// Lane i: x . row list[i], of the first n.
  [[gnu::always_inline]] V products(const T* x, const std::int32_t* list, index_t n) const {
    V lanes[L];
#pragma GCC unroll 16
    for (index_t i = 0; i < L; ++i) lanes[i] = V::zero();
    for_row_blocks<kRegisters>(
        n, [&]<int R>(index_t i, Height<R>) { dots_of<R>(x, list + i, reinterpret_cast<V(*)[R]>(&lanes[i])); });
    return sums_of(lanes);
  }
  /// x . row i, summed from the first word to the last in one chain, as D and dP of whole tiles are.
  T product_in_order(const T* x, index_t i) const {
    V c = V::zero();
    const T* const row = rows.data + i * rows.row_stride;
    for (index_t t = 0; t < rows.cols(); ++t) c = fma(V::all(x[t]), V::all(row[t]), c);
    alignas(64) T lanes[L];
    c.store(lanes);
    return lanes[0];
  }
  /// to <- by to + the sum of weights[kApart i] row list[i], of the first n.
  template <index_t kApart = 1>
  void add(T* to, const std::int32_t* list, const T* weights, index_t n, T by = T(1)) const {
    const index_t whole = rows.cols() / L;
    for_row_blocks<kRegisters>(
        whole, [&]<int U>(index_t u, Height<U>) { add_columns<U, kApart>(to + u * L, u * L, list, weights, n, by); });
    if (const index_t t = whole * L, left = rows.cols() - t; left > 0) {
      V c = V::zero();
      for (index_t i = 0; i < n; ++i)
        c = fma(V::all(weights[kApart * i]), V::load_first(rows.data + list[i] * rows.row_stride + t, left), c);
      fma(V::load_first(to + t, left), V::all(by), c).store_first(to + t, left);
    }
  }

 private:
  template <int R>
  [[gnu::noinline]] void dots_of(const T* x, const std::int32_t* list, V (*lanes)[R]) const {
    const T* k[R];
    V c[R];
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      k[r] = rows.data + list[r] * rows.row_stride;
      c[r] = V::zero();
    }
    const index_t words_of_row = rows.cols();
    index_t t = 0;
    for (; t + L <= words_of_row; t += L) {
      const V words = V::load(x + t);
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) c[r] = fma(V::load(k[r] + t), words, c[r]);
    }
    if (const index_t left = words_of_row - t; left > 0) {
      const V words = V::load_first(x + t, left);
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) c[r] = fma(V::load_first(k[r] + t, left), words, c[r]);
    }
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) (*lanes)[r] = c[r];
  }
  template <int U, index_t kApart>
  [[gnu::noinline]] void add_columns(T* to, index_t t, const std::int32_t* list, const T* weights, index_t n,
                                     T by) const {
    V even[U], odd[U];
    clear_all(even), clear_all(odd);
    const auto add_row = [&](index_t i, V(&c)[U]) __attribute__((always_inline)) {
      const T* const v = rows.data + list[i] * rows.row_stride + t;
      const V weight = V::all(weights[kApart * i]);
#pragma GCC unroll 8
      for (int u = 0; u < U; ++u) c[u] = fma(V::load(v + u * L), weight, c[u]);
    };
    index_t i = 0;
    for (; i + 1 < n; i += 2) add_row(i, even), add_row(i + 1, odd);
    if (i < n) add_row(i, even);
#pragma GCC unroll 8
    for (int u = 0; u < U; ++u) fma(V::load(to + u * L), V::all(by), even[u] + odd[u]).store(to + u * L);
  }
  template <int U>
  static void clear_all(V (&c)[U]) {
#pragma GCC unroll 8
    for (int u = 0; u < U; ++u) c[u] = V::zero();
  }
};

}  // namespace redblue::kernel::simd
