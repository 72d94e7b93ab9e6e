#pragma once
#include "kernel/simd/exp.hpp"
#include "kernel/simd/fetch.hpp"
#include "kernel/simd/gemm.hpp"
#include "kernel/simd/modifiers.hpp"
#include "kernel/simd/place.hpp"
#include "redblue/kernel/backward.hpp"

/// KeyGradients as one body, for the softmax. Keys lie in vector lanes: K^T and V^T are panels, so a register tile of
/// scores, and then of dP, is finished where it was made, P = exp(s - lse) and dS = scale P (dP - D) in registers.
namespace redblue::kernel::simd {

template <class V>
struct KeyStep {
  using T = typename V::T;

  Scores scores;
  const WeightsOfTile& weights_of;
  View<T> P, dS, G, F;
  View<const T> Q, K, Vv, lse, D, dO, bias, slopes;

  bool modified() const {
    return !weights_of.modify.idle(derivative().shape, bias.shape, slopes.shape) || weights_of.drop.share > 0;
  }

  /// Where the derivative of the softcap goes: into F, or with the weights into G.
  const View<T>& derivative() const { return F.words() > 0 ? F : G; }

  /// Keys of this tile that one of these rows sees.
  Range seen(Range rows) const { return keys_seen(scores.place, rows, P.cols()); }

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

  /// Keys that one of some rows sees, and those that all of them see: under a pattern that is not looked into.
  struct Sight {
    Range some, all;
  };
  Sight sight(Range rows) const {
    constexpr Range kAll{0, Mask::kFar};
    if (scores.place.mask.full()) return {kAll, kAll};
    if (scores.place.mask.pattern != nullptr) return {seen(rows), {0, 0}};
    const Range top = seen({rows.begin, rows.begin + 1}), bottom = seen({rows.end - 1, rows.end});
    return {{top.begin, bottom.end}, {bottom.begin, top.end}};
  }

  /// Sets weights of hidden keys to 0, in these rows and vectors of a tile at p, whose rows are `stride` apart.
  [[gnu::noinline]] void hide(index_t q, index_t rows, index_t first, index_t vectors, T* p, index_t stride) const {
    if (scores.place.mask.pattern != nullptr) {
      const Place at = scores.place.at(q, first);
      for (index_t r = 0; r < rows; ++r) {
        const std::uint64_t bits = at.mask.pattern->rows().seen(at.row + r, at.col);
        for (index_t v = 0; v < vectors; ++v) {
          T* const to = p + r * stride + v * V::kLanes;
          V::load(to).where_bit_or(bits >> v * V::kLanes, V::zero()).store(to);
        }
      }
      return;
    }
    for (index_t r = 0; r < rows; ++r) {
      const Range keys = seen({q + r, q + r + 1});
      for (index_t v = 0; v < vectors; ++v) {
        T* const to = p + r * stride + v * V::kLanes;
        const auto lane = [&](index_t key) { return std::clamp<index_t>(key - first - v * V::kLanes, 0, V::kLanes); };
        V::zero().first_or(lane(keys.begin), V::load(to).first_or(lane(keys.end), V::zero())).store(to);
      }
    }
  }

