#pragma once
#include "redblue/kernels/simd/key_gradients.hpp"
#include "redblue/kernels/x86/bf16_products.hpp"
#include "redblue/kernels/x86/tables.hpp"

/// KeyGradients with bf16 products. K^T and V^T are panels of pairs of features. P is left as pairs of queries, as
/// P^T dO reads them, and then gives way to dS, as dS^T Q does: after the step P holds no weights.
namespace redblue::kernel::simd {
namespace {

/// Features of a row of queries or values that the implementation has room for.
inline constexpr index_t kMostFeatures = 512;

template <class Mul>
struct Bf16KeyStep : KeyStep<F32x16> {
  Mul mul;
  using V = F32x16;
  static constexpr index_t kRowsAtATime = 48;  // a multiple of every height of a tile of sums
  struct Rounded {
    alignas(64) std::uint16_t words[kRowsAtATime * kMostFeatures];
    void take(const View<const float>& from, index_t row, index_t rows) {
      round_rows(&from(row, 0), from.row_stride, rows, from.cols(), words, kMostFeatures);
    }
    Rows<std::uint16_t> from(index_t row) const { return {words + row * kMostFeatures, kMostFeatures, 2}; }
  };
  /// Some queries, and their dO, as bf16: from `first` on.
  struct Queries {
    index_t first;
    Rounded Q, dO;
  };
  /// The weights of the pair of queries whose first is q.
  float* pair(index_t q, index_t key) const { return P.data + q / 2 * P.row_stride + key; }

  template <int R, int N>
  [[gnu::noinline]] void tile(index_t q, Range all, const Queries& queries, const Panel& panel) const {
    constexpr index_t L = V::kLanes, kRow = N * L;
    const index_t first = panel.first;
    alignas(64) float p[R * kRow];
    V c[R][N];
    form(c, queries.Q.from(q - queries.first), panel.keys, panel.width, ceil_div(Q.cols(), 2), mul);
    const V factor = V::all(static_cast<float>(scores.scale) * kLog2E<float>);
#pragma GCC unroll 24
    for (int r = 0; r < R; ++r) {
      const float l = lse(q + r, 0);
      const V shift = V::all(l == kMinusInf<float> ? kMinusInf<float> : -l * kLog2E<float>);
#pragma GCC unroll 4
      for (int v = 0; v < N; ++v) MultiplyBf16::exp2(fma(c[r][v], factor, shift)).store(p + r * kRow + v * L);
    }
    if (all.begin > first || all.end < first + kRow) hide(q, R, first, N, p, kRow);
#pragma GCC unroll 12
    for (int r = 0; r < R; r += 2)
#pragma GCC unroll 4
      for (int v = 0; v < N; ++v)
        MultiplyBf16::store_pair(V::load(p + r * kRow + v * L),
                                 r + 1 < R ? V::load(p + (r + 1) * kRow + v * L) : V::zero(),
                                 pair(q + r, first) + v * L);
    form(c, queries.dO.from(q - queries.first), panel.values, panel.width, ceil_div(dO.cols(), 2), mul);
    const V scale = V::all(static_cast<float>(scores.scale));
#pragma GCC unroll 24
    for (int r = 0; r < R; ++r) {
      const V d = V::all(D(q + r, 0));
#pragma GCC unroll 4
      for (int v = 0; v < N; ++v) {
        const V e = V::load(p + r * kRow + v * L);
        (scale * where_equal(e, V::zero(), V::zero(), e * (c[r][v] - d))).store(&dS(q + r, first) + v * L);
      }
    }
  }
  /// The vectors of a panel that some of these rows see; the others get zeros.
  template <int R, int NV, int N = NV>
  void seen_tile(index_t q, const Sight& sight, const Queries& queries, const Panel& panel) const {
    const index_t first = panel.first;
    if constexpr (N > 0)
      if (sight.some.end <= first + (N - 1) * V::kLanes || sight.some.begin >= first + N * V::kLanes)
        return seen_tile<R, NV, N - 1>(q, sight, queries, panel);
    for (int v = N; v < NV; ++v)
      for (int r = 0; r < R; ++r) {
        V::zero().store(&dS(q + r, first) + v * V::kLanes);
        if (r % 2 == 0) V::zero().store(pair(q + r, first) + v * V::kLanes);
      }
    if constexpr (N > 0) tile<R, N>(q, sight.all, queries, panel);
  }

