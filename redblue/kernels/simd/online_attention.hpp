#pragma once
#include "redblue/kernels/attention.hpp"
#include "redblue/kernels/simd/exp.hpp"
#include "redblue/kernels/simd/fetch.hpp"
#include "redblue/kernels/simd/few_queries.hpp"
#include "redblue/kernels/simd/modifiers.hpp"
#include "redblue/kernels/simd/panels.hpp"
#include "redblue/kernels/simd/place.hpp"
#include "redblue/kernels/simd/product.hpp"
#include "redblue/kernels/simd/sparse_rows.hpp"

/// OnlineAttention as one implementation. Queries lie in vector lanes, NV vectors of them (a panel) at a time: scores
/// are made transposed, S^T[key][query], so that maximum, sum, scale and mask of a row are vertical and nothing is ever
/// reduced across lanes. Q^T and O^T are packed panels, K and V are read where they lie.
namespace redblue::kernel::simd {

template <class V, int NV, class Mul>
struct AttentionPanel {
  using T = typename V::T;
  using Element = typename Mul::Element;
  static constexpr index_t kWidth = NV * V::kLanes;

  const OnlineAttention& step;
  Mul mul;
  const T* Q;    ///< [d][width], as Mul multiplies it
  T* O;          ///< [d_v][width]
  T* S;          ///< [keys][width], scratch
  T *m, *l;      ///< of these queries
  index_t rows;  ///< queries in the panel
  Place place;   ///< of the first one's scores
  View<const T> K, Vv;
  ModifyPanel<V, NV>& modify;
  DropPanel<V, NV>& drop;
  /// Where O may be stored: lines of these rows are requested while the first keys are multiplied, row r beside key r,
  /// since stores one after another wait for each line that is not in the cache. nullptr later on, or if unknown.
  Rows<T> stored;
  FetchAhead fetches;  ///< of keys, and of the values of the keys that are multiplied: the first panel does it for all

  static constexpr index_t kLine = 64 / sizeof(T);  ///< steps in a cache line of a key
  static T* at(T* p, index_t row, int v) { return p + row * kWidth + v * V::kLanes; }
  static V minus_inf() { return V::all(-std::numeric_limits<T>::infinity()); }
  /// Lanes of vector v that hold queries.
  index_t lanes(int v) const { return std::clamp<index_t>(rows - v * V::kLanes, 0, V::kLanes); }

  // The implementations of register tiles are functions of their own: inlined side by side, g++ 12 spills their
  // accumulators.

  /// The most keys of a tile of scores. Where not all vectors of the panel take part, the pieces are as short as a
  /// vector of queries: taller tiles would not be used there.
  template <int N>
  static constexpr int kTallest = N < NV ? std::min(kTileRows<V, N, Mul>, 8) : kTileRows<V, N, Mul>;

  /// Requests lines of `stored` for stores to come: of `n` rows the columns that belong to one line of a key.
  [[gnu::always_inline]] void request(index_t row, int n, index_t col) const {
    for (index_t t = col; t < std::min(col + kLine * Mul::kDepth, Vv.cols()); t += kLine)
      for (int r = 0; r < n; ++r) __builtin_prefetch(stored.from(row).at(r) + t, 1);
  }
  /// Rows of K, a pair or a word of each in a step.
  Rows<Element> keys_from(index_t key) const {
    return {reinterpret_cast<const Element*>(K.data) + key * K.row_stride, K.row_stride, Mul::kDepth};
  }
  /// c <- K Q^T for R keys and N vectors from v0 on.
  template <int R, int N>
  [[gnu::always_inline]] void products(index_t key, int v0, V (&c)[R][N]) const {
    const index_t ahead = fetches.from(key);
    const index_t steps = K.cols() / Mul::kDepth;
    const Rows<Element> k = keys_from(key);
    const T* const q = Q + v0 * V::kLanes;
    if constexpr (MatrixTiles<Mul>) {
      const index_t from = steps_before(steps);
      form(c, k.after(from), q + from * kWidth, kWidth, steps - from, mul, from > 0 ? at(S, key, v0) : nullptr, kWidth,
           ahead * index_t{sizeof(Element)});
      modify.fetch_some();
    } else {
      clear(c);
      for (index_t t = 0; t < steps; t += kLine) {
        multiply(c, k.after(t), q + t * kWidth, kWidth, std::min(kLine, steps - t), Mul{});
        if (stored.p != nullptr && key + R <= rows) request(key, R, t * Mul::kDepth);
        if (ahead > 0)
          for (int r = 0; r < R; ++r) {
            fetch(k.after(t).at(r) + ahead);
            if (Mul::kDepth == 1 && t < Vv.cols()) fetch(&Vv(key + r, t));
          }
        modify.fetch_some();
      }
    }
    if constexpr (Mul::kDepth > 1)
      if (steps * Mul::kDepth < K.cols()) Mul::add_last(c, k.p + steps * Mul::kDepth, k.stride, q + steps * kWidth);
  }

