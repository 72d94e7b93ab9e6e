#pragma once
#include "redblue/schedule/backward/operands.hpp"
#include "redblue/schedule/parts/score_phase.hpp"

/// Two phases of the schedules that keep an n_q x n_k matrix in slow memory: the probabilities are written once, and dS
/// is written over them.
namespace redblue::schedule {

inline ScoreCost probabilities_cost(const Sizes& x, SlowArray Q, SlowArray K) {
  return {SlowArray::P, Q, K, x.d, x.statistics(), SlowArray::lse};
}
inline ScoreCost score_gradients_cost(const Sizes& x, SlowArray V) {
  return {SlowArray::P, SlowArray::dO, V, x.d_v, x.statistics(), SlowArray::D, true};
}

/// Products with the n_q x n_k matrix P: dQ = dS K, dK = dS^T Q and dV = P^T dO.
inline GemmCost query_gradients_cost(const Sizes& x) {
  return {SlowArray::dQ, SlowArray::P, SlowArray::K, x.n_q, x.n_k, x.d};
}
inline GemmCost key_gradients_cost(const Sizes& x) {
  return {SlowArray::dK, SlowArray::P, SlowArray::Q, x.n_k, x.n_q, x.d};
}
inline GemmCost value_gradients_cost(const Sizes& x) {
  return {SlowArray::dV, SlowArray::P, SlowArray::dO, x.n_k, x.n_q, x.d_v};
}

/// P = exp(scale Q K^T - lse): reads Rs(d) + n_q, writes n_q n_k.
inline Io probabilities_io(const Sizes& x, SlowArray Q, SlowArray K, ScoreTiling t) {
  return probabilities_cost(x, Q, K).io(x, t) +
         Io().read(SlowArray::lse, x.row_statistics()).write(SlowArray::P, x.N());
}
template <class M, class Operands>
void probabilities(M& m, const Operands& x, ScoreTiling t) {
  const auto lse = tiled(x.lse, t.a);
  m.each(lse.rows(), [&](auto& w, index_t i) {
    const auto lse_i = w.load(lse(i));
    score_phase(w, x.shape.fast, x.P, i, x.Q, x.K, t, [&](const auto& T, const Block& P_ij) {
      w.compute(kernel::Weights{x.shape.score, x.scale}, T, lse_i);
      w.store(T, P_ij);
    });
  });
}

/// P <- dS = scale P o (dO V^T - D), P passing entry by entry: reads Rs(d_v) + n_q + n_q n_k, writes n_q n_k.
inline Io score_gradients_io(const Sizes& x, SlowArray V, ScoreTiling t) {
  return score_gradients_cost(x, V).io(x, t) +
         Io().read(SlowArray::D, x.row_statistics()).read(SlowArray::P, x.N()).write(SlowArray::P, x.N());
}
template <class M, class Operands>
void score_gradients(M& m, const Operands& x, ScoreTiling t) {
  const auto D = tiled(x.D, t.a);
  m.each(D.rows(), [&](auto& w, index_t i) {
    const auto D_i = w.load(D(i));
    score_phase(w, x.shape.fast, x.P, i, x.dO, x.V, t, [&](const auto& dP, const Block& P_ij) {
      w.update(kernel::ScoreGradientOver{x.shape.score, x.scale}, P_ij, dP, D_i);
    });
  });
}

}  // namespace redblue::schedule
