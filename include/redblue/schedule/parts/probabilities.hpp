#pragma once
#include "redblue/schedule/backward/operands.hpp"
#include "redblue/schedule/parts/score_phase.hpp"

/// Two phases of the schedules that keep an n_q x n_k matrix in slow memory: the probabilities are written once, and dS
/// is written over them.
namespace redblue::schedule {

inline ScoreCost probabilities_cost(const Sizes& x, SlowArray Q, SlowArray K) {
  return {SlowArray::P, Q, K, x.d, x.statistics(), SlowArray::lse, false, true};
}
inline ScoreCost score_gradients_cost(const Sizes& x, SlowArray V) {
  return {SlowArray::P, SlowArray::dO, V, x.d_v, x.statistics(), SlowArray::D, true};
}

/// Products with the n_q x n_k matrix P: dQ = dS K, dK = dS^T Q and dV = P^T dO.
inline GemmCost query_gradients_cost(const Sizes& x) {
  return {SlowArray::dQ, SlowArray::P, SlowArray::K, x.n_q, x.n_k, x.d, Entries::of_pairs(x)};
}
inline GemmCost key_gradients_cost(const Sizes& x) {
  return {SlowArray::dK, SlowArray::P, SlowArray::Q, x.n_k, x.n_q, x.d, Entries::of_transposed_pairs(x)};
}
inline GemmCost value_gradients_cost(const Sizes& x) {
  return {SlowArray::dV, SlowArray::P, SlowArray::dO, x.n_k, x.n_q, x.d_v, Entries::of_transposed_pairs(x)};
}

/// P = exp(scale Q K^T - lse): reads Rs(d) + n_q, writes nnz.
inline Io probabilities_io(const Sizes& x, SlowArray Q, SlowArray K, ScoreTiling t) {
  return probabilities_cost(x, Q, K).io(x, t) +
         Io().read(SlowArray::lse, x.row_statistics()).write(SlowArray::P, x.nnz());
}
template <class M, class Operands>
void probabilities(M& m, const Operands& x, ScoreTiling t) {
  const Blocks blocks = x.shape.pairs().row_blocks(t.a);
  m.each(blocks.count(), [&](auto& w, index_t i) {
    const Range I = blocks(i);
    const auto lse_i = w.load(x.lse.rows(I));
    const Slopes slopes(w, x);
    score_phase(w, x.shape, x.P.array, I, x.Q, x.K, t, [&](const Arg& T, const Box& box) {
      const bool plain = !x.shape.modifiers.any() && x.shape.hiding == nullptr;
      if (!plain) w.compute(kernel::Scale{x.scale}, T);
      hide_formed(w, x.shape, T, box);
      if (!plain) modify(w, x, T, box, slopes.arg());
      w.compute(kernel::Weights{x.shape.score, plain ? x.scale : 1}, T,
                lse_i.rows(box.rows.begin - I.begin, box.rows.size()));
      store_visible(w, x.shape, T, x.P, box);
    });
  });
}

/// P <- dS = scale P o (dO V^T - D), P passing entry by entry: reads Rs(d_v) + n_q + nnz, writes nnz.
inline Io score_gradients_io(const Sizes& x, SlowArray V, ScoreTiling t) {
  return score_gradients_cost(x, V).io(x, t) +
         Io().read(SlowArray::D, x.row_statistics()).read(SlowArray::P, x.nnz()).write(SlowArray::P, x.nnz());
}
template <class M, class Operands>
void score_gradients(M& m, const Operands& x, ScoreTiling t) {
  const Blocks blocks = x.shape.pairs().row_blocks(t.a);
  m.each(blocks.count(), [&](auto& w, index_t i) {
    const Range I = blocks(i);
    const auto D_i = w.load(x.D.rows(I));
    score_phase(w, x.shape, x.P.array, I, x.dO, x.V, t, [&](const Arg& dP, const Box& box) {
      for_visible(x.shape.pairs(), box.rows, box.keys, [&](Range rows, Range keys) {
        w.update(kernel::ScoreGradientOver{x.shape.score, x.scale}, x.P.block(rows, keys), part_of(dP, box, rows, keys),
                 D_i.rows(rows.begin - I.begin, rows.size()));
      });
    });
  });
}

}  // namespace redblue::schedule
