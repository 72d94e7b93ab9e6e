#pragma once
#include "redblue/kernels/backward.hpp"
#include "redblue/kernels/simd/exp.hpp"
#include "redblue/kernels/simd/fetch.hpp"
#include "redblue/kernels/simd/gemm.hpp"
#include "redblue/kernels/simd/modifiers.hpp"
#include "redblue/kernels/simd/place.hpp"
#include "redblue/kernels/simd/sparse_gradients.hpp"

/// KeyGradients as one implementation, for the softmax. Keys lie in vector lanes: K^T and V^T are panels, so a register
/// tile of scores, and then of dP, is finished where it was made, P = exp(s - lse) and dS = scale P (dP - D) in
/// registers.
namespace redblue::kernel::simd {

template <class V>
struct KeyStep {
  using T = typename V::T;

  Scores scores;
  const WeightsOfTile& weights_of;
  View<T> P, dS, G, F;
  View<const T> Q, K, Vv, lse, D, dO, bias, slopes;
  FetchAhead fetches_Q, fetches_dO;  ///< while the first panel of keys is multiplied

  bool modified() const {
    return !weights_of.modify.idle(derivative().shape, bias.shape, slopes.shape) || weights_of.drop.share > 0;
  }

  /// Do few pairs exist, here and there?
  bool goes_pair_by_pair() const {
    return scores.place.mask.pattern != nullptr && !modified() && K.col_stride == 1 && Vv.col_stride == 1 &&
           pays_by_pair(PairByPair::gradients(K.cols() + Vv.cols()), scores.place, P.shape);
  }

  /// Where the derivative of the softcap goes: into F, or with the weights into G.
  const View<T>& derivative() const { return F.words() > 0 ? F : G; }

  /// Keys of this tile that one of these rows sees.
  Range seen(Range rows) const { return keys_seen(scores.place, rows, P.cols()); }