  /// Steps that matrix tiles sum at a time: the words of Q of these, for a whole panel, stay in the first cache while
  /// keys pass.
  static constexpr index_t kDeep = 128;
  /// How many of these steps are summed before the last ones.
  static index_t steps_before(index_t steps) { return std::max<index_t>(0, ceil_div(steps, kDeep) - 1) * kDeep; }
  /// S <- products with these keys, for N vectors from v0 on, but for the last steps: products() adds those.
  template <int N>
  void begin_products(Range keys, int v0) const {
    if constexpr (MatrixTiles<Mul>)
      for (index_t t = 0, end = steps_before(K.cols() / Mul::kDepth); t < end; t += kDeep)
        for_row_blocks<kTallest<N>>(
            keys.size(), [&]<int R>(index_t block, Height<R>) { begin_tile<R, N>(keys.begin + block, v0, t); });
  }
  template <int R, int N>
  [[gnu::noinline]] void begin_tile(index_t key, int v0, index_t t) const {
    V c[R][N];
    form(c, keys_from(key).after(t), Q + t * kWidth + v0 * V::kLanes, kWidth, kDeep, mul,
         t > 0 ? at(S, key, v0) : nullptr, kWidth, fetches.from(key) * index_t{sizeof(Element)});
#pragma GCC unroll 24
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
      for (int v = 0; v < N; ++v) c[r][v].store(at(S, key + r, v0 + v));
  }

  /// What the softmax of a panel knows. Weights are 2^(factor score + shift): the shift is that of an earlier maximum
  /// as long as no score is above the limit.
  struct Running {
    V factor;
    V top[NV];  ///< the m that weights are relative to; 0 for a query that has seen no key yet, whose m stays -inf
    V shift[NV];
    V limit[NV];  ///< raw scores
    V sums[NV];   ///< of the weights of this step
    V most[NV];   ///< raw scores of a tile that had one above the limit
    bool far;     ///< some |top| is so large that factor score and shift are rounded too far apart
  };

  /// Rows of the panel, 64 at most, that see each of these keys, as bits.
  template <int R>
  [[gnu::noinline]] void see(index_t key, std::uint64_t (&bits)[R]) const {
    if (place.mask.pattern != nullptr) {
      const RunLists& seeing = place.mask.pattern->keys();
      for (int r = 0; r < R; ++r) bits[r] = seeing.seen(place.col + key + r, place.row);
      return;
    }
    const auto below = [](index_t row) { return row < 64 ? (std::uint64_t{1} << row) - 1 : ~std::uint64_t{0}; };
    for (int r = 0; r < R; ++r) {
      const Range seeing = place.rows_of(key + r, kWidth);
      bits[r] = below(seeing.end) & ~below(seeing.begin);
    }
  }

