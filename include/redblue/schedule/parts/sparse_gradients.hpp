#pragma once
#include "redblue/schedule/backward/operands.hpp"
#include "redblue/schedule/parts/index_words.hpp"
#include "redblue/schedule/parts/sparse.hpp"

/// What the backward schedules under a pattern share: probabilities of the pairs, products with them, and a pass over
/// blocks of keys that the rows of a pattern meet (theory notes 2g).
namespace redblue::schedule {

/// P and dS are formed by SDDMM; dV = P^T dO, dQ = dS K and dK = dS^T Q are SpMM.
inline PairCost pair_weights_cost(const Sizes& x) {
  return {SlowArray::P, SlowArray::Q, SlowArray::K, x.d, 0, passing_bias(x, x.word(SlowArray::lse)), true};
}
inline PairCost pair_gradients_cost(const Sizes& x) {
  return {SlowArray::P,
          SlowArray::dO,
          SlowArray::V,
          x.d_v,
          0,
          std::max({x.word(SlowArray::D), x.word(SlowArray::P), passing_pair_bias_gradient(x)})};
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

/// f(tile, T, rows, box) for tiles T = A B^T of the pairs of some queries: `rows` are those that have pairs in the
/// tile, as runs, and box(run) is its box with the run as its window.
template <class W, class F>
void for_pair_products(W& w, const BackwardOperands& x, Range I, index_t room, const SlowMatrix& A, const SlowMatrix& B,
                       const F& f) {
  for_pair_tiles(*x.shape.pattern, I, room, [&](const PairTile& tile) {
    pair_tile(w, x.shape, x.P.array, tile, A, B,
              [&](const auto& T, const auto& rows, const auto& box) { f(tile, T, rows, box); });
  });
}

/// P = exp(S - lse): reads SUM over tiles of (d + 1) r + d c, writes nnz.
inline Io pair_weights_io(const Sizes& x, PairTiling t) {
  const PairCost::Sums sums = pair_weights_cost(x).sums(x, t);
  return pair_weights_cost(x).io(x, t, sums) + Io().read(SlowArray::lse, sums.rows).write(SlowArray::P, x.nnz());
}
template <class M>
void pair_weights(M& m, const BackwardOperands& x, PairTiling t) {
  const Blocks blocks = x.shape.pairs().row_blocks(std::min(t.a, x.shape.n_q));
  m.each(blocks.count(), [&](auto& w, index_t i) {
    const Slopes slopes(w, x);
    for_pair_products(
        w, x, blocks(i), t.room, x.Q, x.K, [&](const PairTile& tile, const auto& T, const auto& rows, const auto& box) {
          pair_scores(w, x, box(tile.rows), T, kNoWords, slopes.arg());
          for (const Range& run : rows) w.compute(kernel::PairWeights(box(run)), T, w.stream(x.lse.rows(run)));
          for_pair_rows(x.shape, tile, x.P,
                        [&](index_t first, const Block& row) { w.store(T.rows(first, row.shape.rows), row); });
        });
  });
}

/// P <- dS = scale P o (dO V^T - D): reads SUM over tiles of (d_v + 1) r + d_v c, and nnz; writes nnz.
inline Io pair_gradients_io(const Sizes& x, PairTiling t) {
  const PairCost::Sums sums = pair_gradients_cost(x).sums(x, t);
  return pair_gradients_cost(x).io(x, t, sums) + bias_gradient_io(x, x.nnz(), sums.keys) +
         Io().read(SlowArray::D, sums.rows).read(SlowArray::P, x.nnz()).write(SlowArray::P, x.nnz());
}
template <class M>
void pair_gradients(M& m, const BackwardOperands& x, PairTiling t) {
  const Blocks blocks = x.shape.pairs().row_blocks(std::min(t.a, x.shape.n_q));
  for_blocks_of_queries(m, x, blocks.count(), [&](auto& w, index_t i) {
    for_pair_products(w, x, blocks(i), t.room, x.dO, x.V,
                      [&](const PairTile& tile, const auto& T, const auto& rows, const auto& box) {
                        drop_pairs(w, x, box(tile.rows), T);
                        for (const Range& run : rows)
                          w.compute(kernel::PairSubtract(box(run)), T, w.stream(x.D.rows(run)));
                        for_pair_rows(x.shape, tile, x.P, [&](index_t first, const Block& row) {
                          const Arg part = T.rows(first, row.shape.rows);
                          w.compute(kernel::ScaleByWeights{x.scale}, part, w.stream(row));
                          w.store(part, row);
                        });
                        if (x.shape.modifiers.bias_gradient) add_pair_bias_gradient(w, x, box(tile.rows), T);
                      });
  });
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

/// dS of one query and a block of keys from dP and the weights P; what it adds to dBias goes to slow memory, or to the
/// row `dBias_j` that all queries share.
template <class W, class Tile, class Row>
void pair_score_gradients(W& w, const BackwardOperands& x, const kernel::PairBox& box, const Tile& dP, const Tile& P,
                          const Row& dBias_j) {
  drop_pairs(w, x, box, dP);
  w.compute(kernel::PairSubtract(box), dP, w.stream(x.D.rows({box.place.row, box.place.row + 1})));
  w.compute(kernel::ScaleByWeights{x.scale}, dP, P);  // dS = scale P o (dP - D)
  if (!x.shape.modifiers.bias_gradient) return;
  if (x.bias_of_keys)
    w.compute(kernel::PairBiasGradient(1 / x.scale, with_keys(box)), dBias_j, dP);
  else
    add_pair_bias_gradient(w, x, box, dP);
}
/// A matrix of weights in slow memory has no room for the derivative of a softcap.
inline std::optional<std::string_view> one_matrix_of_weights(const Sizes& x) {
  if (x.modifiers.softcap > 0) return "keeps one matrix of weights: softcap needs two";
  return std::nullopt;
}

}  // namespace redblue::schedule
