#pragma once
#include "redblue/bounds/bound.hpp"

/// Lower bounds for a matrix of scores, or of weights. Statements and proofs: docs/theorems.md, docs/proofs/scores.md.
namespace redblue::bound {

/// Every needed input word is read once, every word of the matrix written once. For any schedule.
Bound scores_trivial(Operation op, const AttentionProblem& x);

/// GEMM: 2 d N / sqrt M - M for the N visible pairs, and a write of every hidden one. Class PA.
Bound gemm(const AttentionProblem& x);

/// S': 2 c s d N / sqrt M + (1 - s^2) N - M with s = min(1, c d / sqrt M) and c = 1 - 1/(2M), and a write of every
/// hidden pair. Class PA.
Bound s_prime(const AttentionProblem& x);

std::vector<Bound> scores_bounds(Operation op, const AttentionProblem& x);

}  // namespace redblue::bound
