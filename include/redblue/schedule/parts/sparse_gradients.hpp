#pragma once
#include "redblue/schedule/backward/operands.hpp"
#include "redblue/schedule/parts/index_words.hpp"
#include "redblue/schedule/parts/sparse.hpp"

/// What the backward schedules under a pattern share: probabilities of the pairs, products with them, and a pass over
/// blocks of keys that the rows of a pattern meet (theory notes 2g).
namespace redblue::schedule {

/// P and dS are formed by SDDMM; dV = P^T dO, dQ = dS K and dK = dS^T Q are SpMM.
inline PairCost pair_weights_cost(const Sizes& x) {
  return {SlowArray::P, SlowArray::Q, SlowArray::K, x.d, 0, x.word(SlowArray::lse)};
}
inline PairCost pair_gradients_cost(const Sizes& x) {
  return {SlowArray::P, SlowArray::dO, SlowArray::V, x.d_v, 0, std::max(x.word(SlowArray::D), x.word(SlowArray::P))};
}
inline GemmCost sparse_value_gradients_cost(const Sizes& x) {
  return {SlowArray::dV, SlowArray::P, SlowArray::dO, x.n_k, x.n_q, x.d_v, Entries::of_transposed_pairs(x)};
}
inline GemmCost sparse_query_gradients_cost(const Sizes& x) {
  return {SlowArray::dQ, SlowArray::P, SlowArray::K, x.n_q, x.n_k, x.d, Entries::of_pairs(x)};
}
inline GemmCost sparse_key_gradients_cost(const Sizes& x) {
  return {SlowArray::dK, SlowArray::P, SlowArray::Q, x.n_k, x.n_q, x.d, Entries::of_transposed_pairs(x)};
}

/// A B^T on the pairs, tile by tile: of_rows(w, T, rows, box) for neighbours that have pairs in it, then
/// of_words(w, part of T, block of P) for each row before it is written.
template <class M, class OfRows, class OfWords>
void for_pair_tiles(M& m, const BackwardOperands& x, PairTiling t, const SlowMatrix& A, const SlowMatrix& B,
                    const OfRows& of_rows, const OfWords& of_words) {
  const Blocks blocks = x.shape.pairs().row_blocks(std::min(t.a, x.shape.n_q));
  m.each(blocks.count(), [&](auto& w, index_t i) {
    for_pair_tiles(*x.shape.pattern, blocks(i), t.room, [&](const PairTile& tile) {
      pair_tile(w, x.shape, x.P.array, tile, A, B, [&](const auto& T, const auto& rows, const auto& box) {
        for (const Range& run : rows) of_rows(w, T, run, box(run));
        for_pair_rows(x.shape, tile, x.P, [&](index_t first, const Block& row) {
          const Arg part = T.rows(first, row.shape.rows);
          of_words(w, part, row);
          w.store(part, row);
        });
      });
    });
  });
}

/// P = exp(scale Q K^T - lse): reads SUM over tiles of (d + 1) r + d c, writes nnz.
inline Io pair_weights_io(const Sizes& x, PairTiling t) {
  const PairCost::Sums sums = pair_weights_cost(x).sums(x, t);
  return pair_weights_cost(x).io(sums) + Io().read(SlowArray::lse, sums.rows).write(SlowArray::P, x.nnz());
}
template <class M>
void pair_weights(M& m, const BackwardOperands& x, PairTiling t) {
  for_pair_tiles(
      m, x, t, x.Q, x.K,
      [&](auto& w, const auto& T, Range rows, const auto& box) {
        w.compute(kernel::PairWeights(x.scale, box), T, w.stream(x.lse.rows(rows)));
      },
      [](auto&, const auto&, const Block&) {});
}

/// P <- dS = scale P o (dO V^T - D): reads SUM over tiles of (d_v + 1) r + d_v c, and nnz; writes nnz.
inline Io pair_gradients_io(const Sizes& x, PairTiling t) {
  const PairCost::Sums sums = pair_gradients_cost(x).sums(x, t);
  return pair_gradients_cost(x).io(sums) +
         Io().read(SlowArray::D, sums.rows).read(SlowArray::P, x.nnz()).write(SlowArray::P, x.nnz());
}
template <class M>
void pair_gradients(M& m, const BackwardOperands& x, PairTiling t) {
  for_pair_tiles(
      m, x, t, x.dO, x.V,
      [&](auto& w, const auto& T, Range rows, const auto& box) {
        w.compute(kernel::PairSubtract(box), T, w.stream(x.D.rows(rows)));
      },
      [&](auto& w, const Arg& part, const Block& P) { w.compute(kernel::ScaleByWeights{x.scale}, part, w.stream(P)); });
}

/// The largest words(keys, pairs of a query) over blocks of b keys.
template <class BlockWords>
Words sparse_pass_footprint(const Sizes& x, index_t b, const BlockWords& words) {
  const index_t keys = std::min(b, x.n_k), ragged = x.n_k % keys;
  const MostInBlock most = most_in_block(x.pattern->rows(), x.n_k, keys, false);
  return std::max(words(keys, most.whole), ragged > 0 ? words(ragged, most.ragged) : Words(0));
}

/// f(query, its words of P in the block J) for the queries that see a key of J, one by one.
template <class F>
void for_rows_of(const BackwardOperands& x, Range J, const F& f) {
  const Pattern& pattern = *x.shape.pattern;
  for (const Range& run : union_of(pattern.keys(), J))
    for (index_t i = run.begin; i < run.end; ++i)
      f(i, x.P.block(Range{pattern.pair_at(i, J.begin), pattern.pair_at(i, J.end)}, {0, 1}));
}
/// The pairs of one query and a block of keys, as a box.
inline kernel::PairBox box_of_row(const Sizes& s, index_t i, Range J) {
  return {{s.mask, i, J.begin}, 1, J.size(), 0, 1};
}

}  // namespace redblue::schedule