  /// S <- weights of R keys in N vectors from v0 on, all of whose rows see all of these keys unless kHides; or false if
  /// a score is above the limit: then S <- raw scores, and `most`. Other scores go from the registers of their sums
  /// through the exponential and are never stored.
  template <int R, int N, bool kHides>
  [[gnu::noinline]] bool weight_tile(index_t key, int v0, Running& w) const {
    if constexpr (N == NV) v0 = 0;
    std::uint64_t seeing[R];
    if constexpr (kHides) see(key, seeing);  // before the products: a call would take their sums out of registers
    const bool adds = modify.only_adds();
    if (adds) modify.prepare(key, R);
    V c[R][N];
    products(key, v0, c);
    bool above = false;
    if constexpr (N < NV) std::fill_n(w.most, NV, minus_inf());
    const auto finish = [&](auto adds_bias) __attribute__((always_inline)) {
#pragma GCC unroll 4
      for (int v = 0; v < N; ++v) {
        V top = minus_inf();
#pragma GCC unroll 24
        for (int r = 0; r < R; ++r) {
          if constexpr (decltype(adds_bias)::value) c[r][v] = modify.sum(c[r][v], key + r, v0 + v);
          if constexpr (kHides) c[r][v] = c[r][v].where_bit_or(seeing[r] >> (v0 + v) * V::kLanes, minus_inf());
          top = r == 0 ? c[r][v] : max(top, c[r][v]);
        }
        w.most[v0 + v] = top;
        above |= any_above(top, w.limit[v0 + v]);
      }
    };
    if (adds) [[unlikely]]
      finish(std::true_type{});
    else
      finish(std::false_type{});
    if (above) {
#pragma GCC unroll 24
      for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
        for (int v = 0; v < N; ++v) c[r][v].store(at(S, key + r, v0 + v));
      return false;
    }
    const V factor = w.factor;
#pragma GCC unroll 4
    for (int v = 0; v < N; ++v) {
      const V shift = w.shift[v0 + v];
      V sum = V::zero();
#pragma GCC unroll 24
      for (int r = 0; r < R; r += Mul::kDepth) {
        const V e = Mul::exp2(fma(c[r][v], factor, shift));
        sum = sum + e;
        if constexpr (Mul::kDepth == 1) {
          e.store(at(S, key + r, v0 + v));
        } else {
          const V next = r + 1 < R ? Mul::exp2(fma(c[r + 1 < R ? r + 1 : r][v], factor, shift)) : V::zero();
          sum = sum + next;
          Mul::store_pair(e, next, at(S, (key + r) / 2, v0 + v));
        }
      }
      w.sums[v0 + v] = w.sums[v0 + v] + sum;
    }
    return true;
  }

  static void set_top(const V (&m)[NV], Running& w) {
    // Powers of 2 that a weight may reach: O needs as many below the end of T's range (docs/numerics.md).
    constexpr T kSlack = 16;
    w.far = false;
    for (int v = 0; v < NV; ++v) {
      const V top = m[v] * V::all(kLog2E<T>);
      w.top[v] = where_equal(m[v], minus_inf(), V::zero(), m[v]);
      w.shift[v] = where_equal(m[v], minus_inf(), V::zero(), V::zero() - top);
      w.limit[v] = (top + V::all(kSlack)) / w.factor;
      w.far |= any_above(magnitude(w.top[v]), V::all(kFar<T>));
    }
  }
  static V magnitude(V x) { return max(x, V::zero() - x); }
  /// `far` in lanes where |top| is beyond kFar, else `near`.
  static V where_far(V top, V far, V near) {
    const V bound = V::all(kFar<T>);
    return where_equal(max(magnitude(top), bound), bound, near, far);
  }
  Running running(double scale) const {
    Running w;
    w.factor = V::all(static_cast<T>(scale) * kLog2E<T>);
    V top[NV];
    for (int v = 0; v < NV; ++v) {
      top[v] = V::load_first(m + v * V::kLanes, lanes(v));
      w.sums[v] = V::zero();
    }
    set_top(top, w);
    return w;
  }
  /// l <- by l + sums
  void add_sums(int v, V by, V sums) const {
    fma(V::load_first(l + v * V::kLanes, lanes(v)), by, sums).store_first(l + v * V::kLanes, lanes(v));
  }
  /// m takes in the largest raw scores, and corr the factor for what O holds so far.
  [[gnu::noinline]] void raise(const V (&most)[NV], double scale, Running& w, V (&corr)[NV]) const {
    const V to_log2 = V::all(kLog2E<T>);
    V old[NV], now[NV];
    for (int v = 0; v < NV; ++v) {
      old[v] = V::load_first(m + v * V::kLanes, lanes(v));
      now[v] = max(old[v], most[v] * V::all(static_cast<T>(scale)));
      now[v].store_first(m + v * V::kLanes, lanes(v));
    }
    set_top(now, w);
    for (int v = 0; v < NV; ++v) {
      // Rounded like the shift: exactly 1 where the maximum stays. (cmake/Isa.cmake keeps compilers from fusing this.)
      const V by = exp2(where_far(w.top[v], (old[v] - w.top[v]) * to_log2, old[v] * to_log2 + w.shift[v]));
      w.sums[v] = w.sums[v] * by;
      add_sums(v, by, V::zero());
      corr[v] = corr[v] * by;
    }
  }

