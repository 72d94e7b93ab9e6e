#pragma once
#include <span>

#include "redblue/kernels/backward.hpp"
#include "redblue/language/slow_matrix.hpp"
#include "redblue/problem/operation.hpp"
#include "redblue/problem/sizes.hpp"
#include "redblue/schedules/parts/modifiers.hpp"

namespace redblue::schedule {

/// What operations that write a matrix over pairs have in common: Q n_q x d, K n_k x d -> an n_q x n_k matrix with a
/// word for every pair, hidden ones too.
struct PairOperands : ModifierOperands {
  Sizes shape;
  double scale = 1;
  SlowMatrix Q, K;

  PairOperands(const Sizes& s, double scale, index_t instance)
      : ModifierOperands(s, instance),
        shape(s),
        scale(scale),
        Q{SlowArray::Q, {s.n_q, s.d}, instance, s.row0},
        K{SlowArray::K, {s.n_k, s.d}, instance, s.key0} {}
  index_t instance() const { return Q.instance; }
  SlowMatrix of_pairs(SlowArray a) const { return {a, {shape.n_q, shape.n_k}, instance(), shape.row0, shape.key0}; }
};

/// S, the scores before the softmax: scale Q K^T with all modifiers of scores, -inf for hidden pairs.
struct ScoresOperands : PairOperands {
  static constexpr Operation operation = Operation::scores;
  static constexpr std::span<const SlowArray> inputs = facts_of(operation).reads;
  static constexpr std::span<const SlowArray> outputs = facts_of(operation).writes;
  using Hidden = kernel::NoKeysOver;  ///< writes what hidden pairs hold

  SlowMatrix lse, S;  ///< lse has no words here

  [[gnu::noinline]] ScoresOperands(const Sizes& s, double scale, index_t instance = 0)
      : PairOperands(s, scale, instance),
        lse{SlowArray::lse, {s.n_q, 0}, instance, s.row0},
        S(of_pairs(SlowArray::S)) {}
  const SlowMatrix& pairs() const { return S; }
  auto all() const { return std::array{Q, K, bias, slopes, S}; }
};

/// P, the weights: exp(S - lse) with the lse of a forward pass, or another score function of S alone; 0 for hidden
/// pairs.
struct WeightsOperands : PairOperands {
  static constexpr Operation operation = Operation::weights;
  static constexpr std::span<const SlowArray> inputs = facts_of(operation).reads;
  static constexpr std::span<const SlowArray> outputs = facts_of(operation).writes;
  using Hidden = kernel::ZeroOver;

  SlowMatrix lse, P;

  [[gnu::noinline]] WeightsOperands(const Sizes& s, double scale, index_t instance = 0)
      : PairOperands(s, scale, instance),
        lse{SlowArray::lse, {s.n_q, s.statistics()}, instance, s.row0},
        P(of_pairs(SlowArray::P)) {}
  const SlowMatrix& pairs() const { return P; }
  auto all() const { return std::array{Q, K, lse, bias, slopes, P}; }
};

}  // namespace redblue::schedule
