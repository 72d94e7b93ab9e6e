#pragma once
#include "redblue/kernels/simd/gemm.hpp"
#include "redblue/kernels/simd/place.hpp"
#include "redblue/methods/kernels/polynomial_weights.hpp"

/// Polynomial attention to keys that are not in the state. Weights are formed with queries in vector lanes: the sums of
/// their rows then need no step across lanes.
namespace redblue::kernel::simd {

/// The weights of a block of queries.
template <class V>
class PolynomialBlock {
 public:
  using T = typename V::T;
  static constexpr index_t kQueries = 4 * V::kLanes, kKeys = 64, kFeatures = 256;

  explicit PolynomialBlock(const PolynomialAttention& k) : degree_(static_cast<std::size_t>(k.weights.degree)) {
    double power = 1;  // of the scale: the coefficients are those of products
    for (std::size_t l = 0; l <= degree_; ++l, power *= k.scores.scale) c_[l] = static_cast<T>(k.weights.c[l] * power);
  }
  /// These queries, at most kQueries.
  void begin(View<const T> Q) {
    rows_ = Q.rows();
    width_ = ceil_div(rows_, V::kLanes) * V::kLanes;
    transpose_in<V>(Q, q_, width_);
    std::fill_n(sums_, width_, T(0));
  }
  /// Weighs at most kKeys keys: row j of the result, kQueries words, has the weights of key j.
  const T* weigh(View<const T> K, const Place& place) {
    const auto seen_by = [&](index_t i) { return keys_seen(place, {i, i + 1}, K.rows()).end; };
    see(seen_by, {0, rows_ - 1}, seen_by(0), seen_by(rows_ - 1));
    index_t hidden = 0;  // queries that do not see the key
    for (index_t j = 0; j < K.rows(); j += kTogether) {
      const index_t keys = std::min(kTogether, K.rows() - j);
      std::array<index_t, kTogether> blind;
      for (index_t r = 0; r < keys; ++r) {
        while (hidden < rows_ && seen_[hidden] <= j + r) ++hidden;
        blind[r] = hidden;
      }
      T* const S = s_ + j * kQueries;
      const index_t from = blind[0] / V::kLanes * V::kLanes;  // before it no query sees these keys
      for (index_t i = 0; i < from; i += V::kLanes)
        for (index_t r = 0; r < keys; ++r) V::zero().store(S + r * kQueries + i);
      multiply_into<V>(View<T>(S + from, {keys, width_ - from}, kQueries),
                       Rows<T>{K.data + j * K.row_stride, K.row_stride, K.col_stride}, q_ + from, width_,
                       Depth{0, K.cols()}, Into::overwrite);
      for (index_t i = from; i < width_; i += V::kLanes) weigh(S + i, i, keys, blind);
    }
    return s_;
  }
  /// The sums of the weights so far, a word for each query.
  const T* sums() const { return sums_; }
  /// How many of the last keys this query sees.
  index_t seen(index_t query) const { return seen_[query]; }

 private:
  static constexpr index_t kTogether = 16;  ///< keys that are multiplied with the same vectors of queries

  /// seen_ of these queries, the ends of which are known. From one query to the next it grows by 0 or 1.
  template <class F>
  void see(const F& seen_by, Range ends, index_t first, index_t last) {
    const index_t steps = ends.end - ends.begin;
    if (last == first || last - first == steps) {
      for (index_t i = 0; i <= steps; ++i) seen_[ends.begin + i] = last == first ? first : first + i;
      return;
    }
    const index_t mid = ends.begin + steps / 2;
    see(seen_by, {ends.begin, mid}, first, seen_by(mid));
    see(seen_by, {mid + 1, ends.end}, seen_by(mid + 1), last);
  }
  /// S <- p(S) of one vector of queries, from query i on; `blind`: the queries before it do not see the key.
  void weigh(T* S, index_t i, index_t keys, const std::array<index_t, kTogether>& blind) {
    const index_t seen_by_all = std::upper_bound(blind.begin(), blind.begin() + keys, i) - blind.begin();
    V sum = V::load(sums_ + i);
    for_row_blocks<8>(seen_by_all, [&]<int R>(index_t r, Height<R>) {
      V p[R];
      polynomials(S + r * kQueries, p);
#pragma GCC unroll 8
      for (int n = 0; n < R; ++n) {
        p[n].store(S + (r + n) * kQueries);
        sum = sum + p[n];
      }
    });
    for (index_t r = seen_by_all; r < keys; ++r) {
      V p[1];
      polynomials(S + r * kQueries, p);
      p[0] = V::zero().first_or(std::min(blind[r] - i, V::kLanes), p[0]);
      p[0].store(S + r * kQueries);
      sum = sum + p[0];
    }
    sum.store(sums_ + i);
  }
  /// p of the products with R keys.
  template <int R>
  [[gnu::always_inline]] void polynomials(const T* S, V (&p)[R]) const {
    V s[R];
#pragma GCC unroll 8
    for (int n = 0; n < R; ++n) {
      s[n] = V::load(S + n * kQueries);
      p[n] = V::all(c_[degree_]);
    }
    for (std::size_t l = degree_; l > 0; --l)
#pragma GCC unroll 8
      for (int n = 0; n < R; ++n) p[n] = fma(p[n], s[n], V::all(c_[l - 1]));
  }

  std::size_t degree_;
  index_t rows_ = 0, width_ = 0;
  std::array<T, PolynomialWeights::kMostDegree + 1> c_{};
  index_t seen_[kQueries];
  alignas(64) T sums_[kQueries];
  alignas(64) T s_[kKeys * kQueries];
  alignas(64) T q_[kFeatures * kQueries];
};

/// num <- num + p(scale Q K^T) V, den <- den + row sums of the weights, under masks without a left edge.
template <class V>
bool polynomial_attention_implementation(const PolynomialAttention& k, std::span<const View<typename V::T>> v) {
  using T = typename V::T;
  using Block = PolynomialBlock<V>;
  const auto &num = v[1], &den = v[2];
  const View<const T> Q = v[3], K = v[4], Vv = v[5];
  if (num.packed() || Q.packed() || K.packed() || Vv.packed() || num.col_stride != 1 || Vv.col_stride != 1)
    return false;
  if (Q.cols() > Block::kFeatures || !k.scores.place.mask.from_first_key()) return false;
  Block block(k);
  for (index_t i = 0; i < Q.rows(); i += Block::kQueries) {
    const index_t rows = std::min(Block::kQueries, Q.rows() - i);
    block.begin(rows_of(Q, i, rows));
    for (index_t j = 0; j < K.rows(); j += Block::kKeys) {
      const index_t keys = std::min(Block::kKeys, K.rows() - j);
      const T* const weights = block.weigh(rows_of(K, j, keys), k.scores.place.at(i, j));
      multiply_into<V>(
          rows_of(num, i, rows), Side<T>{weights, Block::kQueries}, Vv.data + j * Vv.row_stride, Vv.row_stride,
          [&](index_t row, index_t n) { return Depth{0, block.seen(row + n - 1)}; }, Into::add);
    }
    for (index_t r = 0; r < rows; ++r) den[i + r] += block.sums()[r];
  }
  return true;
}

}  // namespace redblue::kernel::simd