  /// c <- R rows of A times a panel, and a row is fetched for each.
  template <int R, int N>
  [[gnu::always_inline]] static void products(V (&c)[R][N], const View<const T>& A, index_t row, const T* panel,
                                              index_t width, const FetchAhead& fetches) {
    constexpr index_t line = 64 / sizeof(T);
    const Rows<T> a{&A(row, 0), A.row_stride, A.col_stride};
    const index_t ahead = fetches.from(row);
    clear(c);
    for (index_t t = 0; t < A.cols(); t += line) {
      multiply(c, a.after(t), panel + t * width, width, std::min(line, A.cols() - t));
      if (ahead != 0)
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

  /// A panel of keys, and their values: `width` of them from `first` on.
  struct Panel {
    index_t first, width;
    const T *keys, *values;
  };

  /// P and dS of R queries and the first N vectors of a panel of keys: the others' keys are hidden from all of them.
  /// `all`: what all of them see.
  template <int R, int N>
  [[gnu::noinline]] void tile(index_t q, Range all, const Panel& panel) const {
    const index_t first = panel.first;
    T* const p = &P(q, first);
    T* const ds = &dS(q, first);
    // dS may lie in a level above, in no cache: its lines come while scores are multiplied.
#pragma GCC unroll 24
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
      for (int v = 0; v < N; ++v) __builtin_prefetch(ds + r * dS.row_stride + v * V::kLanes, 1);
    V c[R][N];
    products(c, Q, q, panel.keys, panel.width, first == 0 ? fetches_Q : FetchAhead{});
    const V factor = V::all(static_cast<T>(scores.scale) * kLog2E<T>);
#pragma GCC unroll 24
    for (int r = 0; r < R; ++r) {
      const ShiftByLse<V> by(lse(q + r, 0));
#pragma GCC unroll 4
      for (int v = 0; v < N; ++v)
        exp2(fma(c[r][v], factor, by.shift), by.one).store(p + r * P.row_stride + v * V::kLanes);
    }
    if (all.begin > first || all.end < first + N * V::kLanes) hide(q, R, first, N, p, P.row_stride);
    products(c, dO, q, panel.values, panel.width, first == 0 ? fetches_dO : FetchAhead{});
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
  /// R rows of A times N vectors of a panel, to a tile in the first cache.
  template <int R, int N>
  [[gnu::noinline]] static void store_products(T* tile, const View<const T>& A, index_t row, const T* panel,
                                               index_t width, const FetchAhead& fetches) {
    V c[R][N];
    products(c, A, row, panel, width, fetches);
#pragma GCC unroll 24
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
      for (int v = 0; v < N; ++v) c[r][v].store(tile + (r * N + v) * V::kLanes);
  }
  /// P and G, or dS in its place, of `rows` queries and some vectors of keys, from the products of a tile: G are the
  /// weights of scores. The derivative of the softcap is a factor of them, or goes into F, and into dS later.
  [[gnu::noinline]] void modified_weights(index_t q, index_t rows, index_t first, index_t vectors,
                                          const T* tile) const {
    constexpr index_t L = V::kLanes;
    constexpr auto kLane = [] {
      std::array<T, L> lane{};
      for (index_t i = 0; i < L; ++i) lane[static_cast<std::size_t>(i)] = static_cast<T>(i);
      return lane;
    }();
    // Kept here: to the compiler a store of a vector may change whatever lies in memory.
    const ModifyScores modify = weights_of.modify;
    const View<T> weights = G.words() > 0 ? G : dS;
    const Softcap<V> cap(modify.softcap > 0 ? modify.softcap : 1);
    const V scale = V::all(static_cast<T>(scores.scale)), one = V::all(T(1)), lanes = V::load(kLane.data());
    const index_t cols = P.cols();
    for (index_t r = 0; r < rows; ++r, tile += vectors * L) {
      const index_t row = modify.place.row + q + r;
      const T slope = slopes.words() > 0 ? slopes[row % slopes.words()] : T(0);
      const index_t position = row / modify.place.mask.group + modify.slope_offset - modify.place.col;
      const T l = lse(q + r, 0);
      const V shift = V::all(l == kMinusInf<T> ? -l : l);
      T *const p = &P(q + r, 0), *const g = &weights(q + r, 0), *const f = F.words() > 0 ? &F(q + r, 0) : nullptr;
      const T* const biases = bias.words() > 0 ? &bias(bias.rows() == 1 ? 0 : q + r, 0) : nullptr;
      for (index_t v = 0; v < vectors; ++v) {
        const index_t key = first + v * L;
        V s = V::load(tile + v * L) * scale, derivative = one;
        if (modify.softcap > 0) s = cap(s, derivative);
        if (biases != nullptr) s = s + V::load_first(biases + key, std::clamp<index_t>(cols - key, 0, L));
        if (slope != T(0)) {
          const V away = V::all(static_cast<T>(position - key)) - lanes;
          s = s - V::all(slope) * max(away, V::zero() - away);
        }
        const V e = exp2((s - shift) * V::all(kLog2E<T>));
        if (f != nullptr) {
          derivative.store(f + key);
          derivative = one;
        }
        e.store(p + key);
        (e * derivative).store(g + key);
      }
    }
  }
  /// P and dS of the same, from the products with dO.
  [[gnu::noinline]] void modified_gradients(index_t q, index_t rows, index_t first, index_t vectors,
                                            const T* tile) const {
    constexpr index_t L = V::kLanes;
    const Drop drop = weights_of.drop;
    const View<T> weights = G.words() > 0 ? G : dS;
    const V scale = V::all(static_cast<T>(scores.scale));
    for (index_t r = 0; r < rows; ++r, tile += vectors * L) {
      const V d = V::all(D(q + r, 0));
      T *const p = &P(q + r, first), *const ds = &dS(q + r, first);
      const T* const g = &weights(q + r, first);
      const index_t row = drop.row + q + r;
      alignas(64) T keep[ceil_div(kWidestPanel<V>, kDropVectors) * kDropVectors * L];
      for (index_t v = 0; drop.share > 0 && v < vectors; v += kDropVectors)
        drop_factors<V>(drop, drop.head + row % drop.group, drop.first_row + row / drop.group, drop.col + first + v * L,
                        keep + v * L);
      for (index_t v = 0; v < vectors; ++v) {
        const V weight = V::load(g + v * L);
        V dP = V::load(tile + v * L);
        if (drop.share > 0) {
          const V kept = V::load(keep + v * L);
          dP = dP * kept;
          (V::load(p + v * L) * kept).store(p + v * L);
        }
        (scale * where_equal(weight, V::zero(), V::zero(), weight * (dP - d))).store(ds + v * L);
      }
    }
  }
  /// `tile` where the problem modifies scores or drops weights.
  template <int R, int N>
  void modified_tile(index_t q, Range all, const Panel& panel) const {
    const index_t first = panel.first;
    alignas(64) T tile[R * N * V::kLanes];
    for (index_t r = 0; bias.rows() > 1 && r < R; ++r)  // on its way while scores are formed
      for (index_t v = 0; v < N; ++v) __builtin_prefetch(&bias(q + r, first + v * V::kLanes));
    store_products<R, N>(tile, Q, q, panel.keys, panel.width, first == 0 ? fetches_Q : FetchAhead{});
    modified_weights(q, R, first, N, tile);
    if (all.begin > first || all.end < first + N * V::kLanes)
      for (const View<T>& weights : {P, G.words() > 0 ? G : dS})
        hide(q, R, first, N, &weights(q, first), weights.row_stride);
    store_products<R, N>(tile, dO, q, panel.values, panel.width, first == 0 ? fetches_dO : FetchAhead{});
    modified_gradients(q, R, first, N, tile);
  }
  /// P and dS of R queries and NV vectors of keys: those vectors are left out, from the last one on, whose keys are
  /// hidden from all of the queries.
  template <int R, int NV, int N = NV>
  void seen_tile(index_t q, const Sight& sight, const Panel& panel) const {
    const index_t first = panel.first;
    if constexpr (N > 0)
      if (sight.some.end <= first + (N - 1) * V::kLanes || sight.some.begin >= first + N * V::kLanes)
        return seen_tile<R, NV, N - 1>(q, sight, panel);
    for (const View<T>& hidden : {P, dS, G, F})
      for (index_t r = 0; N < NV && hidden.words() > 0 && r < R; ++r)
        for (int v = N; v < NV; ++v) V::zero().store(&hidden(q + r, first) + v * V::kLanes);
    if constexpr (N > 0) {
      if (modified()) return modified_tile<R, N>(q, sight.all, panel);
      tile<R, N>(q, sight.all, panel);
    }
  }

  template <int NV>
  void panel(const Panel& panel) const {
    for_row_blocks<kRows<V, NV>>(P.rows(),
                                 [&]<int R>(index_t q, Height<R>) { seen_tile<R, NV>(q, sight({q, q + R}), panel); });
  }

  void weights() const {
    for_panels<V>({P.cols(), 1}, [&](index_t first, index_t, index_t width, index_t) {
      const Panel keys{first, width, K.other_form + first * K.cols(), Vv.other_form + first * Vv.cols()};
      switch (width / V::kLanes) {
        case 1:
          return panel<1>(keys);
        case 2:
          return panel<2>(keys);
        case 3:
          if constexpr (kWidestPanel<V> >= 3) return panel<3>(keys);
          [[fallthrough]];
        default:
          if constexpr (kWidestPanel<V> >= 4) return panel<4>(keys);
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

/// Can a fused implementation of the softmax take these operands, as they are laid out, and these lse?
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
  const auto fetches = [&](const View<const typename V::T>& rows) {
    return FetchAhead::of<typename V::T>(rows.rows(), rows.cols(), rows.row_stride, step.next, V::kAccumulators);
  };
  return {scores, step.weights, x[0], x[1], x[10], x[11], x[4],          x[5],
          x[6],   x[7],         x[8], x[9], x[12], x[13], fetches(x[4]), fetches(x[9])};
}

template <class V>
bool key_gradients(const KeyGradients& step, std::span<const View<typename V::T>> x) {
  if (!can_fuse<V>(step, x)) return false;
  const KeyStep<V> s = key_step<V>(step, x);
  if (s.goes_pair_by_pair()) {
    SparseGradients<V>{s.scores.place, s.scores.scale, s.P, s.dS, x[2], x[3], s.Q, s.K, s.Vv, s.lse, s.D, s.dO}.run();
    return true;
  }
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
