#pragma once
#include "redblue/kernels/simd/exp.hpp"
#include "redblue/language/types.hpp"

/// The one loop that all products are made of: a register tile of R rows and NV vectors.
///
///   C(r, :) = SUM_t A(r, t) B(t, :)
///
/// A word of A is broadcast, a row of B is NV vectors. The caller chooses which operands are queries, keys and
/// features, so that the result of one step lies as the next step reads it, and nothing is transposed. (Matrix tiles,
/// whose operands lie in other ways, are told apart below.)
namespace redblue::kernel::simd {

/// R rows of A at one distance, each step one word further. Eight rows are reached from one pointer.
template <class T>
struct Rows {
  const T* p;
  index_t stride;
  index_t step;

  [[gnu::always_inline]] const T* at(int r) const { return p + r * stride; }
  [[gnu::always_inline]] void advance() { p += step; }
  Rows from(index_t r) const { return {p + r * stride, stride, step}; }
  Rows after(index_t t) const { return {p + t * step, stride, step}; }
};

/// Rows at a distance that the compiler knows, so that no row of a tall register tile needs an address of its
/// own.
template <class T, index_t kStride>
struct RowsApart {
  const T* p;

  [[gnu::always_inline]] const T* at(int r) const { return p + r * kStride; }
  [[gnu::always_inline]] void advance() { ++p; }
  RowsApart from(index_t r) const { return {p + r * kStride}; }
  RowsApart after(index_t t) const { return {p + t}; }
};

/// Rows of A transposed: the words of one step lie side by side.
template <class T>
struct Side {
  const T* p;
  index_t step;

  [[gnu::always_inline]] const T* at(int r) const { return p + r; }
  [[gnu::always_inline]] void advance() { p += step; }
  Side from(index_t r) const { return {p + r, step}; }
  Side after(index_t t) const { return {p + t * step, step}; }
};

/// Rows of a register tile that is NV vectors wide.
template <class V, int NV>
inline constexpr int kRows = V::kAccumulators / NV;

/// A word of A times a vector of B.
template <class V>
struct Multiply {
  static constexpr index_t kDepth = 1;  ///< words of k in a step
  using Element = typename V::T;        ///< of A
  struct Session {                      ///< lives while products are formed; it is told the steps of most
    explicit Session(index_t) {}
    Multiply multiply() const { return {}; }
  };
  using B = V;
  [[gnu::always_inline]] static B broadcast(const typename V::T* a) { return V::all(*a); }
  [[gnu::always_inline]] static B load(const typename V::T* b) { return V::load(b); }
  [[gnu::always_inline]] static V add(B a, B b, V c) { return fma(a, b, c); }
  /// 2^x, as exactly as A holds it.
  [[gnu::always_inline]] static V exp2(V x) { return simd::exp2(x); }
};

/// Vector v of a row of B, all its lanes.
template <class V, class Mul>
struct WholeVectors {
  [[gnu::always_inline]] typename Mul::B operator()(const typename V::T* row, int v) const {
    return Mul::load(row + v * V::kLanes);
  }
};

/// c += A B over k steps. load(row, v) brings vector v of a row of B.
template <class V, int R, int NV, class A, class Mul = Multiply<V>, class Load = WholeVectors<V, Mul>>
[[gnu::always_inline]] inline void multiply(V (&c)[R][NV], A a, const typename V::T* b, index_t ldb, index_t k,
                                            Mul = {}, const Load& load = {}) {
  for (index_t t = 0; t < k; ++t) {
    typename Mul::B row[NV];
#pragma GCC unroll 4
    for (int v = 0; v < NV; ++v) row[v] = load(b, v);
#pragma GCC unroll 24
    for (int r = 0; r < R; ++r) {
      const typename Mul::B x = Mul::broadcast(a.at(r));
#pragma GCC unroll 4
      for (int v = 0; v < NV; ++v) c[r][v] = Mul::add(x, row[v], c[r][v]);
    }
    a.advance();
    b += ldb;
  }
}

template <class V, int R, int NV>
[[gnu::always_inline]] inline void clear(V (&c)[R][NV]) {
#pragma GCC unroll 24
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
    for (int v = 0; v < NV; ++v) c[r][v] = V::zero();
}

/// Does an instruction multiply matrix tiles? A tile has Mul::kTile rows. It takes Mul::kTile steps; the steps that are
/// left at the end may have tiles of their own.
template <class Mul>
concept MatrixTiles = requires { Mul::kTile; };

/// Rows of a tile of sums that is NV vectors wide.
template <class V, int NV, class Mul>
inline constexpr int kTileRows = kRows<V, NV>;
template <class V, int NV, MatrixTiles Mul>
inline constexpr int kTileRows<V, NV, Mul> = Mul::kTile;

/// Are R rows of sums those of a matrix tile?
template <class Mul, int R>
inline constexpr bool kIsMatrixTile = false;
template <MatrixTiles Mul, int R>
inline constexpr bool kIsMatrixTile<Mul, R> = R == Mul::kTile;

/// c <- [begun +] A B over k steps, as many of them as can be by matrix tiles. Rows of `begun`, if there are such, are
/// `apart` words apart. Matrix tiles fetch the lines `ahead` bytes after those of A, if that is above 0.
template <class V, int R, int NV, class A, class Mul>
[[gnu::always_inline]] inline void form(V (&c)[R][NV], const A& a, const typename V::T* b, index_t ldb, index_t k,
                                        Mul mul, const typename V::T* begun = nullptr, index_t apart = 0,
                                        index_t ahead = 0) {
  if constexpr (kIsMatrixTile<Mul, R>) {
    const index_t done = mul.steps_in_tiles(k);
    mul.product(c, a.p, a.stride * index_t{sizeof *a.p}, b, ldb, done, begun, apart, ahead);
    if (done < k) multiply(c, a.after(done), b + done * ldb, ldb, k - done, mul);
  } else {
    clear(c);
    if (begun != nullptr)
#pragma GCC unroll 24
      for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
        for (int v = 0; v < NV; ++v) c[r][v] = V::load(begun + r * apart + v * V::kLanes);
    multiply(c, a, b, ldb, k, mul);
  }
}

/// f(row, std::integral_constant-like R) for blocks of rows that cover 0 .. rows: full register tiles, then 8, 4, 2, 1.
template <int R>
struct Height {
  static constexpr int value = R;
};
template <int R, class F>
[[gnu::always_inline]] inline void for_row_blocks(index_t rows, const F& f) {
  index_t r = 0;
  for (; r + R <= rows; r += R) f(r, Height<R>{});
  if constexpr (R > 8)
    for (; r + 8 <= rows; r += 8) f(r, Height<8>{});
  if constexpr (R > 4)
    if (r + 4 <= rows) f(r, Height<4>{}), r += 4;
  if constexpr (R > 2)
    if (r + 2 <= rows) f(r, Height<2>{}), r += 2;
  if (r < rows) f(r, Height<1>{}), r += 1;
}

}  // namespace redblue::kernel::simd