  /// P and dS of R queries and the first N vectors of a panel of keys, `first` being its first key: the others' keys
  /// are hidden from all of them. `all`: what all of them see.
  template <int R, int NV, int N>
  [[gnu::noinline]] void tile(index_t q, index_t first, Range all, const T* k_panel, const T* v_panel) const {
    constexpr index_t width = NV * V::kLanes;
    T* const p = &P(q, first);
    T* const ds = &dS(q, first);
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
    if (all.begin > first || all.end < first + N * V::kLanes) hide(q, R, first, N, p, P.row_stride);
    products(c, dO, q, v_panel, width, first == 0);
    const V scale = V::all(static_cast<T>(scores.scale));
#pragma GCC unroll 24
    for (int r = 0; r < R; ++r) {
      const V d = V::all(D(q + r, 0));
#pragma GCC unroll 4
      for (int v = 0; v < N; ++v) {
        const V e = V::load(p + r * P.row_stride + v * V::kLanes);
        // 0 where P is 0, whatever dP is.
        (scale * where_equal(e, V::zero(), V::zero(), e * (c[r][v] - d))).store(ds + r * dS.row_stride + v * V::kLanes);
      }
    }
  }
  /// The same where the problem modifies scores or drops weights: G are the weights of scores then. The derivative of
  /// the softcap is a factor of them, or goes into F, and into dS later.
  template <int R, int NV, int N>
  [[gnu::noinline]] void modified_tile(index_t q, index_t first, Range all, const T* k_panel, const T* v_panel) const {
    constexpr index_t width = NV * V::kLanes, L = V::kLanes;
    const ModifyScores& modify = weights_of.modify;
    const Drop& drop = weights_of.drop;
    constexpr auto kLane = [] {
      std::array<T, L> lane{};
      for (index_t i = 0; i < L; ++i) lane[static_cast<std::size_t>(i)] = static_cast<T>(i);
      return lane;
    }();
    V c[R][N], e[R][N];
    products(c, Q, q, k_panel, width, first == 0);
    for (int r = 0; r < R; ++r) {
      const index_t row = modify.place.row + q + r;
      const T slope = slopes.words() > 0 ? slopes[row % slopes.words()] : T(0);
      const index_t position = row / modify.place.mask.group + modify.slope_offset - modify.place.col;
      const T l = lse(q + r, 0);
      const V shift = V::all(l == kMinusInf<T> ? -l : l);
      for (int v = 0; v < N; ++v) {
        const index_t key = first + v * L, keys = std::clamp<index_t>(P.cols() - key, 0, L);
        V s = c[r][v] * V::all(static_cast<T>(scores.scale)), derivative = V::all(T(1));
        if (modify.softcap > 0) s = Softcap<V>(modify.softcap)(s, derivative);
        if (bias.words() > 0) s = s + V::load_first(&bias(bias.rows() == 1 ? 0 : q + r, key), keys);
        if (slope != T(0)) {
          const V away = V::all(static_cast<T>(position - key)) - V::load(kLane.data());
          s = s - V::all(slope) * max(away, V::zero() - away);
        }
        e[r][v] = exp2((s - shift) * V::all(kLog2E<T>));
        if (F.words() > 0) {
          derivative.store(&F(q + r, first) + v * L);
          derivative = V::all(T(1));
        }
        c[r][v] = e[r][v] * derivative;
      }
    }
    T *const p = &P(q, first), *const g = G.words() > 0 ? &G(q, first) : &dS(q, first), *const ds = &dS(q, first);
    for (int r = 0; r < R; ++r)
      for (int v = 0; v < N; ++v) {
        e[r][v].store(p + r * P.row_stride + v * L);
        c[r][v].store(g + r * P.row_stride + v * L);  // all have one stride
      }
    if (all.begin > first || all.end < first + N * L) {
      hide(q, R, first, N, p, P.row_stride);
      hide(q, R, first, N, g, P.row_stride);
    }
    products(c, dO, q, v_panel, width, first == 0);
    for (int r = 0; r < R; ++r) {
      const V d = V::all(D(q + r, 0)), scale = V::all(static_cast<T>(scores.scale));
      const index_t row = drop.row + q + r;
      alignas(64) T keep[N * L];
      if (drop.share > 0)
        drop_factors<V, N>(drop, drop.head + row % drop.group, drop.first_row + row / drop.group, drop.col + first,
                           keep);
      for (int v = 0; v < N; ++v) {
        const V weight = V::load(g + r * P.row_stride + v * L);
        V dP = c[r][v];
        if (drop.share > 0) {
          const V kept = V::load(keep + v * L);
          dP = dP * kept;
          (V::load(p + r * P.row_stride + v * L) * kept).store(p + r * P.row_stride + v * L);
        }
        (scale * where_equal(weight, V::zero(), V::zero(), weight * (dP - d))).store(ds + r * P.row_stride + v * L);
      }
    }
  }
  /// P and dS of R queries and NV vectors of keys: those vectors are left out, from the last one on, whose keys are
  /// hidden from all of the queries.
  template <int R, int NV, int N = NV>
  void seen_tile(index_t q, index_t first, const Sight& sight, const T* k_panel, const T* v_panel) const {
    if constexpr (N > 0)
      if (sight.some.end <= first + (N - 1) * V::kLanes || sight.some.begin >= first + N * V::kLanes)
        return seen_tile<R, NV, N - 1>(q, first, sight, k_panel, v_panel);
    for (const View<T>& hidden : {P, dS, G, F})
      for (index_t r = 0; N < NV && hidden.words() > 0 && r < R; ++r)
        for (int v = N; v < NV; ++v) V::zero().store(&hidden(q + r, first) + v * V::kLanes);
    if constexpr (N > 0) {
      if (modified()) return modified_tile<R, NV, N>(q, first, sight.all, k_panel, v_panel);
      tile<R, NV, N>(q, first, sight.all, k_panel, v_panel);
    }
  }

