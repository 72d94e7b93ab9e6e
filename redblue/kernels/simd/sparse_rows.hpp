#pragma once
#include "redblue/kernels/pair_by_pair.hpp"
#include "redblue/kernels/simd/exp.hpp"
#include "redblue/kernels/simd/listed_rows.hpp"
#include "redblue/kernels/simd/panels.hpp"
#include "redblue/kernels/simd/place.hpp"

/// OnlineAttention for a panel of queries of which each sees few of the keys, here and there: row by row, over the keys
/// that it sees.
namespace redblue::kernel::simd {

template <class V>
struct SparseRows {
  using T = typename V::T;
  static constexpr index_t L = V::kLanes;
  static constexpr index_t kMostWords = PairByPair::kMostWords;  ///< of a row of Q or O
  static constexpr index_t kKeys = PairByPair::kKeys;            ///< of a row that are taken together

  const T* Q;  ///< [d][width]
  T* O;        ///< [d_v][width]
  T *m, *l;    ///< of these queries
  index_t width, rows;
  const Place& place;  ///< of the first score
  View<const T> K, Vv;
  double scale;

  /// Is it faster to go pair by pair than to form the scores of this number of keys?
  static bool pays(const Place& place, index_t rows, View<const T> K, View<const T> Vv, index_t keys) {
    if (K.cols() > kMostWords || Vv.cols() > kMostWords) return false;
    return PairByPair::attention(K.cols() + Vv.cols())
        .pays(rows, K.rows(), pairs_seen(place, {rows, K.rows()}), rows * keys);
  }

  void run() const {
    constexpr index_t kMost = kWidestPanel<V> * L * kMostWords;
    alignas(64) T q[kMost], o[kMost];
    const index_t d = K.cols(), d_v = Vv.cols();
    const View<T> Q_rows{q, {rows, d}, d}, O_rows{o, {rows, d_v}, d_v};
    transpose_out<V>(Q, width, Q_rows);
    transpose_out<V>(O, width, O_rows);
    for (index_t r = 0; r < rows; ++r)
      for (index_t key = 0; key < K.rows(); key += kKeys)
        attend(r, &Q_rows(r, 0), &O_rows(r, 0), {key, std::min(key + kKeys, K.rows())});
    transpose_in<V>(O_rows, O, width);
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
      const index_t count = std::min(L, n - j);
      const V raw = k.products(q, list + j, count).first_or(count, minus_inf);
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

  /// Weights beside a maximum, rounded as those of whole tiles are (AttentionPanel::Running), for O and l hold both.
  struct Powers {
    V factor, scale, top, shift;
    bool far;
    Powers(T most, T scale_of_raw)
        : factor(V::all(scale_of_raw * kLog2E<T>)),
          scale(V::all(scale_of_raw)),
          top(V::all(most == kMinusInf<T> ? T(0) : most)),
          shift(V::zero() - top * V::all(kLog2E<T>)),
          far(most != kMinusInf<T> && std::abs(most) > kFar<T>) {}
    V of_raw(V x) const { return far ? of_distance(x * scale - top) : exp2(fma(x, factor, shift)); }
    V of_maximum(V x) const { return far ? of_distance(x - top) : exp2(x * V::all(kLog2E<T>) + shift); }
    static V of_distance(V x) { return exp2(x * V::all(kLog2E<T>)); }
  };
};

}  // namespace redblue::kernel::simd
