#include "redblue/bound/bound.hpp"

#include <algorithm>

#include "redblue/bound/backward.hpp"
#include "redblue/bound/forward.hpp"
#include "redblue/bound/projected.hpp"
#include "redblue/core/visible.hpp"

namespace redblue::bound {

Words scored_pairs(const AttentionProblem& x) { return Words(x.instances) * needed_of(x.pairs()).scored_pairs; }

long double value(Words N, long double K, Words M) {
  const long double n = N.to_long_double(), k = 4 * K, m = M.to_long_double();
  long double best = 0;
  for (int t = 8; t <= 160; ++t) {
    const long double L = (M * t / 8).to_long_double();
    const long double most = std::max({(m + L) * (m + L) / k, m + L / 2, L * L / k + m, m * m / k + L / 2});
    best = std::max(best, L * n / most - (L - m));
  }
  return best;
}

std::vector<Bound> bounds_of(Operation op, const AttentionProblem& x) {
  if (op == Operation::forward) return forward_bounds(x);
  if (op == Operation::backward) return backward_bounds(x);
  return projected_bounds(op, x);
}

Bound best(const std::vector<Bound>& bounds) {
  Bound best = bounds.front();
  for (const Bound& b : bounds)
    if (b.holds && b.status == "proved" && b.words > best.words) best = b;
  return best;
}

}  // namespace redblue::bound
