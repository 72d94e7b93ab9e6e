#pragma once
#include "redblue/bounds/bound.hpp"

/// Lower bounds in words where fast memory holds x.bytes bytes and a resident word of each array takes x.fast: the
/// least width at which such a word is ever resident. Padding only adds to it. A streamed accumulator costs two words
/// per visit and a resident one takes the room of several operands, which bounds in words of the least width do not
/// see. Statements and proofs: docs/theorems.md, docs/proofs/bytes.md.
namespace redblue::bound {

/// F''_B: max over u, chi and L = M t/8, t = 8..160, M = bytes/u, of (L - chi) N/G - (L - M) - (chi - 1) |O| with
/// G = max{(M + L)^2/4K, tau M + L/2, L^2/4K + tau M, M^2/4K + L/2}, tau = max(u/w_S, 1/2),
/// K = min over h of (h a_Q d + a_O d_v)(h a_K d + a_V d_v)/h, a = min(1, w/u), a_O = min(chi, w_O/u). Class PA.
Bound f_double_prime_bytes(const AttentionProblem& x);

/// F'_B: max over beta and s <= min(1, sqrt(w_S/w), 2 c d/sqrt M) of
/// 2 c s (d + sqrt(beta) d_v) N/sqrt M - s^2 N - M - (beta - 1) |O|, w the least width of Q, K, V and O, M = bytes/w,
/// 1 <= beta <= min(2, w_O/w), c = 1 - beta/2M. Class PA.
Bound f_prime_bytes(const AttentionProblem& x);

/// B''_B: as F''_B with u = w, the least width of Q, K, V, dO, dQ, dK and dV, chi = beta and all gradients for O:
/// beta = 2 and K = (d + d_v)(6 d + 4 d_v) where every gradient has at least twice that width and d_v <= d; beta = 1
/// and the K of B'' for d_v <= 2 d. Class PA.
Bound b_double_prime_bytes(const AttentionProblem& x);

}  // namespace redblue::bound
