#pragma once
#include "redblue/bound/bound.hpp"

/// Lower bounds for forward attention. Statements and proofs: docs/theorems.md, docs/proofs/.
namespace redblue::bound {

/// Pairs (i, j) whose score must be formed, all instances: a row that sees one key has P = 1 without any score.
Words scored_pairs(const ForwardProblem& x);

/// Every needed input word is read once, every output word written once. Any schedule whatever.
Bound trivial(const ForwardProblem& x);

/// F': max over s in {1 if M <= 4 d^2 (c := 1), min(1, c min(d + d_v, 2d) / sqrt M)} of
/// 2 c s (d + d_v) N / sqrt M - s^2 N - M, with c = 1 - 1/(2M). Class PA.
Bound f_prime(const ForwardProblem& x);

/// value(N, K, M): max over L = floor(M t / 8), t = 8..160, of
/// L N / max{(M + L)^2 / (4K), M + L/2, L^2 / (4K) + M, M^2 / (4K) + L/2} - (L - M).
long double value(Words N, Words K, Words M);

/// F'': value(N, K, M) with K = (d + d_v)^2 if d_v <= d, else 4 d d_v. Class PA.
Bound f_double_prime(const ForwardProblem& x);

/// G: N d^2 / (M + 4 d^2) - M, any summation trees. A cross-check: F' implies it wherever it exceeds the trivial bound.
Bound g(const ForwardProblem& x);

/// All of them, in this order.
std::vector<Bound> forward_bounds(const ForwardProblem& x);

/// The largest proved one that holds.
Bound best(const std::vector<Bound>& bounds);

}  // namespace redblue::bound
