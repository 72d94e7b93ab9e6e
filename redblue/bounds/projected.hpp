#pragma once
#include "redblue/bounds/bound.hpp"

/// Lower bounds where Q, K and V are products: the papers' parametrisation Q = A1 X, K = A2, V = A3 Y, and projections
/// Q = A1 WQ, K = A2 WK, V = A3 WV. Statements and proofs: docs/theorems.md, docs/proofs/gradient.md.
namespace redblue::bound {

/// Every needed input word is read once, every output word written once; an array that has several roles counts once.
Bound projected_trivial(Operation op, const AttentionProblem& x);

/// value(N, Kg, M) with Kg = (d + min(d, d_v))^2; d (d + min(d, d_v)) where A2 = A3, a quarter of that where
/// A1 = A2 = A3. For g = dL/dX, however U = p A2 and T = A1^T p are handled.
Bound gradient(const AttentionProblem& x);

/// g': F' for the products of S and q alone. Derived, not read independently: never the bound of a problem.
Bound gradient_prime(const AttentionProblem& x);

/// g*: only for schedules that complete every U_it before it is multiplied and do not form S anew per visit (6R,
/// 9R-a, b, c, and 9R-d for d_v <= d). False for 9R-e and 9R-f: never the bound of the problem.
Bound gradient_star(const AttentionProblem& x);

/// A2 = A3 = A, U = P A formed as such: 2 n^2 d^2/M. Only for schedules that do form it.
Bound shared_source(const AttentionProblem& x);

std::vector<Bound> projected_bounds(Operation op, const AttentionProblem& x);

}  // namespace redblue::bound
