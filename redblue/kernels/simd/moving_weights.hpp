#pragma once
#include <algorithm>

#include "redblue/kernels/second.hpp"
#include "redblue/kernels/simd/gemm.hpp"
#include "redblue/kernels/simd/place.hpp"
#include "redblue/kernels/simd/rows.hpp"
#include "redblue/kernels/simd/second.hpp"

/// MovingWeights and SecondGradients as one implementation each, for the softmax. Two tiles of products of rows with
/// keys are formed some queries and a panel of keys at a time, and finished while they lie in the first cache.
namespace redblue::kernel::simd {

/// A panel of keys, or of their values, transposed, some columns at a time.
template <class V>
class KeyPanel {
  using T = typename V::T;

 public:
  static constexpr index_t kDeep = 128;  ///< columns at a time

  KeyPanel(const View<const T>& keys, index_t first, index_t rows, index_t width)
      : keys_(rows_of(keys, first, rows)), first_(first), width_(width) {}
  /// The columns from t on.
  void bring(index_t t) {
    t_ = t;
    deep_ = std::min(kDeep, keys_.cols() - t);
    columns_ = own_;
    if (keys_.layout == Layout::key_panels)
      columns_ = keys_.other_form + first_ * keys_.cols() + t * width_;
    else
      transpose_in<V>({keys_.data + t * keys_.col_stride, {keys_.rows(), deep_}, keys_.row_stride, keys_.col_stride},
                      own_, width_);
  }
  /// C <- [C +] the rows of A from `row` on times the columns that are here, in one chain of multiply-adds.
  void multiply(const View<T>& C, const View<const T>& A, index_t row, bool adds) const {
    multiply_into<V>(C, Rows<T>{&A(row, t_), A.row_stride, A.col_stride}, columns_, width_, Depth{0, deep_},
                     adds ? Into::go_on : Into::overwrite);
  }

 private:
  View<const T> keys_;
  index_t first_, width_;
  index_t t_ = 0, deep_ = 0;
  const T* columns_ = nullptr;
  alignas(64) T own_[kDeep * kWidestPanel<V> * V::kLanes];
};

/// A part of a tile of pairs: these queries, and a panel of keys.
template <class V>
struct PairPart {
  using T = typename V::T;
  index_t row, first;
  Shape shape;

