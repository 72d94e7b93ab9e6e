#pragma once
#include "kernel/simd/exp.hpp"
#include "kernel/simd/listed_rows.hpp"
#include "kernel/simd/panels.hpp"
#include "kernel/simd/place.hpp"
#include "redblue/kernel/pair_by_pair.hpp"

/// OnlineAttention for a panel of queries of which each sees few of the keys, here and there: row by row, over the keys
/// that it sees.
namespace redblue::kernel::simd {

/// to <- the transposed block of `cols` columns of L words, `from` having a column in each row.
template <class V>
void turn_out(const typename V::T* from, index_t stride, index_t cols, typename V::T* to) {
  constexpr index_t L = V::kLanes;
  index_t t = 0;
  if constexpr (requires { transpose_square(V{}, from, L, to, L); })
    for (; t + L <= cols; t += L) transpose_square(V{}, from + t * stride, stride, to + t, cols);
  for (; t < cols; ++t)
    for (index_t i = 0; i < L; ++i) to[i * cols + t] = from[t * stride + i];
}
/// The way back.
template <class V>
void turn_in(const typename V::T* from, index_t cols, typename V::T* to, index_t stride) {
  constexpr index_t L = V::kLanes;
  index_t t = 0;
  if constexpr (requires { transpose_square(V{}, from, L, to, L); })
    for (; t + L <= cols; t += L) transpose_square(V{}, from + t, cols, to + t * stride, stride);
  for (; t < cols; ++t)
    for (index_t i = 0; i < L; ++i) to[t * stride + i] = from[i * cols + t];
}

template <class V>
struct SparseRows {
  using T = typename V::T;
  static constexpr index_t L = V::kLanes;
  static constexpr index_t kMostWords = 256;           ///< of a row of Q or O
  static constexpr index_t kKeys = PairByPair::kKeys;  ///< at a time, and terms of a sum

  const T* Q;  ///< [d][width]
  T* O;        ///< [d_v][width]
  T *m, *l;    ///< of these queries
  index_t width, rows;
  const Place& place;  ///< of the first score
  View<const T> K, Vv;
  double scale;

  /// Is it faster to go pair by pair than to form the scores of so many keys?
  static bool pays(const Place& place, index_t rows, View<const T> K, View<const T> Vv, index_t keys) {
    if (K.cols() > kMostWords || Vv.cols() > kMostWords) return false;
    return PairByPair::attention(K.cols() + Vv.cols())
        .pays(rows, K.rows(), pairs_seen(place, {rows, K.rows()}), rows * keys);
  }

  void run() const {
    alignas(64) T q[L * kMostWords], o[L * kMostWords];
    const index_t d = K.cols(), d_v = Vv.cols();
    for (index_t first = 0; first < rows; first += L) {
      turn_out<V>(Q + first, width, d, q);
      turn_out<V>(O + first, width, d_v, o);
      for (index_t r = 0; r < std::min(L, rows - first); ++r)
        for (index_t key = 0; key < K.rows(); key += kKeys)
          attend(first + r, q + r * d, o + r * d_v, {key, std::min(key + kKeys, K.rows())});
      turn_in<V>(o, d_v, O + first, width);
    }
  }

 private:
  void attend(index_t row, const T* q, T* o, Range keys) const {
    std::int32_t list[kKeys + kSpare];
    alignas(64) T s[kKeys];
    const index_t n = keys_of_row(place, row, keys, list);
    if (n == 0) return;
    const ListedRows<V> k{K}, values{Vv};
    const V minus_inf = V::all(kMinusInf<T>);
    V top = minus_inf;
    for (index_t j = 0; j < n; j += L) {
      const V raw = k.products(q, list + j, std::min(L, n - j)).first_or(n - j, minus_inf);
      raw.store(s + j);
      top = max(top, raw);
    }
    const T old = m[row], most = std::max(old, largest(top) * static_cast<T>(scale));
    const Powers powers(most, static_cast<T>(scale));
    V sums = V::zero();
    for (index_t j = 0; j < n; j += L) {
      const V e = powers.of_raw(V::load(s + j));
      e.store(s + j);
      sums = sums + e;
    }
    alignas(64) T by[L];
    powers.of_maximum(V::all(old)).store(by);
    l[row] = l[row] * by[0] + sum(sums);
    m[row] = most;
    values.add(o, list, s, n, by[0]);
  }

  /// Weights beside this maximum, rounded as those of whole tiles are: O and l hold both.
  struct Powers {
    V factor, scale, top, shift;
    bool far;
    Powers(T most, T by)
        : factor(V::all(by * kLog2E<T>)),
          scale(V::all(by)),
          top(V::all(most == kMinusInf<T> ? T(0) : most)),
          shift(V::zero() - top * V::all(kLog2E<T>)),
          far(most != kMinusInf<T> && std::abs(most) > kFar<T>) {}
    V of_raw(V x) const { return far ? of_distance(x * scale - top) : exp2(fma(x, factor, shift)); }
    V of_maximum(V x) const { return far ? of_distance(x - top) : exp2(x * V::all(kLog2E<T>) + shift); }
    static V of_distance(V x) { return exp2(x * V::all(kLog2E<T>)); }
  };
};

}  // namespace redblue::kernel::simd
