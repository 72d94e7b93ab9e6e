#include "redblue/bounds/second.hpp"

#include "redblue/bounds/forward.hpp"
#include "redblue/bounds/rounding.hpp"
#include "redblue/masks/visible.hpp"

namespace redblue::bound {

namespace {

/// The words of the bounds of a forward pass over the same pairs, whose values are others.
std::vector<Bound> with_forward(const Bound& trivial, const AttentionProblem& x) {
  if (x.score == Score::identity) return {trivial};
  return {trivial, f_prime(x), f_double_prime(x)};
}

}  // namespace

Bound tangent_trivial(const AttentionProblem& x) {
  // A row that sees one key has P = 1: its tangent is that of the value, and needs nothing else.
  const Need need = need_of(x);
  const Words inputs =
      Words(2) * need.scored_rows * x.d + need.scored_keys * (Words(2) * x.d + x.d_v) + need.keys * x.d_v;
  const Words outputs = Words(x.n_q) * (Words(x.d_v) + x.statistics());
  return {inputs + Words(x.instances) * outputs, "trivial", kAny, "proved", "none", true};
}

Bound second_trivial(const AttentionProblem& x) {
  // A row that sees one key has P = 1 and dS = G = 0: of it LdO = gV_j is left, and nothing else.
  const Need need = need_of(x);
  const Words width = Words(x.d) + x.d_v;
  const Words inputs =
      need.scored_rows * (Words(2) * x.d + x.d_v) + need.scored_keys * (Words(2) * x.d + x.d_v) + need.keys * x.d_v;
  const Words outputs = Words(x.n_q) * width + x.n_k * width;
  return {inputs + Words(x.instances) * outputs, "trivial", kAny, "proved", "none", true};
}

std::vector<Bound> tangent_bounds(const AttentionProblem& x) { return with_forward(tangent_trivial(x), x); }
std::vector<Bound> second_bounds(const AttentionProblem& x) { return with_forward(second_trivial(x), x); }

}  // namespace redblue::bound