  View<T> of(const View<T>& tile) const {
    View<T> v = tile;
    v.data += row * tile.row_stride + first;
    v.shape = shape;
    return v;
  }
  void clear(const View<T>& tile) const {
    const View<T> v = of(tile);
    for (index_t r = 0; r < v.rows(); ++r)
      for_vectors<V>(&v(r, 0), v.cols(), [](T* p, index_t n) { V::zero().store_first(p, n); });
  }
};

/// Goes over the parts of a tile. multiply(part, panel of K, panel of B, adds) forms products with the columns of both
/// that have come, and adds them unless these are the first; finish(part) follows when all have come. hidden(part)
/// instead, where no query of a part sees one of its keys.
template <class V, class Multiply, class Finish, class Hidden>
void for_pair_parts(const Place& place, Shape tile, const View<const typename V::T>& K,
                    const View<const typename V::T>& B, const Multiply& multiply, const Finish& finish,
                    const Hidden& hidden) {
  constexpr index_t kQueries = 2 * V::kAccumulators;  // a multiple of every height of a register tile
  for_panels<V>({tile.cols, 1}, [&](index_t first, index_t keys, index_t width, index_t) {
    KeyPanel<V> of_K(K, first, keys, width), of_B(B, first, keys, width);
    for (index_t t = 0; t < K.cols(); t += KeyPanel<V>::kDeep) {
      of_K.bring(t);
      of_B.bring(t);
      const bool last = t + KeyPanel<V>::kDeep >= K.cols();
      for (index_t row = 0; row < tile.rows; row += kQueries) {
        const PairPart<V> part{row, first, {std::min(kQueries, tile.rows - row), keys}};
        const Range seen = keys_seen(place, {row, row + part.shape.rows}, tile.cols);
        const bool some = seen.begin < first + keys && seen.end > first;
        if (some) multiply(part, of_K, of_B, t > 0);
        if (last && some) finish(part);
        if (last && !some) hidden(part);
      }
    }
  });
}

template <class V>
bool moving_weights(const MovingWeights& k, std::span<const View<typename V::T>> x) {
  using T = typename V::T;
  const auto &P = x[0], &H = x[1], &C = x[2], &sums = x[3], &Q = x[4], &A = x[5], &K = x[6], &B = x[7], &lse = x[8],
             &bias = x[9], &slopes = x[10];
  const bool plain = k.score == Score::softmax && k.scores.scale > 0 && K.cols() > 0 && C.words() == 0 &&
                     k.modify.idle(C.shape, bias.shape, slopes.shape);
  const auto packed = [](const View<T>& v) { return v.packed(); };
  if (!plain || std::ranges::any_of(x, packed) || P.col_stride != 1 || H.col_stride != 1) return false;
  const Place place = simplest(k.scores.place, P.shape);
  const V scale = V::all(static_cast<T>(k.scores.scale)), zero = V::zero();
  for_pair_parts<V>(
      place, P.shape, K, B,
      [&](const PairPart<V>& part, const KeyPanel<V>& of_K, const KeyPanel<V>& of_B, bool adds) {
        of_K.multiply(part.of(P), Q, part.row, adds);
        of_K.multiply(part.of(H), A, part.row, adds);
        of_B.multiply(part.of(H), Q, part.row, true);
      },
      [&](const PairPart<V>& part) {
        const View<T> p = part.of(P), h = part.of(H);
        fill_hidden<V>(place.at(part.row, part.first), p, kMinusInf<T>);
        for (index_t r = 0; r < p.rows(); ++r) {
          const T l = lse[part.row + r];
          const V shift = V::all(shift_of(l)), most = V::all(largest_exponent(l));
          V total = zero;
          for (index_t j = 0; j < p.cols(); j += V::kLanes) {
            const index_t n = std::min(V::kLanes, p.cols() - j);
            const V weight = softmax_weights(V::load_first(&p(r, j), n) * scale, shift, most);
            V tangent = V::load_first(&h(r, j), n) * scale;
            if (k.weighted) tangent = where_equal(weight, zero, zero, weight * tangent);
            weight.store_first(&p(r, j), n);
            tangent.store_first(&h(r, j), n);
            total = total + tangent.first_or(n, zero);  // weights beyond n may be inf
          }
          if (k.weighted && sums.words() > 0) sums[part.row + r] += sum(total);
        }
      },
      [&](const PairPart<V>& part) {
        for (const View<T>& tile : {P, H}) part.clear(tile);
      });
  return true;
}

/// Three tiles of SecondGradient without a softcap, of these rows: 0 where P is 0. `bias`: its direction, or no words.
template <class V>
void finish_gradients(double factor, const View<typename V::T>& H, const View<typename V::T>& X,
                      const View<typename V::T>& Y, const View<typename V::T>& P, const View<typename V::T>& D,
                      const View<typename V::T>& w, const View<typename V::T>& x, const View<typename V::T>& bias) {
  const V scale = V::all(static_cast<typename V::T>(factor)), zero = V::zero();
  for (index_t r = 0; r < H.rows(); ++r) {
    const V d = V::all(D[r]), w_r = V::all(w[r]), x_r = V::all(x[r]);
    for (index_t j = 0; j < H.cols(); j += V::kLanes) {
      const index_t n = std::min(V::kLanes, H.cols() - j);
      const V p = V::load_first(&P(r, j), n);
      const auto seen = [&](V v) { return where_equal(p, zero, zero, v); };
      V moves = V::load_first(&H(r, j), n);
      if (bias.words() > 0) moves = moves + V::load_first(&bias(bias.rows() == 1 ? 0 : r, j), n);
      const V away = V::load_first(&X(r, j), n) - d, moved = moves - w_r;
      const V g = fma(away, moved, V::load_first(&Y(r, j), n) - x_r);
      (scale * seen(p * g)).store_first(&H(r, j), n);
      (scale * seen(p * away)).store_first(&X(r, j), n);
      seen(p * moved).store_first(&Y(r, j), n);
    }
  }
}

template <class V>
bool second_gradients(const SecondGradients& k, std::span<const View<typename V::T>> x) {
  using T = typename V::T;
  const auto &H = x[0], &X = x[1], &Y = x[2], &C = x[3], &P = x[4], &dO = x[5], &Vv = x[6], &gV = x[7], &D = x[8],
             &w = x[9], &mean = x[10], &bias = x[11];
  const bool plain = k.drop.share == 0 && C.words() == 0 && Vv.cols() > 0;
  if (!plain || !rows_lie<T>(x.first(5)) || !rows_lie<T>(std::span(&bias, 1)) || dO.packed() || Vv.packed() ||
      gV.packed())
    return false;
  const auto of_bias = [&](const PairPart<V>& part) {
    if (bias.words() == 0) return bias;
    View<T> v = bias;
    v.data += (bias.rows() == 1 ? 0 : part.row * bias.row_stride) + part.first;
    v.shape = {bias.rows() == 1 ? 1 : part.shape.rows, part.shape.cols};
    return v;
  };
  for_pair_parts<V>(
      simplest(k.place, H.shape), H.shape, Vv, gV,
      [&](const PairPart<V>& part, const KeyPanel<V>& of_V, const KeyPanel<V>& of_gV, bool adds) {
        of_V.multiply(part.of(X), dO, part.row, adds);
        of_gV.multiply(part.of(Y), dO, part.row, adds);
      },
      [&](const PairPart<V>& part) {
        const auto rows = [&](const View<T>& v) { return rows_of(v, part.row, part.shape.rows); };
        finish_gradients<V>(k.gradient.scale, part.of(H), part.of(X), part.of(Y), part.of(P), rows(D), rows(w),
                            rows(mean), of_bias(part));
      },
      [&](const PairPart<V>& part) {
        for (const View<T>& tile : {H, X, Y}) part.clear(tile);
      });
  return true;
}

}  // namespace redblue::kernel::simd
