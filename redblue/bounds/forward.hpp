#pragma once
#include "redblue/bounds/bound.hpp"

/// Lower bounds for forward attention. Statements and proofs: docs/theorems.md, docs/proofs/.
namespace redblue::bound {

/// Every needed input word is read once, every output word written once. For any schedule.
Bound trivial(const AttentionProblem& x);
/// The trivial bound of a method that needs these words of its inputs.
Bound trivial(const AttentionProblem& x, Words inputs);

/// F': max over s in {1 if M <= 4 d^2 (c := 1), min(1, c min(d + d_v, 2d) / sqrt M)} of
/// 2 c s (d + d_v) N / sqrt M - s^2 N - M, with c = 1 - 1/(2M). Class PA.
Bound f_prime(const AttentionProblem& x);
/// N is given: for a part of a run that forms these pairs.
Bound f_prime(const AttentionProblem& x, Words pairs);

/// F'': value(N, K, M) with K = (d + d_v)^2 if d_v <= d, else 4 d d_v. Class PA.
Bound f_double_prime(const AttentionProblem& x);
Bound f_double_prime(const AttentionProblem& x, Words pairs);

/// G: N d^2 / (M + 4 d^2) - M, any summation trees. A cross-check: F' implies it wherever it exceeds the trivial bound.
Bound g(const AttentionProblem& x);

/// Two states of attention become one: each word of both is read, and one state written.
Bound merge(const AttentionProblem& x);

/// Adds what is read of outputs that are given (Sizes::accumulate) to the bounds of forward or backward.
void add_given_outputs(Operation op, const AttentionProblem& x, std::vector<Bound>& list);

/// All bounds, in this order; only the trivial bound for a score function that allows P V to be reassociated
/// (identity).
std::vector<Bound> forward_bounds(const AttentionProblem& x);

}  // namespace redblue::bound
