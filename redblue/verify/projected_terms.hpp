#pragma once
#include <algorithm>
#include <cmath>
#include <map>
#include <stdexcept>
#include <vector>

#include "redblue/verify/comparison.hpp"

namespace redblue::comparison {

/// Where Q, K and V are projected: the largest terms of gradients that are products with dQ, dK and dV, of which
/// `largest` are those. Terms add up like a random walk.
inline std::map<SlowArray, double> projected_terms(const std::map<SlowArray, double>& largest, const Problem& p,
                                                   const Tensors& tensors) {
  struct Term {
    SlowArray gradient, of, factor;  ///< gradient = of times factor
    index_t count;
  };
  using S = SlowArray;
  const std::vector<Term> terms = [&]() -> std::vector<Term> {
    switch (p.op) {
      case Operation::gradient_x:
        return {{S::g, S::dQ, S::A1, p.n_q}};
      case Operation::backward_x:
        return {{S::dX, S::dQ, S::A1, p.n_q},
                {S::dA1, S::dQ, S::X, p.d},
                {S::dY, S::dV, S::A3, p.n_k},
                {S::dA3, S::dV, S::Y, p.d_v}};
      case Operation::backward_w:
        return {{S::dWQ, S::dQ, S::A1, p.n_q}, {S::dWK, S::dK, S::A2, p.n_k}, {S::dWV, S::dV, S::A3, p.n_k},
                {S::dA1, S::dQ, S::WQ, p.d},   {S::dA2, S::dK, S::WK, p.d},   {S::dA3, S::dV, S::WV, p.d_v}};
      case Operation::forward:
      case Operation::backward:
      case Operation::forward_x:
      case Operation::scores:
      case Operation::weights:
      case Operation::merge:
      case Operation::tangent:
      case Operation::second:
        break;
    }
    throw std::logic_error("an operation without gradients of A1");
  }();
  const auto given = [&](SlowArray a) {  // the source that serves as this one
    if (p.sources == Sources::self && (a == S::A2 || a == S::A3)) return S::A1;
    return p.sources == Sources::shared && a == S::A3 ? S::A2 : a;
  };
  std::map<SlowArray, double> of_projected;
  for (const Term& t : terms) {
    double most = 0;
    for (index_t h = 0; h < p.instances(); ++h)
      most = std::max(most, largest_of(gathered(p, tensors, given(t.factor), h).words));
    of_projected[t.gradient] = std::sqrt(static_cast<double>(t.count)) * largest.at(t.of) * most;
  }
  if (p.op == Operation::backward_x) of_projected[S::dA2] = largest.at(S::dK);  // K = A2
  if (p.sources == Sources::self) of_projected[S::dA1] += of_projected[S::dA2];
  if (p.sources != Sources::distinct) of_projected[S::dA2] += of_projected[S::dA3];
  return of_projected;
}

}  // namespace redblue::comparison