  template <int NV>
  void panel(index_t first, const T* k_panel, const T* v_panel) const {
    for_row_blocks<kRows<V, NV>>(P.rows(), [&]<int R>(index_t q, Height<R>) {
      seen_tile<R, NV>(q, first, sight({q, q + R}), k_panel, v_panel);
    });
  }

  void weights() const {
    for_panels<V>({P.cols(), 1}, [&](index_t first, index_t, index_t width, index_t) {
      const T *kp = K.panels + first * K.cols(), *vp = Vv.panels + first * Vv.cols();
      switch (width / V::kLanes) {
        case 1:
          return panel<1>(first, kp, vp);
        case 2:
          return panel<2>(first, kp, vp);
        case 3:
          if constexpr (kWidestPanel<V> >= 3) return panel<3>(first, kp, vp);
          [[fallthrough]];
        default:
          if constexpr (kWidestPanel<V> >= 4) return panel<4>(first, kp, vp);
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

/// Can a fused body of the softmax take these operands, as they are laid out, and these lse?
template <class V>
bool can_fuse(const KeyGradients& step, std::span<const View<typename V::T>> x) {
  const auto &P = x[0], &dS = x[1], &dK = x[2], &dV = x[3], &Q = x[4], &K = x[5], &Vv = x[6], &lse = x[7], &dO = x[9],
             &G = x[10], &F = x[11], &bias = x[12];
  const bool laid_out = P.layout == Layout::padded_rows && dS.layout == Layout::padded_rows &&
                        K.layout == Layout::key_panels && Vv.layout == Layout::key_panels;
  const bool rows = dK.col_stride == 1 && dV.col_stride == 1 && Q.col_stride == 1 && dO.col_stride == 1;
  if (step.weights.score != Score::softmax || !laid_out || !rows) return false;
  if (bias.words() > 0 && bias.col_stride != 1) return false;
  for (const auto& tile : {G, F})
    if (tile.words() > 0 && tile.layout != Layout::padded_rows) return false;
  for (index_t r = 0; r < lse.rows(); ++r)  // so large, or NaN: for the parts, which look at each score
    if (!(std::abs(lse[r]) <= kFar<typename V::T>) && lse[r] != kMinusInf<typename V::T>) return false;
  return true;
}

template <class V>
KeyStep<V> key_step(const KeyGradients& step, std::span<const View<typename V::T>> x) {
  const Scores scores{step.scores.scale, simplest(step.scores.place, x[0].shape)};
  return {scores, step.weights, x[0], x[1], x[10], x[11], x[4], x[5], x[6], x[7], x[8], x[9], x[12], x[13]};
}

template <class V>
bool key_gradients(const KeyGradients& step, std::span<const View<typename V::T>> x) {
  if (!can_fuse<V>(step, x)) return false;
  const KeyStep<V> s = key_step<V>(step, x);
  s.weights();
  s.accumulate(x[3], s.P, s.dO);
  if (s.F.words() > 0) {
    Copy{}.run<typename V::T>(s.P, s.dS);
    kernel::Multiply{}.run<typename V::T>(s.dS, s.F);
  }
  s.accumulate(x[2], s.dS, s.Q);
  return true;
}

}  // namespace redblue::kernel::simd
