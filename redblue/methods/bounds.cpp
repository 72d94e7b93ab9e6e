#include "redblue/methods/bounds.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

#include "redblue/bounds/backward.hpp"
#include "redblue/bounds/forward.hpp"
#include "redblue/bounds/rounding.hpp"
#include "redblue/methods/maths/approximations.hpp"
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
  if (polynomial_of(x) == nullptr || x.d + x.d_v > kMostColumns) {
    bound.holds = false;
    return bound;
  }
  const index_t g = polynomial_of(x)->degree();
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

namespace {

/// Reformer's keys are its queries, and K is not read. A row weighs itself only where it sees nothing else: of two rows
/// either has the value of the other, and under a causal mask nothing need read the last value.
Words inputs_of_reformer(const AttentionProblem& x) {
  const Need need = need_of(x);
  const Words rows = x.n_q < 3 ? Words(0) : std::max(need.scored_rows, need.scored_keys);
  const Words unread = x.mask.full() ? Words(0) : std::min(need.keys, Words(x.instances));
  return rows * x.d + (need.keys - unread) * x.d_v;
}

/// The keys that are drawn, their values, and the queries; a single key has weight 1 whatever its score.
Words inputs_of_sample(const AttentionProblem& x, index_t drawn) {
  const Words keys = Words(x.instances) * drawn;
  return drawn > 1 ? (need_of(x).scored_rows + keys) * x.d + keys * x.d_v : keys * x.d_v;
}

}  // namespace

}  // namespace redblue::bound

namespace redblue {

std::vector<bound::Bound> Polynomial::bounds(Operation op, const bound::AttentionProblem& x) const {
  if (op == Operation::backward) return {bound::backward_trivial(x)};
  return {bound::trivial(x), bound::polynomial_state(x)};
}

std::vector<bound::Bound> RowPolynomials::bounds(Operation op, const bound::AttentionProblem& x) const {
  if (exact_rows || exact_keys > 0 || cluster > 0) return {bound::trivial(x)};  // the state serves some pairs only
  return last().bounds(op, x);
}

/// What is proved of exact attention is not of these.
std::vector<bound::Bound> PublishedMethod::bounds(Operation, const bound::AttentionProblem& x) const {
  if (std::holds_alternative<Reformer>(method)) return {bound::trivial(x, bound::inputs_of_reformer(x))};
  if (const auto* sample = std::get_if<UniformSample>(&method))
    return {bound::trivial(x, bound::inputs_of_sample(x, sample->keys))};
  return {bound::trivial(x)};
}

}  // namespace redblue
