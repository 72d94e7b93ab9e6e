#pragma once
#include "redblue/kernels/pair_by_pair.hpp"
#include "redblue/kernels/simd/exp.hpp"
#include "redblue/kernels/simd/listed_rows.hpp"
#include "redblue/kernels/simd/place.hpp"
#include "redblue/kernels/softmax.hpp"
#include "redblue/language/score.hpp"

/// KeyGradients and GemmOver for a tile of which few pairs exist, here and there: weights query by query over the keys
/// that it sees, gradients of keys key by key over the queries that see it.
namespace redblue::kernel::simd {

/// Is it faster to go over the pairs of a tile of this shape, one by one?
[[gnu::always_inline]] inline bool pays_by_pair(const PairByPair& by_pair, const Place& place, Shape s) {
  const index_t pairs = pairs_seen(place, s);
  return 2 * pairs <= s.words() && by_pair.pays(s.rows, s.cols, pairs, pairs_formed(place, s));
}

template <class V>
struct SparseGradients {
  using T = typename V::T;
  static constexpr index_t L = V::kLanes;
  static constexpr index_t kRows = 192, kKeys = 512;  ///< of a part of the tile

  const Place& place;  ///< of the first score
  double scale;
  View<T> P, dS, dK, dV;
  View<const T> Q, K, Vv, lse, D, dO;

  void run() const {
    for (index_t i = 0; i < P.rows(); ++i)  // to the end of a vector, as rows are padded
      for (index_t j = 0; j < P.cols(); j += L) V::zero().store(&dS(i, j));
    for (index_t row = 0; row < P.rows(); row += kRows)
      for (index_t key = 0; key < P.cols(); key += kKeys)
        add_part({row, std::min(row + kRows, P.rows())}, {key, std::min(key + kKeys, P.cols())});
  }

 private:
  /// What the pairs of some queries and keys add. Their weights lie in P, one key after another, each with its
  /// gradient.
  void add_part(Range queries, Range keys) const {
    T* begins[kKeys + 1];
    T* next[kKeys];
    begins[0] = P.data;
    for (index_t j = 0; j < keys.size(); ++j) {
      next[j] = begins[j];
      begins[j + 1] = begins[j] + 2 * rows_seeing_key(place, keys.begin + j, queries);
    }
    for (index_t i = queries.begin; i < queries.end; ++i) weigh(i, keys, next);
    std::int32_t list[kRows + kSpare];
    for (index_t j = 0; j < keys.size(); ++j) {
      const index_t n = rows_of_key(place, keys.begin + j, queries, list);
      if (n == 0) continue;
      ListedRows<V>{dO}.template add<2>(&dV(keys.begin + j, 0), list, begins[j], n);
      ListedRows<V>{Q}.template add<2>(&dK(keys.begin + j, 0), list, begins[j] + 1, n);
    }
  }
  /// P and dS of a query, rounded as those of whole tiles are, to where the next query of each key goes.
  void weigh(index_t i, Range part, T** next) const {
    std::int32_t list[kKeys + kSpare];
    alignas(64) T p[kKeys], ds[kKeys];
    const index_t n = keys_of_row(place, i, part, list);
    const ListedRows<V> keys{K}, values{Vv};
    const ShiftByLse<V> of(lse(i, 0));
    const V factor = V::all(static_cast<T>(scale) * kLog2E<T>), by = V::all(static_cast<T>(scale)), d = V::all(D(i, 0));
    V most = V::zero();
    for (index_t j = 0; j < n; j += L) {
      const index_t count = std::min(L, n - j);
      const V e =
          exp2(fma(keys.products(&Q(i, 0), list + j, count), factor, of.shift), of.one).first_or(count, V::zero());
      const V dP = values.products(&dO(i, 0), list + j, count);
      most = max(most, e);
      e.store(p + j);
      // 0 where P is 0, whatever dP is.
      (by * where_equal(e, V::zero(), V::zero(), e * (dP - d))).store(ds + j);
    }
    // Where one key has all the weight, dP - D must be 0, and not the rounding of a sum in another order.
    if (largest(most) > T(0.5))
      for (index_t j = 0; j < n; ++j)
        if (p[j] > T(0.5))
          ds[j] = static_cast<T>(scale) * (p[j] * (values.product_in_order(&dO(i, 0), list[j]) - D(i, 0)));
    T* const gradients = &dS(i, 0);
    for (index_t j = 0; j < n; ++j) {
      T*& to = next[list[j] - part.begin];
      to[0] = p[j];
      to[1] = ds[j];
      to += 2;
      gradients[list[j]] = ds[j];
    }
  }
};

/// C <- C + A B, or A B, of a tile A of which few pairs exist.
template <class V>
void sparse_product(const Place& place, bool first, View<typename V::T> C, View<const typename V::T> A,
                    View<const typename V::T> B) {
  using T = typename V::T;
  constexpr index_t kKeys = PairByPair::kKeys, L = V::kLanes;
  std::int32_t list[kKeys + kSpare];
  T weights[kKeys];
  for (index_t i = 0; i < A.rows(); ++i) {
    T* const to = &C(i, 0);
    for (index_t t = 0; first && t < C.cols(); t += L) V::zero().store_first(to + t, std::min(L, C.cols() - t));
    for (index_t key = 0; key < A.cols(); key += kKeys) {
      const index_t n = keys_of_row(place, i, {key, std::min(key + kKeys, A.cols())}, list);
      for (index_t j = 0; j < n; ++j) weights[j] = A(i, list[j]);
      if (n > 0) ListedRows<V>{B}.add(to, list, weights, n);
    }
  }
}

}  // namespace redblue::kernel::simd
