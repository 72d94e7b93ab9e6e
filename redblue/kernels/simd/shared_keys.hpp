#pragma once
#include <algorithm>

#include "redblue/kernels/simd/fetch.hpp"
#include "redblue/kernels/simd/product.hpp"
#include "redblue/language/view.hpp"

/// Scores of up to 8 queries with the same keys, as the query heads of a group have them. A step takes a few words of a
/// key, repeats them across a vector, a copy for each query, and multiplies them with the same words of the queries,
/// which lie side by side. So one product serves all queries, and a score is the sum of few lanes. Where each vector
/// has words of one query, the sums across its lanes take longer than the products.
namespace redblue::kernel::simd {

/// The queries that share a vector.
template <int N>
struct Together {
  static constexpr int value = N;
};

/// Can words of keys be repeated in a vector of V? Then V also has scores_of_queries, for as many keys as it has lanes.
template <class V, class Rows>
concept SharesKeys = requires(const typename Rows::Element* p) { Rows::repeat(p, Together<2>{}); };

/// Words of kQueries queries: in each step kStep words of one query behind those of another. Zeros stand in for queries
/// that are not there.
template <class V, class Rows, int kQueries>
class SideBySide {
 public:
  using T = typename V::T;
  static constexpr index_t kStep = Rows::kWords / kQueries;
  static constexpr index_t kMostWords = 512;  ///< of a query: what lies here stays in the first cache
  static bool fits(index_t words) { return words <= kMostWords && words % kStep == 0; }

  SideBySide(View<const T> Q, index_t first, index_t rows) {
    for (index_t t = 0; t < Q.cols(); t += kStep) {
      alignas(64) T words[Rows::kWords]{};
      for (index_t r = 0; r < rows; ++r) std::copy_n(&Q(first + r, t), kStep, words + r * kStep);
      steps_[t / kStep] = Rows::queries(words);
    }
  }
  typename Rows::B operator[](index_t step) const { return steps_[step]; }

 private:
  typename Rows::B steps_[kMostWords / kStep];
};

/// Keys whose products are formed at a time: enough sums are under way, and few rows are read side by side.
template <int kQueries>
inline constexpr int kKeysAtOnce = kQueries > 4 ? 8 : 4;

/// x[i] <- products of the queries with key i, to be summed over the lanes of each query. All rows have `words` words.
template <class V, class Rows, int kQueries>
[[gnu::noinline]] void shared_products(const SideBySide<V, Rows, kQueries>& queries,
                                       const typename Rows::Element* const (&keys)[kKeysAtOnce<kQueries>],
                                       index_t words, const SharedRows<kQueries, typename Rows::Element>& shared,
                                       V* x) {
  constexpr index_t kStep = SideBySide<V, Rows, kQueries>::kStep;
  constexpr int kKeys = kKeysAtOnce<kQueries>;
  constexpr index_t kLine = 64 / index_t{sizeof(typename Rows::Element)};
  V c[kKeys][1];
  clear(c);
  index_t step = 0;
  for (index_t line = 0; line < words; line += kLine) {
#pragma GCC unroll 8
    for (int i = 0; i < kKeys; ++i) shared.fetch_after(keys[i] + line);
    const index_t end = std::min(words, line + kLine);
    for (index_t t = line; t < end; t += kStep, ++step) {
      const typename Rows::B q = queries[step];
#pragma GCC unroll 8
      for (int i = 0; i < kKeys; ++i) c[i][0] = Rows::add(Rows::repeat(keys[i] + t, Together<kQueries>{}), q, c[i][0]);
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < kKeys; ++i) x[i] = c[i][0];
}

/// S <- scale Q K^T for `rows` rows from `first` on, at most kQueries.
template <class V, class Rows, int kQueries>
void shared_scores(View<typename V::T> S, View<const typename V::T> Q, View<const typename V::T> K, typename V::T scale,
                   index_t first, index_t rows) {
  using Element = typename Rows::Element;
  constexpr index_t L = V::kLanes, kKeys = kKeysAtOnce<kQueries>;
  const SideBySide<V, Rows, kQueries> queries(Q, first, rows);
  const auto* const from = reinterpret_cast<const Element*>(K.data);
  const SharedRows<kQueries, Element> shared(K.cols(), K.row_stride, kQueries == 1);
  for (index_t j = 0; j < K.rows(); j += L) {
    const index_t count = std::min(L, K.rows() - j);
    V x[L], s[kQueries];
    for (index_t i = 0; i < L; i += kKeys) {
      const Element* keys[kKeys];  // behind the last key it stands again: what it gives there is left out
      for (index_t k = 0; k < kKeys; ++k) keys[k] = from + (j + std::min(i + k, count - 1)) * K.row_stride;
      shared_products<V, Rows, kQueries>(queries, keys, K.cols(), shared, x + i);
    }
    scores_of_queries(x, s);
    for (index_t r = 0; r < rows; ++r) (s[r] * V::all(scale)).store_first(&S(first + r, j), count);
  }
}

/// S <- scale Q K^T, if there are enough keys for it to pay, and rows fit. Returns whether they do. Long rows of a
/// single query are read faster one after another.
template <class V, class Rows>
bool share_keys(View<typename V::T> S, View<const typename V::T> Q, View<const typename V::T> K, typename V::T scale) {
  constexpr index_t kMost = 8, kShort = 2 * Rows::kWords;
  if (K.rows() < V::kLanes || (S.rows() == 1 && K.cols() > kShort)) return false;
  for (index_t r = 0; r < S.rows(); r += kMost) {
    const index_t rows = std::min(kMost, S.rows() - r);
    const auto share = [&]<int N>(Together<N>) {
      if (!SideBySide<V, Rows, N>::fits(K.cols())) return false;
      shared_scores<V, Rows, N>(S, Q, K, scale, r, rows);
      return true;
    };
    if (!(rows > 4   ? share(Together<8>{})
          : rows > 2 ? share(Together<4>{})
          : rows > 1 ? share(Together<2>{})
                     : share(Together<1>{})))
      return false;
  }
  return true;
}

}  // namespace redblue::kernel::simd
