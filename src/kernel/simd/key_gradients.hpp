#pragma once
#include "kernel/simd/exp.hpp"
#include "kernel/simd/fetch.hpp"
#include "kernel/simd/gemm.hpp"
#include "redblue/kernel/backward.hpp"

/// KeyGradients as one body, for the softmax. Keys lie in vector lanes: K^T and V^T are panels, so a register tile of
/// scores, and then of dP, is finished where it was made, P = exp(s - lse) and dS = scale P (dP - D) in registers.
namespace redblue::kernel::simd {

template <class V>
struct KeyStep {
  using T = typename V::T;

  const Scores& scores;
  View<T> P, dS;
  View<const T> Q, K, Vv, lse, D, dO;

  /// Keys of this tile that one of these rows sees.
  Range seen(Range rows) const { return scores.place.cols_of(rows, P.cols()); }

  /// c <- R rows of A times a panel, and rows further on are fetched.
  template <int R, int N>
  [[gnu::always_inline]] static void products(V (&c)[R][N], const View<const T>& A, index_t row, const T* panel,
                                              index_t width, bool fetches) {
    constexpr index_t line = 64 / sizeof(T);
    const Rows<T> a{&A(row, 0), A.row_stride, A.col_stride};
    const index_t ahead = std::max<index_t>(V::kAccumulators, rows_ahead<T>(A.cols())) * A.row_stride;
    clear(c);
    for (index_t t = 0; t < A.cols(); t += line) {
      multiply(c, a.after(t), panel + t * width, width, std::min(line, A.cols() - t));
      if (fetches)
        for (int r = 0; r < R; ++r) fetch(a.after(t).at(r) + ahead);
    }
  }

  /// Sets weights of hidden keys to 0, in these rows and vectors of P at p.
  [[gnu::noinline]] void hide(index_t q, index_t rows, index_t first, index_t vectors, T* p) const {
    for (index_t r = 0; r < rows; ++r)
      for (index_t v = 0; v < vectors; ++v) {
        T* const to = p + r * P.row_stride + v * V::kLanes;
        const Range keys = seen({q + r, q + r + 1});
        const auto lane = [&](index_t key) { return std::clamp<index_t>(key - first - v * V::kLanes, 0, V::kLanes); };
        V::zero().first_or(lane(keys.begin), V::load(to).first_or(lane(keys.end), V::zero())).store(to);
      }
  }

  /// P and dS of R queries and the first N vectors of a panel of keys, `first` being its first key: the others' keys
  /// are hidden from all of them.
  template <int R, int NV, int N>
  [[gnu::noinline]] void tile(index_t q, index_t first, const T* k_panel, const T* v_panel) const {
    constexpr index_t width = NV * V::kLanes;
    T* const p = &P(q, first);
    T* const ds = &dS(q, first);
#pragma GCC unroll 4
    for (int v = N; v < NV; ++v)
      for (int r = 0; r < R; ++r) {
        V::zero().store(p + r * P.row_stride + v * V::kLanes);
        V::zero().store(ds + r * dS.row_stride + v * V::kLanes);
      }
    if constexpr (N > 0) {
      V c[R][N];
      products(c, Q, q, k_panel, width, first == 0);
      const V factor = V::all(static_cast<T>(scores.scale) * kLog2E<T>);
#pragma GCC unroll 24
      for (int r = 0; r < R; ++r) {
        // A row whose scores are all -inf has weights 0.
        const T l = lse(q + r, 0);
        const V shift = V::all(l == kMinusInf<T> ? kMinusInf<T> : -l * kLog2E<T>);
#pragma GCC unroll 4
        for (int v = 0; v < N; ++v) exp2(fma(c[r][v], factor, shift)).store(p + r * P.row_stride + v * V::kLanes);
      }
      if (!scores.place.mask.full() &&
          (seen({q, q + 1}).end < first + N * V::kLanes || seen({q + R - 1, q + R}).begin > first))
        hide(q, R, first, N, p);
      products(c, dO, q, v_panel, width, first == 0);
      const V scale = V::all(static_cast<T>(scores.scale));
#pragma GCC unroll 24
      for (int r = 0; r < R; ++r) {
        const V d = V::all(D(q + r, 0));
#pragma GCC unroll 4
        for (int v = 0; v < N; ++v) {
          const V e = V::load(p + r * P.row_stride + v * V::kLanes);
          // 0 where P is 0, whatever dP is.
          (scale * where_equal(e, V::zero(), V::zero(), e * (c[r][v] - d)))
              .store(ds + r * dS.row_stride + v * V::kLanes);
        }
      }
    }
  }
  /// The same, for as many vectors as hold keys that some of the queries see.
  template <int R, int NV, int N = NV>
  void seen_tile(index_t q, index_t first, const T* k_panel, const T* v_panel) const {
    if constexpr (N > 0) {
      const Range keys = seen({q, q + R});
      if (keys.end <= first + (N - 1) * V::kLanes || keys.begin >= first + N * V::kLanes)
        return seen_tile<R, NV, N - 1>(q, first, k_panel, v_panel);
    }
    tile<R, NV, N>(q, first, k_panel, v_panel);
  }

