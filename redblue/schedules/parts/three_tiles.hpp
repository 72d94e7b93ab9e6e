#pragma once
#include "redblue/schedules/parts/gemm.hpp"

/// Products as the papers print them, with three B x B tiles resident: one of each factor and one of the result. The
/// words are those of gemm with b1 = b2 = B, but B is at most sqrt(M/3) where gemm has sqrt(M).
namespace redblue::schedule {

/// A transposed factor is loaded as it lies.
inline Phase three_tile_phase(const Sizes& x, const GemmCost& g, index_t side, bool A_transposed, bool B_transposed) {
  const Words a = std::min(side, g.m), b = std::min(side, g.n), depth = std::min(side, g.k);
  const Words pair = (A_transposed ? x.tile(g.A, depth, a) : x.tile(g.A, a, depth)) +
                     (B_transposed ? x.tile(g.B, b, depth) : x.tile(g.B, depth, b));
  return {x.tile(g.C, a, b) + pair, pair};
}

/// The side B = floor(sqrt(M / 4)) that the papers print, with M what is left of fast memory, in tiles of such words;
/// less where fits(B) or the multiples ask for it. The smallest side may do with less than a quarter of M for a tile.
template <class Fits>
std::optional<index_t> paper_side(const Sizes& x, const Limits& limits, Words word, const Fits& fits) {
  const Words M = limits.M - limits.reserve;
  const SquareSides sides(limits.multiple, x);
  const index_t least = sides.smallest();
  const index_t most =
      largest_tile(sides.longest(), 1, [&](index_t b) { return Words(4) * b * b * word <= M && fits(b); });
  if (const index_t B = sides.largest(most); B >= least) return B;
  return fits(least) ? std::optional(least) : std::nullopt;
}

/// For each t: apply(A[I,t], B[t,J]), both loaded. T's corner is (row, col) of the product.
template <class W, class Apply>
void for_tile_pairs(W& w, Shape T, const Factor& A, index_t row, const Factor& B, index_t col, index_t side,
                    const Apply& apply) {
  for (index_t t = 0; t < A.cols(); t += side) {
    const index_t depth = std::min(side, A.cols() - t);
    const auto A_t = w.load(A.block(row, t, {T.rows, depth})), B_t = w.load(B.block(t, col, {depth, T.cols}));
    apply(A_t, B_t);
  }
}

/// T += A[I,:] B[:,J]
template <class W>
void add_tile_pairs(W& w, const Tile<W>& T, const Factor& A, index_t row, const Factor& B, index_t col, index_t side) {
  const kernel::Gemm product{A.transposed, B.transposed};
  for_tile_pairs(w, T.shape(), A, row, B, col, side,
                 [&](const auto& a, const auto& b) { w.compute(product, T, a, b); });
}

/// C = A B.
template <class M>
void three_tile_gemm(M& m, const SlowMatrix& C, const Factor& A, const Factor& B, index_t side) {
  const auto blocks = tiled(C, side, side);
  m.each(blocks.rows(), [&](auto& w, index_t i) {
    for (index_t j = 0; j < blocks.cols(); ++j) {
      const auto T = w.alloc(blocks(i, j));
      w.compute(kernel::Zero{}, T);
      add_tile_pairs(w, T, A, blocks(i, j).row, B, blocks(i, j).col, side);
      w.store(T, blocks(i, j));
    }
  });
}

}  // namespace redblue::schedule
