#pragma once
#include <utility>

#include "redblue/verify/oracle/dense.hpp"
#include "redblue/verify/oracle/dual.hpp"

/// Tangents and gradients of gradients, from plain attention and its gradients in numbers that know how they move: no
/// formula of either stands here. The gradient of <gQ, dQ> + <gK, dK> + <gV, dV> in Q, K, V is how dQ, dK, dV move
/// along gQ, gK, gV, for they are gradients of one number; in dO and dlse it is how O and lse move. A bias and sinks
/// may move, too.
namespace redblue::oracle {

template <class T>
Matrices<T> tangents_of(const Matrices<Dual<T>>& moving, const std::vector<std::pair<SlowArray, SlowArray>>& arrays) {
  Matrices<T> all;
  for (const auto& [of, named] : arrays) {
    Matrix<T>& m = all[named] = Matrix<T>(moving.at(of).shape);
    for (std::size_t i = 0; i < m.words.size(); ++i) m.words[i] = moving.at(of).words[i].tangent;
  }
  return all;
}

/// The outputs of operation tangent or second. `in` has its inputs; O and lse are not taken from there.
template <class T>
Matrices<T> moved(const Problem& p, const Matrices<T>& in, index_t block = kBlock, index_t instance = 0) {
  using S = SlowArray;
  const bool second = p.op == Operation::second;
  std::map<SlowArray, SlowArray> direction{
      {S::Q, second ? S::gQ : S::tQ}, {S::K, second ? S::gK : S::tK}, {S::V, second ? S::gV : S::tV}};
  if (p.bias_direction) direction[S::bias] = second ? S::gBias : S::tBias;
  if (p.sinks_direction) direction[S::sinks] = second ? S::gSinks : S::tSinks;
  Problem still = p;
  still.op = second ? Operation::backward : Operation::forward;
  still.bias_gradient = second && p.bias_direction;
  still.sinks_gradient = second && p.sinks_direction;
  still.bias_direction = still.sinks_direction = false;
  Matrices<Dual<T>> moving;
  for (const SlowArray a : facts_of(still.op).reads) {
    if (a == S::O || a == S::lse || !in.contains(a)) continue;
    Matrix<Dual<T>>& m = moving[a] = Matrix<Dual<T>>(in.at(a).shape);
    const Matrix<T>* along = direction.contains(a) ? &in.at(direction.at(a)) : nullptr;
    for (std::size_t i = 0; i < m.words.size(); ++i)
      m.words[i] = {in.at(a).words[i], along == nullptr ? T(0) : along->words[i]};
  }
  const Dense<Dual<T>> dense(still, std::move(moving), block, instance);
  if (!second) return tangents_of<T>(dense.forward(), {{S::O, S::tO}, {S::lse, S::tlse}});
  Matrices<T> all =
      tangents_of<T>(dense.gradients(),
                     {{S::dQ, S::LQ}, {S::dK, S::LK}, {S::dV, S::LV}, {S::dBias, S::LBias}, {S::dSinks, S::LSinks}});
  all.merge(tangents_of<T>(dense.forward(), {{S::O, S::LdO}, {S::lse, S::Ldlse}}));
  if (!p.lse_gradient) all[S::Ldlse] = Matrix<T>({all.at(S::Ldlse).shape.rows, 0});
  return all;
}

}  // namespace redblue::oracle