  /// S^T <- K Q^T for R keys and N vectors from v0 on; `most` takes in each query's largest raw score.
  template <int R, int N>
  [[gnu::noinline]] void score_tile(index_t key, int v0, V (&most)[NV]) const {
    V c[R][N];
    products(key, v0, c);
#pragma GCC unroll 4
    for (int v = 0; v < N; ++v) {
      V top = most[v0 + v];
#pragma GCC unroll 24
      for (int r = 0; r < R; ++r) {
        top = max(top, c[r][v]);
        c[r][v].store(at(S, key + r, v0 + v));
      }
      most[v0 + v] = top;
    }
  }
  template <int N = NV>
  void scores(index_t first, index_t end, int v0, V (&most)[NV]) const {
    begin_products<N>({first, end}, v0);
    for_row_blocks<kTallest<N>>(end - first,
                                [&]<int R>(index_t block, Height<R>) { score_tile<R, N>(first + block, v0, most); });
  }

  /// Keys that one product with values takes: those of a step, or of a matrix tile.
  static constexpr index_t kTogether = [] {
    if constexpr (MatrixTiles<Mul>) return Mul::kTile * Mul::kDepth;
    return Mul::kDepth;
  }();
  /// The last key from which products may begin up to this one.
  static index_t whole(index_t key) { return key / kTogether * kTogether; }

  static constexpr bool kWholePanels = NV == 1 || MatrixTiles<Mul>;  ///< pieces have all vectors
  /// Keys, and the vectors that hold queries that see some of them.
  struct Piece {
    index_t first, end;
    int v0, v1;
  };

  /// S <- f(S, key, v) word by word, and `most` takes in the results.
  template <class F>
  void revise(const Piece& piece, V (&most)[NV], const F& f) const {
    for (index_t key = piece.first; key < piece.end; ++key)
      for (int v = piece.v0; v < piece.v1; ++v) {
        const V s = f(V::load(at(S, key, v)), key, v);
        s.store(at(S, key, v));
        most[v] = max(most[v], s);
      }
  }
  /// Scores of hidden keys become -inf, and `most` takes in the others.
  void hide(const Piece& piece, V (&most)[NV]) const {
    for (index_t key = piece.first; key < piece.end; ++key) {
      std::uint64_t seeing[1];
      see(key, seeing);
      for (int v = piece.v0; v < piece.v1; ++v) {
        const V s = V::load(at(S, key, v)).where_bit_or(seeing[0] >> v * V::kLanes, minus_inf());
        s.store(at(S, key, v));
        most[v] = max(most[v], s);
      }
    }
  }

  /// O^T <- O^T corr + V^T P^T for R features from t on, N vectors from v0 on and these keys, a multiple of kDepth
  /// first. Without corr O^T keeps its size.
  template <int R, int N>
  [[gnu::noinline]] void value_tile(index_t t, index_t first, index_t end, int v0, const V* corr) const {
    const index_t from = first / Mul::kDepth;
    // What this is added to is on its way while it is multiplied.
    for (int r = 0; r < R; ++r)
      for (int v = v0; v < v0 + N; ++v) __builtin_prefetch(at(O, t + r, v), 1);
    V c[R][N];
    const auto features = [&] {
      if constexpr (MatrixTiles<Mul>)
        return Rows<T>{Vv.data + t * Vv.row_stride + from, Vv.row_stride, 1};
      else
        return Side<T>{Vv.data + from * Vv.row_stride + t, Vv.row_stride};
    };
    const index_t steps = ceil_div(end - first, Mul::kDepth);
    if constexpr (MatrixTiles<Mul>) {
      form(c, features(), at(S, from, v0), kWidth, steps, mul);
    } else {
      clear(c);
      for (index_t s = 0, turn = modify.fetches() ? kLine : steps; s < steps; s += turn) {
        multiply(c, features().after(s), at(S, from + s, v0), kWidth, std::min(turn, steps - s), mul);
        modify.fetch_some();
      }
    }
    if (corr != nullptr) {
#pragma GCC unroll 24
      for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
        for (int v = 0; v < N; ++v)
          fma(V::load(at(O, t + r, v0 + v)), corr[v0 + v], c[r][v]).store(at(O, t + r, v0 + v));
    } else {
#pragma GCC unroll 24
      for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
        for (int v = 0; v < N; ++v) (V::load(at(O, t + r, v0 + v)) + c[r][v]).store(at(O, t + r, v0 + v));
    }
  }
  template <int N>
  void values(index_t first, index_t end, int v0, const V* corr) const {
    do {
      const index_t keys = std::min(end - first, kPiece);
      for_row_blocks<kTileRows<V, N, Mul>>(
          Vv.cols(), [&]<int R>(index_t t, Height<R>) { value_tile<R, N>(t, first, first + keys, v0, corr); });
      first += keys;
      corr = nullptr;
    } while (first < end);
  }

