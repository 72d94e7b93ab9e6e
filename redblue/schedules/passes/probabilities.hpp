#pragma once
#include "redblue/schedules/operands/backward.hpp"
#include "redblue/schedules/parts/score_phase.hpp"

/// Two phases of the schedules that keep an n_q x n_k matrix in slow memory: the probabilities are written once, and dS
/// is written over them.
namespace redblue::schedule {

inline ScoreCost probabilities_cost(const Sizes& x, SlowArray Q, SlowArray K) {
  return {SlowArray::P, Q, K, x.d, x.statistics(), SlowArray::lse, false, true};
}
inline ScoreCost score_gradients_cost(const Sizes& x, SlowArray V) {
  return {SlowArray::P, SlowArray::dO, V, x.d_v, x.statistics(), SlowArray::D, true};
}

/// Scores are found again from weights of the softmax only, to within some roundings of lse. Beside a softcap below 1
/// these are no small part of it, and may make a derivative of 0 one of 1.
inline std::optional<std::string_view> softcap_of_softmax(const Sizes& x) {
  if (x.modifiers.softcap > 0 && x.score != Score::softmax) return "takes a softcap under the softmax only";
  if (x.modifiers.softcap > 0 && x.modifiers.softcap < 1)
    return "finds the derivative of a softcap from weights, which are too inexact for one below 1";
  return std::nullopt;
}

/// Products with the n_q x n_k matrix P: dQ = dS K, dK = dS^T Q and dV = P^T dO.
inline GemmCost query_gradients_cost(const Sizes& x) {
  return {SlowArray::dQ, SlowArray::P, SlowArray::K, x.n_q, x.n_k, x.d, Entries::of_pairs(x), false, x.accumulate};
}
inline GemmCost key_gradients_cost(const Sizes& x) {
  return {SlowArray::dK, SlowArray::P, SlowArray::Q, x.n_k, x.n_q, x.d, Entries::of_transposed_pairs(x),
          false,         x.accumulate};
}
inline GemmCost value_gradients_cost(const Sizes& x) {
  return {SlowArray::dV,           SlowArray::P, SlowArray::dO, x.n_k, x.n_q, x.d_v, Entries::of_transposed_pairs(x),
          x.modifiers.dropout > 0, x.accumulate};
}

/// The products that a schedule ends with, from dS in the place of P: dQ = dS K, and dK = dS^T Q.
template <class M>
void query_gradients(M& m, const BackwardOperands& x, GemmTiling t) {
  gemm(m, x.shape.fast, {x.dQ, x.shape.accumulate}, {x.P}, {x.K}, t, Entries::of_pairs(x.shape));
}
template <class M>
void key_gradients(M& m, const BackwardOperands& x, GemmTiling t) {
  gemm(m, x.shape.fast, {x.dK, x.shape.accumulate}, transposed(x.P), {x.Q}, t, Entries::of_transposed_pairs(x.shape));
}
/// dV = P^T dO, without the weights that are dropped: they become 0 in the row of P that is multiplied, and it stays.
template <class M>
void value_gradients(M& m, const BackwardOperands& x, GemmTiling t) {
  const GemmCost cost = value_gradients_cost(x.shape);
  gemm(m, x.shape.fast, {x.dV, cost.given}, {x.P, true, cost.A_stays}, {x.dO}, t, cost.entries, NothingElse{},
       [&](auto& w, Range keys, index_t i, const Arg& weights) {
         drop_weights(w, x, x.shape.place(i, keys.begin), weights);
       });
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

/// The derivative of a softcap is found from P, which passes once more, from lse and from what modifies scores.
inline Io softcap_gradients_io(const Sizes& x, ScoreTiling t) {
  return modifiers_io(x, x.nnz(), 0, ceil_div(x.n_q, t.a)) +
         Io().read(SlowArray::P, x.nnz()).read(SlowArray::lse, x.n_q);
}
/// P <- dS = scale P o (dO V^T - D), P passing entry by entry: reads Rs(d_v) + n_q + nnz, writes nnz. A dBias with a
/// row for each query is added to for each pair.
inline Io score_gradients_io(const Sizes& x, SlowArray V, ScoreTiling t) {
  return score_gradients_cost(x, V).io(x, t) +
         Io().read(SlowArray::D, x.row_statistics()).read(SlowArray::P, x.nnz()).write(SlowArray::P, x.nnz()) +
         bias_gradient_io(x, x.nnz(), 0) + (x.modifiers.softcap > 0 ? softcap_gradients_io(x, t) : Io());
}
template <class M, class Operands>
void score_gradients(M& m, const Operands& x, ScoreTiling t) {
  const Blocks blocks = x.shape.pairs().row_blocks(t.a);
  for_blocks_of_queries(m, x.shape, blocks.count(), [&](auto& w, index_t i) {
    const Range I = blocks(i);
    const bool capped = x.shape.modifiers.softcap > 0;
    const auto D_i = w.load(x.D.rows(I)), lse_i = w.load(x.lse.rows(capped ? I : Range{I.begin, I.begin}));
    const Slopes slopes(w, x, capped);
    score_phase(w, x.shape, x.P.array, I, x.dO, x.V, t, [&](const Arg& dP, const Box& box) {
      drop_weights(w, x, x.shape.place(box.rows.begin, box.keys.begin), dP);
      for_visible(x.shape.pairs(), box.rows, box.keys, [&](Range rows, Range keys) {
        const Place place = x.shape.place(rows.begin, keys.begin);
        const index_t first = rows.begin - I.begin;
        const Arg dS = part_of(dP, box, rows, keys);
        const Block P = x.P.block(rows, keys);
        w.compute(kernel::ScoreGradient{x.shape.score, x.scale, place}, dS, w.stream(P), D_i.rows(first, rows.size()));
        if constexpr (std::same_as<Operands, BackwardOperands>) {
          if (x.shape.modifiers.bias_gradient) add_bias_gradient(w, x, x.dBias, rows, keys, kNoWords, dS);
          if (capped)
            w.compute(kernel::SoftcapGradient{modify_scores(x.shape, place)}, dS, w.stream(P),
                      lse_i.rows(first, rows.size()), x.bias_of(rows, keys), slopes.arg());
        }
        w.store(dS, P);
      });
    });
  });
}

}  // namespace redblue::schedule