  void weights() const {
    Queries queries;
    for (index_t q = 0; q < P.rows(); q += kRowsAtATime) {
      const index_t rows = std::min(kRowsAtATime, P.rows() - q);
      queries.first = q;
      queries.Q.take(Q, q, rows);
      queries.dO.take(dO, q, rows);
      for_panels<V>({P.cols(), 1}, [&](index_t first, index_t, index_t width, index_t) {
        const Panel panel{first, width, K.other_form + first * ceil_div(K.cols(), 2),
                          Vv.other_form + first * ceil_div(Vv.cols(), 2)};
        const auto run = [&]<int NV>(Height<NV>) {
          for_row_blocks<kTileRows<V, NV, Mul>>(rows, [&]<int R>(index_t r, Height<R>) {
            seen_tile<R, NV>(q + r, sight({q + r, q + r + R}), queries, panel);
          });
        };
        switch (width / V::kLanes) {
          case 1:
            return run(Height<1>{});
          case 2:
            return run(Height<2>{});
          case 3:
            return run(Height<3>{});
          default:
            return run(Height<4>{});
        }
      });
    }
  }

  /// C <- C + W^T B for the weights whose pairs lie in P.
  void accumulate(View<float> C, View<const float> B) const {
    const auto seeing = [&](index_t row, index_t rows) {
      const Range queries = rows_seeing(scores.place, Range{row, row + rows}, P.rows());
      return Depth{queries.begin, queries.end};
    };
    using A = std::conditional_t<MatrixTiles<Mul>, TurnedRows, PairedRows>;
    // Not `mul`, whose smaller tiles are for the last features: these are sums over queries.
    multiply_paired(Mul{}, C, A{P.data, P.row_stride}, B, seeing, false);
  }
};

template <class Mul>
bool bf16_key_gradients(const KeyGradients& step, std::span<const View<float>> x) {
  if (!can_fuse<F32x16>(step, x)) return false;
  const typename Mul::Session session(ceil_div(x[4].cols(), index_t{2}));
  const Bf16KeyStep<Mul> s{key_step<F32x16>(step, x), session.multiply()};
  if (s.modified() || s.Q.cols() > kMostFeatures || s.dO.cols() > kMostFeatures) return false;
  s.weights();
  s.accumulate(x[3], s.dO);
  round_pairs(s.dS.data, s.dS.row_stride, s.dS.shape, s.P.data, s.P.row_stride);
  s.accumulate(x[2], s.Q);
  return true;
}

/// dQ += dS K. Few rows are not worth a pairing of B, and other layouts are for words: the implementation of AVX-512
/// takes them.
template <class Mul>
bool bf16_gemm_over(const GemmOver& k, std::span<const View<float>> x) {
  const auto &C = x[0], &A = x[1], &B = x[2];
  constexpr int kMostRows = F32x16::kAccumulators;
  bool plain = !k.transpose_a && !k.transpose_b && A.rows() >= kMostRows && A.cols() > 0;
  for (const auto& v : {A, B, C}) plain = plain && !v.packed() && v.col_stride == 1;
  if (!plain) return kAvx512F32.of<GemmOver>()(k, x);
  const Place place = simplest(k.place, A.shape);
  const auto seen = [&](index_t row, index_t rows) {
    const Range keys = keys_seen(place, {row, row + rows}, A.cols());
    return Depth{keys.begin, keys.end};
  };
  const typename Mul::Session session(0);
  multiply_paired(session.multiply(), C, RoundedRows(A), B, seen, k.first);
  return true;
}

/// Panels of keys and of values are pairs of features; those of outputs, words.
inline void pack_bf16_keys(View<const float> from, float* panels) {
  if (from.layout == Layout::key_panels)
    pack_bf16(from, panels);
  else
    pack<F32x16>(from, panels);
}

}  // namespace
}  // namespace redblue::kernel::simd
