#pragma once
#include <algorithm>
#include <type_traits>

#include "redblue/kernels/simd/fetch.hpp"
#include "redblue/kernels/simd/product.hpp"
#include "redblue/language/view.hpp"

/// Scores of up to 8 queries with the same keys, as the query heads of a group have them. A step takes a few words of a
/// key, repeats them across a vector, a copy for each query, and multiplies them with the same words of the queries,
/// which lie side by side. So one product serves all queries, and a score is the sum of few lanes. Where each vector
/// has words of one query, the sums across its lanes take longer than the products. A single query has its vectors
/// alone, and reads keys in the same way.
namespace redblue::kernel::simd {

/// The queries that share a vector.
template <int N>
struct Together {
  static constexpr int value = N;
};

/// Can words of keys be repeated in a vector?
template <class Rows, int N>
concept Repeats = requires(const typename Rows::Element* p) { Rows::repeat(p, Together<N>{}); };

/// Can queries share vectors of V with keys in these rows, or in rows of V's type, Wide, to which others are widened?
/// Then V also has scores_of_queries, for as many keys as it has lanes.
template <class Rows, class Wide>
inline constexpr bool kSharesKeys = Repeats<Rows, 2> || Repeats<Wide, 2>;

/// Lane i: the sum of the lanes of x[i].
template <class V>
[[gnu::always_inline]] inline V sums_of(const V (&x)[V::kLanes]) {
  if constexpr (requires { sums(x); }) {
    return sums(x);
  } else {
    alignas(64) typename V::T lane[V::kLanes];
    for (index_t i = 0; i < V::kLanes; ++i) lane[i] = sum(x[i]);
    return V::load(lane);
  }
}

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

/// The words of a key that a step takes, as often as there are queries.
template <class Rows, int kQueries>
[[gnu::always_inline]] inline typename Rows::B words_of_key(const typename Rows::Element* p) {
  if constexpr (kQueries == 1)
    return Rows::keys(p);
  else
    return Rows::repeat(p, Together<kQueries>{});
}

/// x[i] <- [x[i] +] products of the queries with N steps of key i, to be summed over the lanes of each query. These
/// words of the queries stay in registers, and keys are read one after another, as they lie. `fetches.before(key,
/// words)` comes before each.
template <int N, class V, class Rows, int kQueries, class Fetches>
[[gnu::noinline]] void shared_products(const SideBySide<V, Rows, kQueries>& queries, index_t step,
                                       const typename Rows::Element* key, index_t stride, index_t keys,
                                       const Fetches& fetches, V* x) {
  constexpr index_t kStep = SideBySide<V, Rows, kQueries>::kStep;
  const bool first = step == 0;
  typename Rows::B q[N];
#pragma GCC unroll 16
  for (int s = 0; s < N; ++s) q[s] = queries[step + s];
  key += step * kStep;
  for (index_t i = 0; i < keys; ++i, key += stride) {
    fetches.before(key, N * kStep);
    V even = first ? V::zero() : x[i], odd = V::zero();
#pragma GCC unroll 16
    for (int s = 0; s < N; ++s) {
      V& c = s % 2 == 0 ? even : odd;
      c = Rows::add(words_of_key<Rows, kQueries>(key + s * kStep), q[s], c);
    }
    x[i] = N == 1 ? even : even + odd;
  }
}

/// Are the words of a key widened before queries share them? For many of these that takes less time than to widen what
/// is repeated.
template <class Rows, class Wide, int kQueries>
inline constexpr bool kWidensFirst = kQueries > 1 && sizeof(typename Rows::Element) < sizeof(typename Wide::Element) &&
                                     (kQueries > 4 || !Repeats<Rows, kQueries>);
template <class V, class Rows, class Wide, int kQueries>
using SharedWith = SideBySide<V, std::conditional_t<kWidensFirst<Rows, Wide, kQueries>, Wide, Rows>, kQueries>;

/// S <- scale Q K^T for `rows` rows from `first` on, at most kQueries.
template <class V, class Rows, class Wide, int kQueries>
void shared_scores(View<typename V::T> S, View<const typename V::T> Q, View<const typename V::T> K, typename V::T scale,
                   index_t first, index_t rows) {
  using Element = typename Rows::Element;
  using Queries = SharedWith<V, Rows, Wide, kQueries>;
  constexpr bool kWidens = kWidensFirst<Rows, Wide, kQueries>;
  using Read = std::conditional_t<kWidens, typename Wide::Element, Element>;
  constexpr index_t L = V::kLanes, kKeys = 4, kMostWords = Queries::kMostWords;
  constexpr index_t kReadAgain = 8192 / index_t{sizeof(Read)};  // words of keys that stay in the first cache
  constexpr int kHeld = V::kAccumulators == 24 ? 16 : 8;        // vectors of queries in registers
  const Queries queries(Q, first, rows);
  const auto* const from = reinterpret_cast<const Element*>(K.data);
  const index_t words = K.cols(), stride = K.row_stride, steps = words / Queries::kStep;
  // Keys are read once or, where queries do not stay in registers, again for other words. A single query or two wait
  // for memory, and read keys in order; others do not, and every line is fetched for them.
  const index_t at_once = steps <= kHeld ? L : std::clamp(kReadAgain / words, kKeys, L);
  const RowsInOrder<Element> fetches(words, stride, steps <= kHeld && kQueries <= 2);
  for (index_t j = 0; j < K.rows(); j += L) {
    const index_t count = std::min(L, K.rows() - j);
    V x[L], s[kQueries];
    for (index_t i = count; i < L; ++i) x[i] = V::zero();
    for (index_t i = 0; i < count; i += at_once) {
      const index_t keys = std::min(at_once, count - i);
      const Element* const key = from + (j + i) * stride;
      const auto form = [&](const auto* p, index_t apart, const auto& fetch) {
        for_row_blocks<kHeld>(steps, [&]<int N>(index_t step, Height<N>) {
          shared_products<N>(queries, step, p, apart, keys, fetch, x + i);
        });
      };
      if constexpr (kWidens) {
        alignas(64) Read wide[std::max({kKeys * kMostWords, L * kHeld * Queries::kStep, kReadAgain})];
        for (index_t k = 0; k < keys; ++k) {
          fetches.before(key + k * stride, words);
          for (index_t t = 0; t < words; t += Rows::kWords) {
            const index_t n = std::min(Rows::kWords, words - t);
            const Element* const p = key + k * stride + t;
            Wide::store_keys(n == Rows::kWords ? Rows::keys(p) : Rows::keys_first(p, n), wide + k * words + t, n);
          }
        }
        form(wide, words, NothingFetched{});
      } else {
        form(key, stride, fetches);
      }
    }
    if constexpr (kQueries == 1)
      s[0] = sums_of(x);
    else
      scores_of_queries(x, s);
    for (index_t r = 0; r < rows; ++r) (s[r] * V::all(scale)).store_first(&S(first + r, j), count);
  }
}

/// S <- scale Q K^T, if there are enough keys for it to pay, and rows fit. Returns whether they do.
template <class V, class Rows, class Wide>
bool share_keys(View<typename V::T> S, View<const typename V::T> Q, View<const typename V::T> K, typename V::T scale) {
  constexpr index_t kMost = kSharesKeys<Rows, Wide> ? 8 : 1;
  if (K.rows() < V::kLanes || (kMost == 1 && S.rows() > 1)) return false;
  for (index_t r = 0; r < S.rows(); r += kMost) {
    const index_t rows = std::min(kMost, S.rows() - r);
    const auto share = [&]<int N>(Together<N>) {
      if (!SharedWith<V, Rows, Wide, N>::fits(K.cols())) return false;
      shared_scores<V, Rows, Wide, N>(S, Q, K, scale, r, rows);
      return true;
    };
    bool fit = false;
    if (kMost == 1 || rows == 1)
      fit = share(Together<1>{});
    else if constexpr (kMost > 1)
      fit = rows > 4 ? share(Together<8>{}) : rows > 2 ? share(Together<4>{}) : share(Together<2>{});
    if (!fit) return false;
  }
  return true;
}

}  // namespace redblue::kernel::simd
