#include "redblue/bounds/polynomial.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

#include "redblue/bounds/backward.hpp"
#include "redblue/bounds/forward.hpp"
#include "redblue/bounds/rounding.hpp"
#include "redblue/problem/sequences.hpp"

namespace redblue::bound {

namespace {

using Real = long double;

/// H(w) = max over s + v = w, v <= d_v, of C(min(s, d) + g, g) v for w = 0 .. d + d_v: the most products that a row
/// with w of its words present takes part in.
std::vector<Real> most_products(index_t d, index_t d_v, index_t g) {
  std::vector<Real> monomials_of(static_cast<std::size_t>(d) + 1, 1);
  for (std::size_t s = 1; s < monomials_of.size(); ++s)  // C(s + g, g) = C(s - 1 + g, g) (s + g) / s
    monomials_of[s] = monomials_of[s - 1] * static_cast<Real>(static_cast<index_t>(s) + g) / static_cast<Real>(s);
  std::vector<Real> most(static_cast<std::size_t>(d + d_v) + 1, 0);
  for (index_t v = 1; v <= d_v; ++v)
    for (index_t s = 0; s <= d; ++s) {
      Real& best = most[static_cast<std::size_t>(s + v)];
      best = std::max(best, monomials_of[static_cast<std::size_t>(s)] * static_cast<Real>(v));
    }
  return most;
}

/// The largest (3M - z) z / w over words z of the state that are present and words w per row.
Real phi(const std::vector<Real>& H, Real M, Real state) {
  const Real room = 3 * M, top = std::min(room, state);
  Real most = 0;
  for (std::size_t w = 1; w < H.size(); ++w) {
    const Real words = static_cast<Real>(w), before = H[w - 1];
    if (before + 1 <= top) {
      const Real z = std::clamp(room / 2, before + 1, std::max(before + 1, std::min(H[w], top)));
      most = std::max(most, (room - z) * z / words);
    }
    if (w >= 2 && before < top) most = std::max(most, (room - before - 1) * before / (words - 1));
  }
  return most;
}

}  // namespace

Bound polynomial_state(const AttentionProblem& x) {
  constexpr index_t kMostColumns = 4096;  // of d + d_v: beyond, the search over H would take long
  Bound bound{0,   "polynomial state", "one running state of all monomials", "restricted", "forward, d + d_v <= 4096",
              true};
  if (x.polynomial == nullptr || x.d + x.d_v > kMostColumns) {
    bound.holds = false;
    return bound;
  }
  const index_t g = x.polynomial->degree();
  const std::vector<Real> H = most_products(x.d, x.d_v, g);
  const Real M = x.M.to_long_double(), state = H.back();  // r d_v
  const Real Phi = phi(H, M, state);
  for (const Sizes& part : sequences_of(x)) {
    const Needed need = needed_of(part.pairs());
    const Real rows = static_cast<Real>(need.rows.size()) + static_cast<Real>(need.keys.size());
    const Real products = Phi > 0 ? 2 * M * rows * state / Phi : 0;
    bound.words += ceil_words(products * (1 - 64 * 0x1p-64L) - M - state, std::max({products, M, state}));
  }
  bound.words = Words(x.instances / batches_of(x)) * bound.words;
  return bound;
}

std::vector<Bound> polynomial_bounds(Operation op, const AttentionProblem& x) {
  if (op == Operation::backward) return {backward_trivial(x)};
  const RowPolynomials* rows = x.row_polynomials.get();
  const bool hybrid = rows != nullptr && (rows->exact_rows || rows->exact_keys > 0 || rows->cluster > 0);
  if (hybrid) return {trivial(x)};  // the state serves some of the pairs only
  return {trivial(x), polynomial_state(x)};
}

}  // namespace redblue::bound