  /// f(piece) for the pieces of these keys, each with the vectors that hold queries that see it: from one row to the
  /// next no interval of keys begins or ends earlier, so vectors come and go in order. Under a pattern, and with matrix
  /// tiles, which take more keys than such a piece has, there is one piece with all vectors.
  template <class F>
  void for_seen(index_t first, index_t keys, const F& f) const {
    if (place.mask.pattern != nullptr || kWholePanels) return f(Piece{first, keys, 0, NV});
    while (first < keys) {
      const Range seeing = place.rows_of({first, std::min(first + Mul::kDepth, keys)}, rows);
      const index_t v0 = seeing.begin / V::kLanes, v1 = ceil_div(seeing.end, V::kLanes);
      if (seeing.size() == 0) return f(Piece{first, keys, 0, NV});
      index_t end = place.cols_of(std::min((v0 + 1) * V::kLanes, rows) - 1, keys).end;
      end = end < keys ? whole(end + Mul::kDepth - 1) : keys;
      const index_t next = v1 * V::kLanes < rows ? place.cols_of(v1 * V::kLanes, keys).begin : keys;
      if (next < keys) end = std::min(end, whole(next));
      f(Piece{first, end, static_cast<int>(v0), static_cast<int>(v1)});
      first = end;
    }
  }
  /// f(Height<N>) with as many vectors as a piece has.
  template <class F>
  static void with_height(const Piece& piece, const F& f) {
    if constexpr (kWholePanels)
      f(Height<NV>{});
    else
      switch (piece.v1 - piece.v0) {
        case 1:
          return f(Height<1>{});
        case 2:
          return f(Height<2>{});
        case 3:
          if constexpr (NV >= 3) return f(Height<3>{});
          [[fallthrough]];
        default:
          return f(Height<NV>{});
      }
  }

  /// S <- weights of these raw scores.
  [[gnu::noinline]] void softmax(const Piece& piece, double scale, Running w, V (&sums)[NV]) const {
    if (w.far) {  // the exponents come first, row by row in its own way
      const V by = V::all(static_cast<T>(scale)), to_log2 = V::all(kLog2E<T>);
      V ignored[NV];
      std::fill_n(ignored, NV, V::zero());
      revise(piece, ignored, [&](V x, index_t, int v) {
        return where_far(w.top[v], (x * by - w.top[v]) * to_log2, fma(x, w.factor, w.shift[v]));
      });
      w.factor = V::all(T(1));
      std::fill_n(w.shift, NV, V::zero());
    }
    const auto weight = [&](index_t key, int v) __attribute__((always_inline)) {
      const V e = Mul::exp2(fma(V::load(at(S, key, v)), w.factor, w.shift[v]));
      sums[v] = sums[v] + e;
      if (drop.active()) [[unlikely]]
        return e * drop(key, v);
      return e;
    };
    for (index_t key = piece.first; key < piece.end; key += Mul::kDepth)
#pragma GCC unroll 4
      for (int v = piece.v0; v < piece.v1; ++v) {
        const V e = weight(key, v);
        if constexpr (Mul::kDepth == 1)
          e.store(at(S, key, v));
        else
          Mul::store_pair(e, key + 1 < piece.end ? weight(key + 1, v) : V::zero(), at(S, key / 2, v));
      }
  }

  /// S <- f(scale S) for score functions without statistics, which have no dropout.
  void other_weights(const Piece& piece, double scale) const {
    const V s = V::all(static_cast<T>(scale)), zero = V::zero();
    V most[NV];
    std::fill_n(most, NV, zero);
    revise(piece, most, [&](V raw, index_t, int) { return weight_of(step.score, raw * s); });
    if constexpr (Mul::kDepth > 1)
      for (index_t key = piece.first; key < piece.end; key += 2)
        for (int v = piece.v0; v < piece.v1; ++v)
          Mul::store_pair(V::load(at(S, key, v)), key + 1 < piece.end ? V::load(at(S, key + 1, v)) : zero,
                          at(S, key / 2, v));
  }

