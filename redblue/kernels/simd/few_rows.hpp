#pragma once
#include <algorithm>
#include <cstdint>

#include "redblue/kernels/simd/fetch.hpp"
#include "redblue/kernels/simd/product.hpp"
#include "redblue/kernels/simd/shared_keys.hpp"
#include "redblue/language/dtype.hpp"
#include "redblue/language/view.hpp"

/// Products for few queries, which would not fill the lanes of a vector: features lie in lanes, and a score is summed
/// across lanes. Each key and value is read once and needs little arithmetic, so memory sets the pace: rows are read
/// whole, in the order in which they lie.
namespace redblue::kernel::simd {

template <class V>
inline constexpr index_t kFewRows = V::kLanes / 2;

/// Rows of words of V's type. A unit is what one vector of a row of keys or values becomes.
template <class V>
struct PlainRows : Multiply<V> {
  using T = typename V::T;
  using typename Multiply<V>::Element;                     ///< of keys and values
  static constexpr int kVectors = 1;                       ///< of sums in a unit
  static constexpr int kMostRows = 4;                      ///< whose sums are formed at a time of units of values
  static constexpr index_t kWords = kVectors * V::kLanes;  ///< of a unit
  using Wide = PlainRows;                                  ///< to which keys that queries share are widened
  static V keys(const T* p) { return V::load(p); }
  static void store_keys(V unit, T* to, index_t n) { unit.store_first(to, n); }
  static V keys_first(const T* p, index_t n) { return V::load_first(p, n); }
  static V queries(const T* p) { return V::load(p); }
  /// Words of a key, once for each query.
  template <int kQueries>
    requires requires(const T* p) { repeated(V{}, p, Together<kQueries>{}); }
  static V repeat(const T* p, Together<kQueries> together) {
    return repeated(V{}, p, together);
  }
  static V queries_first(const T* p, index_t n) { return V::load_first(p, n); }
  /// Values of kDepth keys.
  static void values(const T* p, index_t, V (&unit)[1]) { unit[0] = V::load(p); }
  static void values_first(const T* p, index_t, index_t n, bool, V (&unit)[1]) { unit[0] = V::load_first(p, n); }
  static void load_outputs(const T* p, index_t n, V (&unit)[1]) { unit[0] = V::load_first(p, n); }
  static void store_outputs(const V (&unit)[1], T* p, index_t n) { unit[0].store_first(p, n); }
  /// Weights of n keys, as broadcast reads them: here or in the buffer.
  static const T* weights(const T* p, index_t, T*) { return p; }
};

/// Rows of f16, bf16 or int8 words, each widened as it is read. Scores and weights take the scales of int8.
template <class V, DType kType>
struct WidenedRows : PlainRows<V> {
  using Element = std::conditional_t<kType == DType::int8, std::int8_t, std::uint16_t>;
  static V keys(const Element* p) {
    if constexpr (kType == DType::int8)
      return V::load_int8(p);
    else if constexpr (kType == DType::f16)
      return V::load_f16(p);
    else
      return V::load_bf16(p);
  }
  static V keys_first(const Element* p, index_t n) {
    Element first[V::kLanes]{};
    std::copy_n(p, n, first);
    return keys(first);
  }
  template <int kQueries>
    requires requires(const Element* p) { repeated(V{}, p, Together<kQueries>{}); }
  static V repeat(const Element* p, Together<kQueries> together) {
    if constexpr (kType == DType::f16)
      return V::from_f16(repeated(V{}, p, together));
    else
      return V::from_bf16(repeated(V{}, p, together));
  }
  static void values(const Element* p, index_t, V (&unit)[1]) { unit[0] = keys(p); }
  static void values_first(const Element* p, index_t, index_t n, bool, V (&unit)[1]) { unit[0] = keys_first(p, n); }
};

/// x[r][i] <- products by lane of queries r and keys i: what is left is to sum the lanes.
template <class V, class Rows, int R, int kKeys>
[[gnu::noinline]] void dots(const typename V::T* q, index_t q_stride, const typename Rows::Element* k, index_t k_stride,
                            index_t words, V (*x)[V::kLanes]) {
  constexpr int kParts = std::max(1, 4 / R);  // enough sums under way
  V c[R][kKeys * kParts];
  clear(c);
  const SharedRows<R, typename Rows::Element> shared(words, k_stride, R == 1);
  index_t t = 0;
  const auto step = [&]<int P>(Height<P>) __attribute__((always_inline)) {
#pragma GCC unroll 4
    for (int p = 0; p < P; ++p, t += Rows::kWords) {
      typename Rows::B row[R];
#pragma GCC unroll 4
      for (int r = 0; r < R; ++r) row[r] = Rows::queries(q + r * q_stride + t);
#pragma GCC unroll 4
      for (int i = 0; i < kKeys; ++i) {
        const typename Rows::B key = Rows::keys(k + i * k_stride + t);
        shared.fetch_after(k + i * k_stride + t);
#pragma GCC unroll 4
        for (int r = 0; r < R; ++r) c[r][i * kParts + p] = Rows::add(key, row[r], c[r][i * kParts + p]);
      }
    }
  };
  while (t + kParts * Rows::kWords <= words) step(Height<kParts>{});
  if constexpr (kParts > 1)
    while (t + Rows::kWords <= words) step(Height<1>{});
  if (t < words)
    for (int r = 0; r < R; ++r)
      for (int i = 0; i < kKeys; ++i)
        c[r][i * kParts] = Rows::add(Rows::keys_first(k + i * k_stride + t, words - t),
                                     Rows::queries_first(q + r * q_stride + t, words - t), c[r][i * kParts]);
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
    for (int i = 0; i < kKeys; ++i) {
      V total = c[r][i * kParts];
#pragma GCC unroll 4
      for (int p = 1; p < kParts; ++p) total = total + c[r][i * kParts + p];
      x[r][i] = total;
    }
}

/// S <- scale Q K^T
template <class V, class Rows>
void few_scores(View<typename V::T> S, View<const typename V::T> Q, View<const typename V::T> K, typename V::T scale) {
  using Element = typename Rows::Element;
  if (share_keys<V, Rows, typename Rows::Wide>(S, Q, K, scale)) return;
  constexpr index_t L = V::kLanes;
  const auto* const keys = reinterpret_cast<const Element*>(K.data);
  for (index_t j = 0; j < K.rows(); j += L) {
    const index_t count = std::min(L, K.rows() - j);
    for_row_blocks<4>(S.rows(), [&]<int R>(index_t r, Height<R>) {
      V x[R][L];
      for_row_blocks<std::min(R, V::kAccumulators / 6)>(count, [&]<int N>(index_t i, Height<N>) {
        dots<V, Rows, R, N>(&Q(r, 0), Q.row_stride, keys + (j + i) * K.row_stride, K.row_stride, K.cols(),
                            reinterpret_cast<V(*)[L]>(&x[0][i]));
      });
      for (int i = 0; i < R; ++i) (sums_of(x[i]) * V::all(scale)).store_first(&S(r + i, j), count);
    });
  }
}

/// O <- O + P V for R rows and N units of features. `fetches.before(v, words)` comes before these words of each value.
template <class V, class Rows, int R, int N, bool kWhole, class Fetches>
[[gnu::noinline]] void add_weighted(View<typename V::T> O, const typename V::T* const (&weights)[R],
                                    const typename Rows::Element* v, index_t stride, index_t keys, Fetches& fetches) {
  constexpr int U = Rows::kVectors;
  const index_t words = O.cols();
  const auto left = [&](int u) { return std::min(Rows::kWords, words - u * Rows::kWords); };
  V c[R * N][U];
  clear(c);
  for (index_t i = 0; i < keys; i += Rows::kDepth, v += Rows::kDepth * stride) {
    typename Rows::B weight[R];
#pragma GCC unroll 2
    for (index_t row = 0; row < Rows::kDepth; ++row) fetches.before(v + row * stride, N * Rows::kWords);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) weight[r] = Rows::broadcast(weights[r] + i / Rows::kDepth);
#pragma GCC unroll 8
    for (int u = 0; u < N; ++u) {
      typename Rows::B unit[U];
      const typename Rows::Element* const from = v + u * Rows::kWords;
      if (kWhole && i + Rows::kDepth <= keys)
        Rows::values(from, stride, unit);
      else
        Rows::values_first(from, stride, left(u), i + Rows::kDepth <= keys, unit);
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r)
#pragma GCC unroll 2
        for (int h = 0; h < U; ++h) c[r * N + u][h] = Rows::add(weight[r], unit[h], c[r * N + u][h]);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
    for (int u = 0; u < N; ++u) {
      V old[U];
      Rows::load_outputs(&O(r, u * Rows::kWords), left(u), old);
#pragma GCC unroll 2
      for (int h = 0; h < U; ++h) c[r * N + u][h] = old[h] + c[r * N + u][h];
      Rows::store_outputs(c[r * N + u], &O(r, u * Rows::kWords), left(u));
    }
}

/// Units of features that R rows of sums are formed of at a time.
template <class V, class Rows>
constexpr int units_of(int R) {
  return std::min(8, V::kAccumulators * 2 / 3 / R) / Rows::kVectors;
}

/// O <- O + P V
template <class V, class Rows>
void add_few_rows(View<typename V::T> O, View<const typename V::T> P, View<const typename V::T> values) {
  using T = typename V::T;
  using Element = typename Rows::Element;
  // The keys of one piece of a sum, whose values are read again for other queries and features: as much as stays in the
  // first cache while the next piece comes.
  constexpr index_t kFewest = 16, kMost = 64;
  constexpr int kMostRows = Rows::kMostRows;
  const index_t piece = std::clamp(rows_ahead<T>(values.cols()) * Rows::kDepth / kFewest * kFewest, kFewest, kMost);
  const index_t words = values.cols(), stride = values.row_stride;
  index_t passes = 0;  // over a piece: where there are several, each fetches its part of the next piece
  for_row_blocks<kMostRows>(
      O.rows(), [&]<int R>(index_t, Height<R>) { passes += ceil_div(words, units_of<V, Rows>(R) * Rows::kWords); });
  RowsInOrder<Element> in_order(words, stride, true);
  const auto* const from = reinterpret_cast<const Element*>(values.data);
  for (index_t j = 0; j < values.rows(); j += piece) {
    const index_t count = std::min(piece, values.rows() - j);
    const Element* const v = from + j * stride;
    FetchInTurn<Element> next(v + piece * stride, count, words, stride, passes * count);
    for_row_blocks<kMostRows>(O.rows(), [&]<int R>(index_t first, Height<R>) {
      constexpr int kUnits = units_of<V, Rows>(R);
      alignas(64) T buffer[R][kMost];
      const T* weights[R];
      for (int r = 0; r < R; ++r) weights[r] = Rows::weights(&P(first + r, j), count, buffer[r]);
      const auto add = [&]<int N, bool kWhole>(index_t t, Height<N>, std::bool_constant<kWhole>) {
        View<T> part = O;
        part.data = &O(first, t);
        part.shape = {R, std::min(N * Rows::kWords, O.cols() - t)};
        if (passes == 1)
          add_weighted<V, Rows, R, N, kWhole>(part, weights, v + t, stride, count, in_order);
        else
          add_weighted<V, Rows, R, N, kWhole>(part, weights, v + t, stride, count, next);
      };
      const index_t whole = O.cols() / Rows::kWords;
      for_row_blocks<kUnits>(whole, [&]<int N>(index_t u, Height<N> n) { add(u * Rows::kWords, n, std::true_type{}); });
      if (whole * Rows::kWords < O.cols()) add(whole * Rows::kWords, Height<1>{}, std::false_type{});
    });
  }
}

}  // namespace redblue::kernel::simd
