#pragma once
#include "redblue/bounds/bound.hpp"

/// Lower bounds for dQ, dK, dV. Statements and proofs: docs/theorems.md, docs/proofs/.
namespace redblue::bound {

/// Every needed input word is read once, every output word written once. For any schedule.
Bound backward_trivial(const AttentionProblem& x);

/// B': max over a = k/200, k = 1..199, s in {min(1, c 2 a d / sqrt M), 1 if sqrt M <= 2 a d (c := 1)} of
/// 2 c s Sm N / sqrt M - s^2 N - M, with Sm = (a + 2 sqrt(1 - a)) d + sqrt(2) d_v, c = 1 - 1/(2M). Class PA.
Bound b_prime(const AttentionProblem& x);
/// N is given: for a part of a run that forms these pairs.
Bound b_prime(const AttentionProblem& x, Words pairs);

/// B'': value(N, K, M), K = (2d + d_v)(2d + 2 d_v) for d_v <= sqrt(2) d, (6 + 4 sqrt(2)) d d_v up to d_v = 2d. Class
/// PA.
Bound b_double_prime(const AttentionProblem& x);
Bound b_double_prime(const AttentionProblem& x, Words pairs);

/// The K of B''.
long double b_double_prime_cost(const AttentionProblem& x);

/// B14: 2 k (N - M) / (2M + h + 1) - O_n with k = (d + d_v)(4d + 3 d_v) - 0.00013 d^2, h = ceil(4k/3),
/// O_n = n_q d + n_k (d + d_v) over all instances; for d_v = d without a mask also k = 13.896 d^2, h = ceil(10k/9).
/// For d <= 8 d_v <= 8 d. Class PA in the strict sense: every dQ and dK product contains a complete dS_ij. The proof
/// rests on the certificates in data/b14.
Bound b14(const AttentionProblem& x);

/// B10: 2 g s N ((a + 2) d + (c + 1) d_v) / sqrt M - 2 s^2 (a^2 + c^2) N - O_n, with g = 1 - 0.1 / M^2, O_n as in B14,
/// s = min(1, g min(d, d_v) / (0.70712 sqrt M)), a = g d / (2 s sqrt M) and c = g d_v / (2 s sqrt M), each at least
/// 0.70711 and at most 1: (10 d / sqrt M - 4) N for d_v = d >= 2 sqrt M. Class PA in which each pair word is made of
/// scores or made for dS: one word does not serve for both.
Bound b10(const AttentionProblem& x);

/// All bounds, in this order; only the trivial bound for a score function that allows products to be reassociated
/// (identity).
std::vector<Bound> backward_bounds(const AttentionProblem& x);

}  // namespace redblue::bound