  /// Weights in S that O has not taken in yet: of keys from `first` on. Until then O is to be scaled by corr.
  struct Pending {
    index_t first = 0;
    bool scaled = false;
    V corr[NV];
  };
  /// O takes in the weights that are pending up to here.
  void add_values(index_t key, const Pending& p) const {
    const V* corr = p.scaled ? p.corr : nullptr;
    for_seen(p.first, key, [&](const Piece& piece) {
      const bool all = piece.v1 - piece.v0 == NV;
      if (corr != nullptr && !all) {  // queries that see nothing here are scaled, too
        values<NV>(piece.first, piece.first, 0, corr);
        corr = nullptr;
      }
      with_height(piece, [&]<int N>(Height<N>) { values<N>(piece.first, piece.end, piece.v0, corr); });
      corr = nullptr;
    });
  }
  /// O takes in what is pending up to here, and m and what follows from it the largest raw scores. If the only
  /// rows above their limit have seen no key yet, m is set for these alone: their pending weights are 0.
  void raise_at(index_t key, const V (&most)[NV], double scale, Running& w, Pending& p) const {
    V first_seen[NV], ignored[NV];
    bool others = w.far;
    for (int v = 0; v < NV; ++v) {
      const V old = V::load_first(m + v * V::kLanes, lanes(v));
      first_seen[v] = where_equal(old, minus_inf(), most[v], minus_inf());
      others |= any_above(where_equal(old, minus_inf(), minus_inf(), most[v]), w.limit[v]);
    }
    if (!others) {
      std::fill_n(ignored, NV, V::zero());
      return raise(first_seen, scale, w, ignored);
    }
    if (key > p.first) add_values(key, p);
    if (key > p.first || !p.scaled) std::fill_n(p.corr, NV, V::all(T(1)));
    p.first = key;
    p.scaled = true;
    raise(most, scale, w, p.corr);
  }
  /// S <- weights of these keys in N vectors from v0 on, up to the key that is returned: none are far from 0.
  template <int N, bool kHides>
  index_t weigh(Range keys, int v0, double scale, Running& w, Pending& p) const {
    index_t done = keys.begin;
    begin_products<N>(keys, v0);
    for_row_blocks<kTallest<N>>(keys.size(), [&]<int R>(index_t block, Height<R>) {
      if (w.far) return;
      const index_t key = keys.begin + block;
      if (!weight_tile<R, N, kHides>(key, v0, w)) {
        raise_at(key, w.most, scale, w, p);
        if (w.far) return;
        softmax({key, key + R, v0, v0 + N}, scale, w, w.sums);
      }
      done = key + R;
    });
    return done;
  }
  /// Weighs keys first .. end; all rows see those in `all`.
  index_t weigh(index_t first, index_t end, Range all, double scale, Running& w, Pending& p) const {
    index_t done = first;
    for_seen(first, end, [&](const Piece& piece) {
      with_height(piece, [&]<int N>(Height<N>) {
        const auto weigh_these = [&](index_t begin, index_t end, auto hides) {
          if (!w.far) done = weigh<N, decltype(hides)::value>({begin, end}, piece.v0, scale, w, p);
        };
        if constexpr (N < NV) {  // not all rows see any of these
          weigh_these(piece.first, piece.end, std::true_type{});
        } else {
          const index_t from = std::clamp(all.begin, piece.first, piece.end), to = std::clamp(all.end, from, piece.end);
          weigh_these(piece.first, from, std::true_type{});
          weigh_these(from, to, std::false_type{});
          weigh_these(to, piece.end, std::true_type{});
        }
      });
    });
    return done;
  }

  /// Are scores in the order of their products, and is the scale a normal number as a word of type T?
  bool keeps_order() const {
    return !modify.active() && static_cast<T>(step.scores.scale) >= std::numeric_limits<T>::min();
  }
  /// Do products become scores in registers, which can be compared with the largest?
  bool weighs_in_registers() const { return modify.only_adds() || keeps_order(); }
  /// S <- scores of a piece, and `most` takes in the largest: raw ones, to be multiplied by `scale`. All rows see the
  /// keys in `all`.
  void raw_scores(const Piece& piece, Range all, V (&most)[NV]) const {
    std::fill_n(most, NV, minus_inf());
    with_height(piece, [&]<int N>(Height<N>) { scores<N>(piece.first, piece.end, piece.v0, most); });
    const bool products = keeps_order();  // is the largest score of the largest product?
    all = {std::clamp(all.begin, piece.first, piece.end), std::clamp(all.end, piece.first, piece.end)};
    if (products && all.begin == piece.first && all.end == piece.end) return;
    std::fill_n(most, NV, minus_inf());
    const auto revised = [&](index_t first, index_t end, V(&largest)[NV]) {
      const V by = V::all(products ? T(1) : static_cast<T>(step.scores.scale));
      if (modify.active())
        modify(S, first, end, largest);
      else
        revise({first, end, piece.v0, piece.v1}, largest, [&](V x, index_t, int) { return x * by; });
    };
    const auto hidden = [&](index_t first, index_t end) {
      V ignored[NV];
      std::fill_n(ignored, NV, minus_inf());
      if (!products) revised(first, end, ignored);
      hide({first, end, piece.v0, piece.v1}, most);
    };
    hidden(piece.first, all.begin);
    revised(all.begin, all.end, most);
    hidden(all.end, piece.end);
  }
  /// S <- weights of keys first .. end by way of raw scores.
  void weigh_raw(index_t first, index_t end, Range all, double scale, Running& w, Pending& p) const {
    if (first >= end) return;
    for_seen(first, end, [&](const Piece& piece) {
      V most[NV];
      raw_scores(piece, all, most);
      if (step.score != Score::softmax) return other_weights(piece, scale);
      bool above = w.far;
      for (int v = 0; v < NV; ++v) above |= any_above(most[v], w.limit[v]);
      if (above) raise_at(piece.first, most, scale, w, p);
      softmax(piece, scale, w, w.sums);
    });
  }

