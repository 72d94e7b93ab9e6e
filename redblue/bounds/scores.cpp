#include "redblue/bounds/scores.hpp"

#include <algorithm>
#include <cmath>

#include "redblue/bounds/rounding.hpp"
#include "redblue/problem/sequences.hpp"

namespace redblue::bound {

namespace {

constexpr std::string_view kQK = "Q, K distinct arrays, each word read as it is";

/// The pairs of all instances whose words must be formed, and all pairs.
Words visible(const AttentionProblem& x) { return Words(x.instances / batches_of(x)) * visible_pairs(Sizes(x)); }
Words all(const AttentionProblem& x) { return Words(x.instances) * x.n_q * x.n_k; }

/// ceil(2 c s d N / sqrt M - s^2 N - M + N), and the hidden pairs.
Words line(const AttentionProblem& x, long double c, long double s, bool last_write) {
  const long double N = visible(x).to_long_double(), M = x.M.to_long_double(), d = static_cast<long double>(x.d);
  const long double products = 2 * c * s * d * N / std::sqrt(M), writes = last_write ? (1 - s * s) * N : 0;
  return ceil_words(products + writes - M, std::max({products, writes, M})) + all(x) - visible(x);
}

}  // namespace

Bound scores_trivial(Operation op, const AttentionProblem& x) {
  const Need need = need_of(x);
  const Words lse = op == Operation::weights ? need.rows * x.statistics() : Words(0);
  return {(need.rows + need.keys) * x.d + lse + all(x), "trivial", kAny, "proved", "none", true};
}

Bound gemm(const AttentionProblem& x) { return {line(x, 1, 1, false), "GEMM", kPA, "proved", kQK, true}; }

Bound s_prime(const AttentionProblem& x) {
  const long double M = x.M.to_long_double(), c = 1 - 1 / (2 * M);
  const long double s = std::min(1.0L, c * static_cast<long double>(x.d) / std::sqrt(M));
  return {line(x, c, s, true), "S'", kPA, "derived", kQK, true};
}

std::vector<Bound> scores_bounds(Operation op, const AttentionProblem& x) {
  return {scores_trivial(op, x), gemm(x), s_prime(x)};
}

}  // namespace redblue::bound
