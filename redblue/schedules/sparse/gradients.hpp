#pragma once
#include "redblue/schedules/operands/backward.hpp"
#include "redblue/schedules/pairs/index_words.hpp"
#include "redblue/schedules/pairs/rows.hpp"

/// What the backward schedules under a pattern share: probabilities of the pairs, products with them, and a pass over
/// blocks of keys that the rows of a pattern meet (theory notes 2g).
namespace redblue::schedule {

/// P and dS are formed by SDDMM; dV = P^T dO, dQ = dS K and dK = dS^T Q are SpMM.
inline PairCost pair_weights_cost(const Sizes& x) {
  return {.T = SlowArray::P, .A = SlowArray::Q, .B = SlowArray::K, .w = x.d, .statistic = SlowArray::lse};
}
inline PairCost pair_gradients_cost(const Sizes& x) {
  return {
      .T = SlowArray::P, .A = SlowArray::dO, .B = SlowArray::V, .w = x.d_v, .statistic = SlowArray::D, .scores = false};
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

/// P of one query and a block of keys, whose tile has room for its pairs; F becomes the derivative of the softcap,
/// where it has words.
template <class W, class Tile, class Query, class Derivative>
void pair_weights_of_row(W& w, const BackwardOperands& x, const kernel::PairBox& box, const Tile& P, const Tile& K,
                         const Query& Q_i, const Derivative& F, const Tile& bias, const Arg& slopes) {
  w.compute(kernel::PairScores{box.place}, P, K, Q_i);
  begin_pair_scores(w, x, box, P, F, slopes);
  if (x.bias_of_keys)
    w.compute(kernel::PairBias(with_keys(box)), P, bias);
  else
    add_passing_bias(w, x, box, P);
  w.compute(kernel::PairWeights(box), P, w.stream(x.lse.rows({box.place.row, box.place.row + 1})));
}
/// dS of one query and a block of keys from dP and the weights P; what it adds to dBias goes to slow memory, or to the
/// row `dBias_j` that all queries share.
template <class W, class Tile, class Weights, class Row>
void pair_score_gradients(W& w, const BackwardOperands& x, const kernel::PairBox& box, const Tile& dP, const Weights& P,
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

/// A statistic of rows: resident beside a panel of them, else it passes.
template <class W>
class RowStatistic {
 public:
  RowStatistic(W& w, const SlowMatrix& matrix, Range I, const PairTiling& t)
      : w_(w),
        matrix_(matrix),
        I_(t.form() == Panel::rows ? I : Range{I.begin, I.begin}),
        tile_(w.load(matrix.rows(I_))) {}
  /// The kernel works on a tile with the statistic of these rows.
  template <class Kernel, class T>
  void compute(const Kernel& kernel, const T& tile, Range rows) const {
    if (I_.size() == 0)
      w_.compute(kernel, tile, w_.stream(matrix_.rows(rows)));
    else
      w_.compute(kernel, tile, tile_.rows(rows.begin - I_.begin, rows.size()));
  }

 private:
  W& w_;
  const SlowMatrix& matrix_;
  Range I_;
  Tile<W> tile_;
};

/// P = exp(S - lse): reads (w + 1) words of the rows and w of the keys that tiles or panels count, writes nnz.
inline Io pair_weights_io(const Sizes& x, PairTiling t) {
  return pair_weights_cost(x).io(x, t) + Io().write(SlowArray::P, x.nnz());
}
/// P with panels of b keys.
template <class M>
void pair_weights_by_keys(M& m, const BackwardOperands& x, index_t b) {
  const Blocks blocks = x.shape.pairs().key_blocks(std::min(b, x.shape.n_k));
  m.each(blocks.count(), [&](auto& w, index_t j) {
    const Range J = blocks(j);
    const auto K_j = w.load(x.K.rows(J)), bias_j = w.load(x.shared_bias(J));
    const Slopes slopes(w, x);
    for_rows_of(x, J, [&](index_t i, const Block& words) {
      const auto P_ij = w.alloc(words);
      pair_weights_of_row(w, x, box_of_row(x.shape, i, J), P_ij, K_j, w.stream(x.Q.rows({i, i + 1})), kNoWords, bias_j,
                          slopes.arg());
      w.store(P_ij, words);
    });
  });
}
template <class M>
void pair_weights(M& m, const BackwardOperands& x, PairTiling t) {
  const Sizes& s = x.shape;
  if (t.form() == Panel::keys) return pair_weights_by_keys(m, x, t.b);
  const Blocks blocks = s.pairs().row_blocks(std::min(t.a, s.n_q));
  m.each(blocks.count(), [&](auto& w, index_t i) {
    const Slopes slopes(w, x);
    const RowStatistic lse(w, x.lse, blocks(i), t);
    for_pair_products(w, s, x.P.array, blocks(i), t, x.Q, x.K,
                      [&](const PairTile& tile, const auto& T, const auto& rows, const auto& box) {
                        pair_scores(w, x, box(tile.rows), T, kNoWords, slopes.arg());
                        for (const Range& run : rows) lse.compute(kernel::PairWeights(box(run)), T, run);
                        for_pair_rows(s, tile, x.P, [&](index_t first, const Block& row) {
                          w.store(T.rows(first, row.shape.rows), row);
                        });
                      });
  });
}

/// P <- dS = scale P o (dO V^T - D): reads w + 1 words of rows and w of keys likewise, and nnz; writes nnz.
inline Io pair_gradients_io(const Sizes& x, PairTiling t) {
  return pair_gradients_cost(x).io(x, t) + Io().read(SlowArray::P, x.nnz()).write(SlowArray::P, x.nnz());
}
/// dS with panels of b values.
template <class M>
void pair_gradients_by_keys(M& m, const BackwardOperands& x, index_t b) {
  const Blocks blocks = x.shape.pairs().key_blocks(std::min(b, x.shape.n_k));
  m.each(blocks.count(), [&](auto& w, index_t j) {
    const Range J = blocks(j);
    const auto V_j = w.load(x.V.rows(J)), dBias_j = w.load(x.shared_gradient(x.dBias, J));
    for_rows_of(x, J, [&](index_t i, const Block& words) {
      const auto dP = w.alloc(words);
      const kernel::PairBox box = box_of_row(x.shape, i, J);
      w.compute(kernel::PairScores{box.place}, dP, V_j, w.stream(x.dO.rows({i, i + 1})));
      pair_score_gradients(w, x, box, dP, w.stream(words), dBias_j);
      w.store(dP, words);
    });
    if (x.keeps_bias_gradient) w.store(dBias_j, x.shared_gradient(x.dBias, J));
  });
}
template <class M>
void pair_gradients(M& m, const BackwardOperands& x, PairTiling t) {
  const Sizes& s = x.shape;
  if (t.form() == Panel::keys) return pair_gradients_by_keys(m, x, t.b);
  const Blocks blocks = s.pairs().row_blocks(std::min(t.a, s.n_q));
  for_blocks_of_queries(m, x.shape, blocks.count(), [&](auto& w, index_t i) {
    const RowStatistic D(w, x.D, blocks(i), t);
    for_pair_products(w, s, x.P.array, blocks(i), t, x.dO, x.V,
                      [&](const PairTile& tile, const auto& T, const auto& rows, const auto& box) {
                        drop_pairs(w, x, box(tile.rows), T);
                        for (const Range& run : rows) D.compute(kernel::PairSubtract(box(run)), T, run);
                        for_pair_rows(s, tile, x.P, [&](index_t first, const Block& row) {
                          const Arg part = T.rows(first, row.shape.rows);
                          w.compute(kernel::ScaleByWeights{x.scale}, part, w.stream(row));
                          w.store(part, row);
                        });
                        if (s.modifiers.bias_gradient) add_pair_bias_gradient(w, x, box(tile.rows), T);
                      });
  });
}

/// A matrix of weights in slow memory has no room for the derivative of a softcap.
inline std::optional<std::string_view> one_matrix_of_weights(const Sizes& x) {
  if (x.modifiers.softcap > 0) return "keeps one matrix of weights: softcap needs two";
  return std::nullopt;
}

}  // namespace redblue::schedule
