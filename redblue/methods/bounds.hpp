#pragma once
#include "redblue/bounds/bound.hpp"

/// Lower bounds for polynomial attention, a polynomial in place of e^z. Nothing that is proved of exact attention is
/// among them but the trivial bound. Statement and proof: docs/theorems.md, docs/algorithms/polynomial.md.
namespace redblue::bound {

/// For schedules that keep one running state of monomials, Z_{a,t} = SUM_j k_j^a v_jt for all r = C(d + g, g) monomials
/// and all columns, whole or a causal prefix: 2 M (n_k + n_q) r d_v / Phi - M - r d_v, where Phi / (2 M) is the most
/// products of a word of the state per word of I/O. Sequences and instances have states of their own: each is bounded
/// for itself. Status "restricted".
Bound polynomial_state(const AttentionProblem& x);

}  // namespace redblue::bound