  /// S <- 0 up to a whole matrix tile, where these are the last keys and S has room for it. Returns the end of the
  /// tile: values have words up to there, of other keys or zeros (pair_columns).
  index_t fill_tile(index_t first, index_t keys) const {
    const index_t end = whole(keys + kTogether - 1);
    if (whole(first) != first || end / Mul::kDepth > K.rows()) return keys;
    std::fill(at(S, ceil_div(keys, Mul::kDepth), 0), at(S, end / Mul::kDepth, 0), T(0));
    return end;
  }

  /// How often something is fetched beside the products with this many keys and their values.
  index_t turns(index_t keys) const {
    constexpr index_t kRows = kTileRows<V, NV, Mul>, kStep = kLine * Mul::kDepth;
    if (MatrixTiles<Mul>) return ceil_div(keys, kRows);
    return ceil_div(keys, kRows) * ceil_div(K.cols(), kStep) + ceil_div(Vv.cols(), kRows) * ceil_div(keys, kStep);
  }

  void run() const {
    const Range seen = place.cols_of(Range{0, rows}, K.rows());
    const index_t start = whole(seen.begin), keys = seen.end;
    if (seen.size() == 0) return;
    modify.fetch_in(turns(keys - start));
    // Under a pattern all rows see all keys from the first to the last, or that is not looked into. Under another mask
    // what all rows see lies between the first key of the last row and the last key of the first row.
    Range all{std::min(keys, whole(place.cols_of(rows - 1, keys).begin + kTogether - 1)),
              place.cols_of(index_t{0}, keys).end};
    all.end = std::max(all.begin, all.end < keys ? whole(all.end) : keys);
    if (place.mask.pattern != nullptr)
      all = place.at(0, start).sees_all({rows, keys - start}) ? Range{start, keys} : Range{keys, keys};

    const bool raw = keeps_order();                    // are raw scores products with keys?
    const double scale = raw ? step.scores.scale : 1;  // of raw scores
    const bool statistics = step.score == Score::softmax;
    if constexpr (Mul::kDepth == 1)
      if (place.mask.pattern != nullptr && all.size() == 0 && statistics && raw && !drop.active() &&
          SparseRows<V>::pays(place, rows, K, Vv, seen.size()))
        return SparseRows<V>{Q, O, m, l, kWidth, rows, place, K, Vv, scale}.run();
    Running w;
    Pending p;
    p.first = start;
    if (statistics) w = running(scale);
    index_t first = start;  // to be weighed
    if (statistics && weighs_in_registers() && !drop.active()) first = weigh(start, keys, all, scale, w, p);
    weigh_raw(first, keys, all, scale, w, p);
    add_values(MatrixTiles<Mul> ? fill_tile(p.first, keys) : keys, p);
    for (int v = 0; statistics && v < NV; ++v) add_sums(v, V::all(T(1)), w.sums[v]);
  }
};

template <class V, class Mul, class FewRows>
bool online_attention(const OnlineAttention& step, std::span<const View<typename V::T>> x) {
  const auto &S = x[0], &O = x[1], &m = x[2], &l = x[3], &Q = x[4], &K = x[5], &Vv = x[6], &bias = x[7], &slopes = x[8];
  if (Q.rows() <= kFewRows<V> && !Q.packed()) return few_queries_of<V, Mul, FewRows>(step, x);
  if (S.layout != OnlineAttention::S || O.layout != OnlineAttention::O || Q.layout != OnlineAttention::Q) return false;
  if (K.col_stride != 1 || Vv.col_stride != 1) return false;
  if constexpr (Mul::kDepth > 1)
    if (K.layout != Layout::bf16_rows || Vv.layout != Mul::kValues) return false;
  const typename Mul::Session session(K.cols() / Mul::kDepth);
  const index_t depth = ceil_div(Q.cols(), Mul::kDepth);  // rows of a panel of Q
  const Place place = simplest(step.scores.place, {Q.rows(), K.rows()});
  const auto fetches =
      FetchAhead::of<typename Mul::Element>(K.rows(), K.cols(), K.row_stride, step.next, V::kAccumulators);
  for_panels<V>({Q.rows(), 1}, [&](index_t first, index_t rows, index_t width, index_t) {
    // Score functions without statistics have none to point at.
    const auto statistic = [&](const View<typename V::T>& x) { return x.words() > 0 ? x.data + first : nullptr; };
    // The panel's first query has not seen a key yet.
    const bool begins = m.words() > 0 && m[first] == -std::numeric_limits<typename V::T>::infinity();
    const Rows<typename V::T> stored{begins && O.other_form != nullptr ? O.other_form + first * O.row_stride : nullptr,
                                     O.row_stride, 1};
    const auto run = [&]<int NV>(Height<NV>) {
      // The next bias is that of the panel below, or of the first panel and the keys of the next step.
      const bool more = first + width < Q.rows();
      const index_t next = more ? width * bias.row_stride : step.next - first * bias.row_stride;
      ModifyPanel<V, NV> modify(step.modify, step.scores.scale, bias, slopes, first, rows, next);
      DropPanel<V, NV> drop(step.drop, first);
      AttentionPanel<V, NV, Mul>{step,
                                 session.multiply(),
                                 Q.data + first * depth,
                                 O.data + first * O.cols(),
                                 S.data,
                                 statistic(m),
                                 statistic(l),
                                 rows,
                                 place.at(first, 0),
                                 K,
                                 Vv,
                                 modify,
                                 drop,
                                 stored,
                                 first == 0 ? fetches : FetchAhead{}}
          .run();
    };
    switch (width / V::kLanes) {
      case 1:
        return run(Height<1>{});
      case 2:
        return run(Height<2>{});
      case 3:
        if constexpr (kWidestPanel<V> >= 3) return run(Height<3>{});
        [[fallthrough]];
      default:
        if constexpr (kWidestPanel<V> >= 4) return run(Height<4>{});
    }
  });
  return true;
}

/// O <- 0, m <- -inf, l <- 0 for a packed O.
template <class V>
bool softmax_init(const SoftmaxInit&, std::span<const View<typename V::T>> x) {
  const auto &O = x[0], &m = x[1], &l = x[2];
  if (O.layout != OnlineAttention::O) return false;
  for_panels<V>(O.shape, [&](index_t, index_t, index_t width, index_t offset) {
    std::fill_n(O.data + offset, width * O.cols(), typename V::T(0));
  });
  StatisticsInit{}.run<typename V::T>(m, l);
  return true;
}

/// O <- O / l, m <- m + log l for a packed O.
template <class V>
bool softmax_finish(const SoftmaxFinish& finish, std::span<const View<typename V::T>> x) {
  using T = typename V::T;
  const auto &O = x[0], &m = x[1], &l = x[2];
  if (O.layout != OnlineAttention::O) return false;
  if (finish.score != Score::softmax) return true;
  for_panels<V>(O.shape, [&](index_t first, index_t rows, index_t width, index_t offset) {
    for (index_t r = 0; r < width; r += V::kLanes) {
      const V sum = V::load_first(l.data + first + r, std::clamp<index_t>(rows - r, 0, V::kLanes));
      const V by = V::all(T(1)) / sum;
      for (index_t t = 0; t < O.cols(); ++t) {
        T* const o = O.data + offset + t * width + r;
        where_equal(sum, V::zero(), V::zero(), V::load(o) * by).store(o);
      }
    }
  });
  for (index_t r = 0; r < m.rows(); r += V::kLanes) {
    const index_t n = std::min(V::kLanes, m.rows() - r);
    const V top = V::load_first(m.data + r, n), sum = V::load_first(l.data + r, n);
    where_equal(sum, V::zero(), top, top + log(sum)).store_first(m.data + r, n);
  }
  return true;
}

}  // namespace redblue::kernel::simd