  template <int NV>
  void panel(index_t first, const T* k_panel, const T* v_panel) const {
    for_row_blocks<kRows<V, NV>>(P.rows(),
                                 [&]<int R>(index_t q, Height<R>) { seen_tile<R, NV>(q, first, k_panel, v_panel); });
  }

  void weights() const {
    for_panels<V>({P.cols(), 1}, [&](index_t first, index_t, index_t width, index_t) {
      const T *kp = K.panels + first * K.cols(), *vp = Vv.panels + first * Vv.cols();
      switch (width / V::kLanes) {
        case 1:
          return panel<1>(first, kp, vp);
        case 2:
          return panel<2>(first, kp, vp);
        default:
          if constexpr (kPanelVectors<V> == 3) return panel<3>(first, kp, vp);
      }
    });
  }

  /// C <- C + W^T B: gradients of keys from the weights W of queries. Queries that see no key of a register tile are
  /// left out.
  void accumulate(View<T> C, View<T> W, View<const T> B) const {
    constexpr index_t kStep = V::kAccumulators;  // a multiple of every height of a register tile
    for (index_t j = 0; j < C.rows(); j += kStep) {
      const auto seeing = [&](index_t row, index_t rows) {
        const Range queries = scores.place.rows_of(Range{j + row, j + row + rows}, W.rows());
        return Depth{queries.begin, queries.end};
      };
      multiply_into<V>(rows_of(C, j, std::min(kStep, C.rows() - j)), Side<T>{&W(0, j), W.row_stride}, B.data,
                       B.row_stride, seeing, Into::add);
    }
  }
};

template <class V>
bool key_gradients(const KeyGradients& step, std::span<const View<typename V::T>> x) {
  const auto &P = x[0], &dS = x[1], &dK = x[2], &dV = x[3], &Q = x[4], &K = x[5], &Vv = x[6], &lse = x[7], &D = x[8],
             &dO = x[9];
  const bool laid_out = P.layout == Layout::padded_rows && dS.layout == Layout::padded_rows &&
                        K.layout == Layout::key_panels && Vv.layout == Layout::key_panels;
  const bool rows = dK.col_stride == 1 && dV.col_stride == 1 && Q.col_stride == 1 && dO.col_stride == 1;
  if (step.score != Score::softmax || !laid_out || !rows) return false;
  for (index_t r = 0; r < lse.rows(); ++r)  // so large, or NaN: for the parts, which look at each score
    if (!(std::abs(lse[r]) <= kFar<typename V::T>) && lse[r] != kMinusInf<typename V::T>) return false;
  const KeyStep<V> s{step.scores, P, dS, Q, K, Vv, lse, D, dO};
  s.weights();
  s.accumulate(dV, P, dO);
  s.accumulate(dK, dS, Q);
  return true;
}

}  // namespace redblue::kernel::simd
