#pragma once
#include "redblue/kernels/backward.hpp"
#include "redblue/kernels/materialised.hpp"
#include "redblue/kernels/simd/exp.hpp"
#include "redblue/kernels/simd/few_rows.hpp"
#include "redblue/kernels/simd/gemm.hpp"
#include "redblue/kernels/simd/place.hpp"

/// Passes over the rows of a row-major tile, keys in vector lanes.
namespace redblue::kernel::simd {

/// f(words of a row, how many: a vector's lanes or, at the end, fewer).
template <class V, class T, class F>
[[gnu::always_inline]] inline void for_vectors(T* row, index_t words, const F& f) {
  for (index_t j = 0; j < words; j += V::kLanes) f(row + j, std::min(V::kLanes, words - j));
}

/// f(words of a row, how many, which of kChains chains of operations they belong to): vectors in turn, so that none
/// waits for the one before.
template <class V, int kChains, class T, class F>
[[gnu::always_inline]] inline void for_vectors_in_turn(T* row, index_t words, const F& f) {
  index_t j = 0;
  for (; j + kChains * V::kLanes <= words; j += kChains * V::kLanes)
#pragma GCC unroll 4
    for (int i = 0; i < kChains; ++i) f(row + j + i * V::kLanes, V::kLanes, i);
  for (int i = 0; j < words; j += V::kLanes, ++i) f(row + j, std::min(V::kLanes, words - j), i);
}

/// The largest word of a row. A NaN may be left out: the exponentials keep it.
template <class V>
typename V::T largest_of_row(const View<typename V::T>& S, index_t r) {
  constexpr int kChains = 4;
  const V minus_inf = V::all(kMinusInf<typename V::T>);
  V most[kChains] = {minus_inf, minus_inf, minus_inf, minus_inf};
  for_vectors_in_turn<V, kChains>(&S(r, 0), S.cols(), [&](const auto* p, index_t n, int i) {
    most[i] = max(most[i], n == V::kLanes ? V::load(p) : V::load_first(p, n).first_or(n, minus_inf));
  });
  return largest(max(max(most[0], most[1]), max(most[2], most[3])));
}
struct NothingBeside {
  [[gnu::always_inline]] void operator()() const {}
};

/// S <- exp(S - most) in a row; returns the sum. A row without keys has most = -inf: shifted by 0, its weights are 0.
/// beside() comes with each vector: it may fetch what is needed next.
template <class V, class Beside = NothingBeside>
typename V::T exponentials(const View<typename V::T>& S, index_t r, typename V::T most, const Beside& beside = {}) {
  using T = typename V::T;
  constexpr int kChains = 2;
  const V top = V::all(most == kMinusInf<T> ? T(0) : most), to_log2 = V::all(kLog2E<T>);
  V sums[kChains] = {V::zero(), V::zero()};
  for_vectors_in_turn<V, kChains>(&S(r, 0), S.cols(), [&](T* p, index_t n, int i) {
    beside();
    if (n == V::kLanes) {
      const V e = exp2((V::load(p) - top) * to_log2);
      e.store(p);
      sums[i] = sums[i] + e;
    } else {
      const V e = exp2((V::load_first(p, n) - top) * to_log2);
      e.store_first(p, n);
      sums[i] = sums[i] + e.first_or(n, V::zero());
    }
  });
  return sum(sums[0] + sums[1]);
}

/// Rows that hold so few words go across vector lanes, a row in each.
template <class V>
inline constexpr index_t kNarrow = V::kLanes / 4;

template <class V>
void online_softmax_across(const View<typename V::T>& S, const View<typename V::T>& O, const View<typename V::T>& m,
                           const View<typename V::T>& l) {
  using T = typename V::T;
  constexpr index_t L = V::kLanes;
  const V minus_inf = V::all(kMinusInf<T>), to_log2 = V::all(kLog2E<T>);
  for (index_t r = 0; r < S.rows(); r += L) {
    const index_t rows = std::min(L, S.rows() - r);
    alignas(64) T old[L]{}, now[L], alpha[L], sums[L], s[kNarrow<V>][L]{};
    for (index_t i = 0; i < rows; ++i) {
      old[i] = m[r + i];
      for (index_t j = 0; j < S.cols(); ++j) s[j][i] = S(r + i, j);
    }
    V most = V::load(old), sum = V::zero();
    for (index_t j = 0; j < S.cols(); ++j) most = max(V::load(s[j]), most);
    const V top = where_equal(most, minus_inf, V::zero(), most);
    for (index_t j = 0; j < S.cols(); ++j) {
      const V e = exp2((V::load(s[j]) - top) * to_log2);
      e.store(s[j]);
      sum = sum + e;
    }
    most.store(now);
    sum.store(sums);
    exp2((V::load(old) - top) * to_log2).store(alpha);
    for (index_t i = 0; i < rows; ++i) {
      m[r + i] = now[i];
      if (alpha[i] != T(1)) {
        for_vectors<V>(&O(r + i, 0), O.cols(),
                       [&](T* p, index_t n) { (V::load_first(p, n) * V::all(alpha[i])).store_first(p, n); });
        l[r + i] *= alpha[i];
      }
      l[r + i] += sums[i];
      for (index_t j = 0; j < S.cols(); ++j) S(r + i, j) = s[j][i];
    }
  }
}

template <class V, class Beside = NothingBeside>
void online_softmax_by_row(const View<typename V::T>& S, const View<typename V::T>& O, const View<typename V::T>& m,
                           const View<typename V::T>& l, const Beside& beside = {}) {
  using T = typename V::T;
  if (S.cols() <= kNarrow<V>) return online_softmax_across<V>(S, O, m, l);
  for (index_t r = 0; r < S.rows(); ++r) {
    const T old = m[r];
    m[r] = max_or_nan(old, largest_of_row<V>(S, r));
    const T alpha = exp_shifted(old, m[r]);
    if (alpha != T(1)) {
      for_vectors<V>(&O(r, 0), O.cols(),
                     [&](T* p, index_t n) { (V::load_first(p, n) * V::all(alpha)).store_first(p, n); });
      l[r] *= alpha;
    }
    l[r] += exponentials<V>(S, r, m[r], beside);
  }
}
template <class V>
bool online_softmax_implementation(const OnlineSoftmax&, std::span<const View<typename V::T>> x) {
  const auto &S = x[0], &O = x[1], &m = x[2], &l = x[3];
  if (S.packed() || O.packed() || S.col_stride != 1 || O.col_stride != 1) return false;
  online_softmax_by_row<V>(S, O, m, l);
  return true;
}

/// O <- O / l row by row, 0 where l is 0.
template <class V>
bool divide_rows(const DivideRows&, std::span<const View<typename V::T>> x) {
  using T = typename V::T;
  const auto &O = x[0], &l = x[1];
  if (O.packed() || O.col_stride != 1) return false;
  if (O.words() == 0) return true;
  for (index_t r = 0; r < O.rows(); ++r) {
    const T sum = l[r], by = T(1) / sum;
    const bool has_inverse = sum != T(0) && by - by == T(0);  // 1 / sum may be beyond the range
    for_vectors<V>(&O(r, 0), O.cols(), [&](T* p, index_t n) {
      const V o = V::load_first(p, n);
      (has_inverse ? o * V::all(by) : sum == T(0) ? V::zero() : o / V::all(sum)).store_first(p, n);
    });
  }
  return true;
}

/// S <- softmax of its rows; ln <- their lse
template <class V>
bool block_softmax_implementation(const BlockSoftmax&, std::span<const View<typename V::T>> x) {
  using T = typename V::T;
  const auto &S = x[0], &ln = x[1];
  if (S.packed() || S.col_stride != 1 || S.cols() == 0) return false;  // no keys: nothing to point at
  for (index_t r = 0; r < S.rows(); ++r) {
    const T most = largest_of_row<V>(S, r), total = exponentials<V>(S, r, most);
    ln[r] = total == T(0) ? most : most + std::log(total);
    if (total == T(0)) continue;
    for_vectors<V>(&S(r, 0), S.cols(),
                   [&](T* p, index_t n) { (V::load_first(p, n) / V::all(total)).store_first(p, n); });
  }
  return true;
}

/// The weight of a scaled score, for score functions without statistics; 0 of a hidden one.
template <class V>
V weight_of(Score score, V x) {
  using T = typename V::T;
  const V one = V::all(T(1)), zero = V::zero();
  V w = x;
  if (score == Score::sigmoid)
    w = one / (one + exp2(min(V::all(kMostPower<T>), x * V::all(-kLog2E<T>))));
  else if (score == Score::relu)
    w = max(zero, x);
  return where_equal(x, V::all(kMinusInf<T>), zero, w);
}

/// Weights exp(s - lse) of the softmax: one lse for every lane, or one each.
template <class V>
V softmax_weights(V s, V shift, V most) {
  return where_equal(s, V::all(kMinusInf<typename V::T>), V::zero(),
                     exp2(min(most, s - shift) * V::all(kLog2E<typename V::T>)));
}

/// S <- exp(scale S - lse)
template <class V>
bool weights_implementation(const Weights& k, std::span<const View<typename V::T>> x) {
  using T = typename V::T;
  const auto &S = x[0], &lse = x[1];
  if (k.score != Score::softmax || S.packed() || S.col_stride != 1) return false;
  const V scale = V::all(static_cast<T>(k.scale));
  for (index_t r = 0; r < S.rows(); ++r) {
    const V shift = V::all(shift_of(lse[r])), most = V::all(largest_exponent(lse[r]));
    for_vectors<V>(&S(r, 0), S.cols(), [&](T* p, index_t n) {
      softmax_weights(V::load_first(p, n) * scale, shift, most).store_first(p, n);
    });
  }
  return true;
}

/// O <- O + P V, z <- z + P, of the weights P = exp(S - lse) of one key, without those that are dropped in O: queries
/// in lanes as the weights are formed.
template <class V>
bool weights_accumulate_implementation(const WeightsAccumulate& k, std::span<const View<typename V::T>> x) {
  using T = typename V::T;
  const auto &O = x[0], &z = x[1], &S = x[2], &lse = x[3], &value = x[4];
  if (k.score != Score::softmax || S.cols() != 1 || O.packed() || value.packed() || O.col_stride != 1 ||
      value.col_stride != 1)
    return false;
  for (index_t first = 0; first < O.rows(); first += V::kLanes) {
    const index_t n = std::min(V::kLanes, O.rows() - first);
    alignas(64) T s[V::kLanes]{}, shift[V::kLanes]{}, most[V::kLanes]{}, p[V::kLanes];
    for (index_t r = 0; r < n; ++r) {
      s[r] = S(first + r, 0);
      shift[r] = shift_of(lse[first + r]);
      most[r] = largest_exponent(lse[first + r]);
    }
    softmax_weights(V::load(s), V::load(shift), V::load(most)).store(p);
    for (index_t r = 0; r < n; ++r) {
      z[first + r] += p[r];
      const V weight = V::all(k.kept(first + r, 0, p[r]));
      for (index_t j = 0; j < O.cols(); j += V::kLanes) {
        const index_t cols = std::min(V::kLanes, O.cols() - j);
        T* o = &O(first + r, j);
        fma(weight, V::load_first(&value(0, j), cols), V::load_first(o, cols)).store_first(o, cols);
      }
    }
  }
  return true;
}

/// Sets words of keys that their row does not see: under a pattern, whose runs may be short, by bits.
template <class V>
[[gnu::always_inline]] inline void fill_hidden(const Place& place, View<typename V::T> S, typename V::T value) {
  if (place.mask.full()) return;
  constexpr index_t kBits = 64;
  for (index_t r = 0; r < S.rows(); ++r) {
    if (place.mask.pattern == nullptr) {
      place.for_hidden(r, S.cols(), [&](Range hidden) { std::fill_n(&S(r, 0) + hidden.begin, hidden.size(), value); });
      continue;
    }
    for (index_t j = 0; j < S.cols(); j += kBits) {
      std::uint64_t bits = place.mask.pattern->rows().seen(place.row + r, place.col + j);
      for_vectors<V>(&S(r, j), std::min(kBits, S.cols() - j), [&](auto* p, index_t n) {
        V::load_first(p, n).where_bit_or(bits, V::all(value)).store_first(p, n);
        bits >>= V::kLanes;
      });
    }
  }
}
/// dP <- scale P (dP - D), of the softmax, 0 where P is 0
template <class V>
bool score_gradient_implementation(const ScoreGradient& k, std::span<const View<typename V::T>> x) {
  using T = typename V::T;
  const auto &dP = x[0], &P = x[1], &D = x[2];
  if (k.score != Score::softmax || dP.packed() || P.packed() || dP.col_stride != 1 || P.col_stride != 1) return false;
  const V scale = V::all(static_cast<T>(k.scale));
  for (index_t r = 0; r < dP.rows(); ++r) {
    const V d = V::all(D.words() > 0 ? D[r] : T(0));
    for (index_t j = 0; j < dP.cols(); j += V::kLanes) {
      const index_t n = std::min(V::kLanes, dP.cols() - j);
      const V p = V::load_first(&P(r, j), n), dp = V::load_first(&dP(r, j), n);
      (scale * where_equal(p, V::zero(), V::zero(), p * (dp - d))).store_first(&dP(r, j), n);
    }
  }
  fill_hidden<V>(k.place, dP, T(0));
  return true;
}

/// S <- scale Q K^T, -inf where hidden
template <class V>
bool scores_implementation(const Scores& k, std::span<const View<typename V::T>> x) {
  using T = typename V::T;
  const auto &S = x[0], &Q = x[1], &K = x[2];
  if (S.packed() || Q.packed() || S.col_stride != 1) return false;
  if (S.rows() <= kFewRows<V> && Q.col_stride == 1 && K.col_stride == 1) {
    few_scores<V, PlainRows<V>>(S, Q, K, static_cast<T>(k.scale));
  } else {
    const Place place = simplest(k.place, S.shape);
    const index_t step = place.mask.full() ? std::max<index_t>(1, S.cols()) : 2 * V::kLanes;
    const V scale = V::all(static_cast<T>(k.scale));
    for (index_t j = 0; j < S.cols(); j += step) {
      const index_t keys = std::min(step, S.cols() - j);
      const Range seeing = rows_seeing(place, {j, j + keys}, S.rows());
      View<T> part = rows_of(S, seeing.begin, seeing.size());
      part.data += j;
      part.shape.cols = keys;
      if (!gemm<V>(part, rows_of(Q, seeing.begin, seeing.size()), rows_of(K, j, keys).transposed(), Into::overwrite))
        return false;
      for (index_t r = 0; r < part.rows(); ++r)
        for_vectors<V>(&part(r, 0), keys, [&](T* p, index_t n) { (V::load_first(p, n) * scale).store_first(p, n); });
    }
  }
  fill_hidden<V>(k.place, S, kMinusInf<T>);
  return true;
}

}  // namespace redblue::kernel::simd
