#pragma once
#include "redblue/core/machine.hpp"
#include "redblue/kernel/dense.hpp"
#include "redblue/schedule/parts/limits.hpp"

/// C = A B with one resident tile of C and rank-one updates: the shorter of A[I,t] and B[t,J] is resident, the longer
/// streams past, or, where words differ in width, the one that takes more room does. Optimal to leading order:
/// 2 m k n / sqrt(M) words (Smith et al. 2017, arXiv 1702.02017).
///   reads ceil(n/b2) m k + ceil(m/b1) k n   writes m n   footprint b1 b2 + min(b1, b2) + 1
namespace redblue::schedule {

/// A matrix or its transpose, as a factor of a product.
struct Factor {
  SlowMatrix matrix;
  bool transposed = false;

  constexpr index_t rows() const { return transposed ? matrix.shape.cols : matrix.shape.rows; }
  constexpr index_t cols() const { return transposed ? matrix.shape.rows : matrix.shape.cols; }
  constexpr Block block(index_t row, index_t col, Shape s) const {
    return transposed ? matrix.block(col, row, {s.cols, s.rows}) : matrix.block(row, col, s);
  }
};
constexpr Factor transposed(const SlowMatrix& m) { return {m, true}; }

struct GemmTiling {
  index_t b1 = 1;  ///< rows of C at a time
  index_t b2 = 1;  ///< columns of C at a time
};

/// The factors of a rank-one update of an a x b tile: one is resident while the other streams past.
struct RankOne {
  Words column;  ///< A[I,t] resident, B[t,J] streaming
  Words row;     ///< B[t,J] resident, A[I,t] streaming

  RankOne(const Residence& fast, SlowArray A, SlowArray B, index_t a, index_t b)
      : column(fast.tile(A, a, 1) + fast.word(B)), row(fast.tile(B, 1, b) + fast.word(A)) {}
  bool column_stays() const { return column <= row; }
  Words least() const { return std::min(column, row); }
};

/// What C (m x n) = A (m x k) B (k x n) costs.
struct GemmCost {
  SlowArray C, A, B;
  index_t m, k, n;

  /// Second buffers hold the next column or row and the next streamed word.
  Phase phase(const Sizes& x, GemmTiling t) const {
    const index_t b1 = std::min(t.b1, m), b2 = std::min(t.b2, n);
    const Words factors = RankOne(x.fast, A, B, b1, b2).least();
    return {x.tile(C, b1, b2) + factors, factors};
  }
  Io io(GemmTiling t) const {
    return Io().read(A, c(n, t.b2) * m * k).read(B, c(m, t.b1) * k * n).write(C, Words(m) * n);
  }
  Words macs() const { return Words(m) * k * n; }
  /// The tiling that moves the fewest words (or the cheapest, if words have prices).
  std::optional<GemmTiling> choose(const Sizes& x, const Limits& limits, index_t step1, index_t step2) const {
    const auto best =
        best_tile(m, n, step1, step2, limits.price.reading(A) * m * k, limits.price.reading(B) * k * n,
                  limits.M / x.word(C), [&](index_t b1, index_t b2) { return limits.fit(phase(x, {b1, b2})); });
    if (!best) return std::nullopt;
    return GemmTiling{(*best)[0], (*best)[1]};
  }
};

/// For each t: apply(A[I,t], B[t,J]), one resident, the other streamed. T's corner is (row, col) of the product.
template <class W, class Apply>
void for_rank_one(W& w, const Residence& fast, Shape T, const Factor& A, index_t row, const Factor& B, index_t col,
                  const Apply& apply) {
  const bool column_stays = RankOne(fast, A.matrix.array, B.matrix.array, T.rows, T.cols).column_stays();
  for (index_t t = 0; t < A.cols(); ++t) {
    const Block a = A.block(row, t, {T.rows, 1}), b = B.block(t, col, {1, T.cols});
    if (column_stays) {
      const auto a_t = w.load(a);
      apply(a_t, w.stream(b));
    } else {
      const auto b_t = w.load(b);
      apply(w.stream(a), b_t);
    }
  }
}

/// T += A[I,:] B[:,J]
template <class W>
void accumulate_product(W& w, const Residence& fast, const Tile<W>& T, const Factor& A, index_t row, const Factor& B,
                        index_t col) {
  const kernel::Gemm rank_one{A.transposed, B.transposed};
  for_rank_one(w, fast, T.shape(), A, row, B, col, [&](const auto& a, const auto& b) { w.compute(rank_one, T, a, b); });
}

/// C = post(A B), post working on each finished tile.
template <class M, class Post>
void gemm(M& m, const Residence& fast, const SlowMatrix& C, const Factor& A, const Factor& B, GemmTiling t,
          const Post& post) {
  const auto blocks = tiled(C, t.b1, t.b2);
  m.each(blocks.rows(), [&](auto& w, index_t i) {
    for (index_t j = 0; j < blocks.cols(); ++j) {
      const Block C_ij = blocks(i, j);
      const auto T = w.alloc(C_ij);
      w.compute(kernel::Zero{}, T);
      accumulate_product(w, fast, T, A, C_ij.row, B, C_ij.col);
      post(w, T);
      w.store(T, C_ij);
    }
  });
}

/// C = A B.
template <class M>
void gemm(M& m, const Residence& fast, const SlowMatrix& C, const Factor& A, const Factor& B, GemmTiling t) {
  gemm(m, fast, C, A, B, t, [](auto&, const auto&) {});
}

}  // namespace redblue::schedule
