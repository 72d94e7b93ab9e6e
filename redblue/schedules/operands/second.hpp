#pragma once
#include <span>

#include "redblue/kernels/second.hpp"
#include "redblue/language/machine.hpp"
#include "redblue/problem/operation.hpp"
#include "redblue/schedules/parts/modifiers.hpp"

namespace redblue::schedule {

/// What tangents and double backward have in common: Q, K, V and the outputs O (n_q x d_v) and lse (n_q) of the forward
/// pass. If the score function has no statistics, O and lse have no columns, so that they have no words to read.
struct OfForwardOperands : ModifierOperands {
  Sizes shape;
  double scale = 1;
  SlowMatrix Q, K, V, O, lse;

  OfForwardOperands(const Sizes& s, double scale, index_t instance)
      : ModifierOperands(s, instance),
        shape(s),
        scale(scale),
        Q(of_queries(SlowArray::Q, s.d, s, instance)),
        K(of_keys(SlowArray::K, s.d, s, instance)),
        V(of_keys(SlowArray::V, s.d_v, s, instance)),
        O(of_queries(SlowArray::O, s.d_v * s.statistics(), s, instance)),
        lse(of_queries(SlowArray::lse, s.statistics(), s, instance)) {}
  static SlowMatrix of_queries(SlowArray a, index_t cols, const Sizes& s, index_t instance) {
    return {a, {s.n_q, cols}, instance, s.row0};
  }
  static SlowMatrix of_keys(SlowArray a, index_t cols, const Sizes& s, index_t instance) {
    return {a, {s.n_k, cols}, instance, s.key0};
  }
  index_t instance() const { return Q.instance; }
};

/// tQ, tK, tV, shaped like Q, K, V, and tBias and tSinks where the bias and the sinks move -> tO and tlse, shaped like
/// O and lse: how these move when Q, K, V, the bias and the sinks do. Workspace (n_q x n_k): P, the weights, and in S
/// how they move, P o H.
struct TangentOperands : OfForwardOperands {
  static constexpr Operation operation = Operation::tangent;
  static constexpr std::span<const SlowArray> inputs = facts_of(operation).reads;
  static constexpr std::span<const SlowArray> outputs = facts_of(operation).writes;

  SlowMatrix tQ, tK, tV, tBias, tSinks, tO, tlse, Hm, P, S;

  [[gnu::noinline]] TangentOperands(const Sizes& s, double scale, index_t instance = 0)
      : OfForwardOperands(s, scale, instance),
        tQ(of_queries(SlowArray::tQ, s.d, s, instance)),
        tK(of_keys(SlowArray::tK, s.d, s, instance)),
        tV(of_keys(SlowArray::tV, s.d_v, s, instance)),
        tBias(direction_of_bias(s, SlowArray::tBias, instance)),
        tSinks(of_heads(s, SlowArray::tSinks, s.modifiers.sinks_move, instance)),
        tO(of_queries(SlowArray::tO, s.d_v, s, instance)),
        tlse(of_queries(SlowArray::tlse, s.statistics(), s, instance)),
        Hm(of_queries(SlowArray::Hm, s.statistics(), s, instance)),
        P(matrix_of_pairs(s, SlowArray::P, instance)),
        S(matrix_of_pairs(s, SlowArray::S, instance)) {}
  auto all() const {
    return std::array{Q, K, V, tQ, tK, tV, O, lse, bias, slopes, sinks, tBias, tSinks, tO, tlse, Hm, P, S};
  }
};

/// The inputs of backward, dlse among them where it is given, and gQ, gK, gV, shaped like dQ, dK, dV -> LQ, LK, LV and
/// LdO, the gradients of L = <gQ, dQ> + <gK, dK> + <gV, dV>, and Ldlse where dlse is given. With gBias L has <gBias,
/// dBias>, too, and LBias is its gradient in the bias; and so are gSinks and LSinks. Workspace: D (n_q), the row sums
/// of dO o O less dlse; Hm and Xm (n_q), w and x: those of P o H and of dO o LdO; P and S (n_q x n_k), first the
/// weights and P o H, then scale dS and scale G; LQg, LQ of one group of keys: a schedule keeps as many copies as its
/// tiling says.
struct SecondOperands : OfForwardOperands {
  static constexpr Operation operation = Operation::second;
  static constexpr std::span<const SlowArray> inputs = facts_of(operation).reads;
  static constexpr std::span<const SlowArray> outputs = facts_of(operation).writes;

  SlowMatrix dO, dlse, gQ, gK, gV, gBias, gSinks, LQ, LK, LV, LdO, Ldlse, LBias, LSinks, D, Hm, Xm, P, S, LQg;

  [[gnu::noinline]] SecondOperands(const Sizes& s, double scale, index_t instance = 0)
      : OfForwardOperands(s, scale, instance),
        dO(of_queries(SlowArray::dO, s.d_v, s, instance)),
        dlse(of_queries(SlowArray::dlse, s.lse_gradient ? s.statistics() : 0, s, instance)),
        gQ(of_queries(SlowArray::gQ, s.d, s, instance)),
        gK(of_keys(SlowArray::gK, s.d, s, instance)),
        gV(of_keys(SlowArray::gV, s.d_v, s, instance)),
        gBias(direction_of_bias(s, SlowArray::gBias, instance)),
        gSinks(of_heads(s, SlowArray::gSinks, s.modifiers.sinks_move, instance)),
        LQ(of_queries(SlowArray::LQ, s.d, s, instance)),
        LK(of_keys(SlowArray::LK, s.d, s, instance)),
        LV(of_keys(SlowArray::LV, s.d_v, s, instance)),
        LdO(of_queries(SlowArray::LdO, s.d_v, s, instance)),
        Ldlse(of_queries(SlowArray::Ldlse, dlse.shape.cols, s, instance)),
        LBias(gradient_of_bias(s, instance)),
        LSinks(of_heads(s, SlowArray::LSinks, s.modifiers.sinks_move, instance)),
        D(of_queries(SlowArray::D, s.statistics(), s, instance)),
        Hm(of_queries(SlowArray::Hm, s.statistics(), s, instance)),
        Xm(of_queries(SlowArray::Xm, s.statistics(), s, instance)),
        P(matrix_of_pairs(s, SlowArray::P, instance)),
        S(matrix_of_pairs(s, SlowArray::S, instance)),
        LQg{SlowArray::LQg, LQ.shape, instance} {}
  auto all() const {
    return std::array{Q,      K,  V,  O,  lse, dO,    dlse,  gQ,     gK, gV, bias, slopes, sinks, gBias,
                      gSinks, LQ, LK, LV, LdO, Ldlse, LBias, LSinks, D,  Hm, Xm,   P,      S,     LQg};
  }
};

}  // namespace redblue::schedule
