#include "redblue/bound/projected.hpp"

#include <algorithm>
#include <cmath>

#include "rounding.hpp"

namespace redblue::bound {

namespace {

constexpr std::string_view kGradient = "PA; S, h formed anew at will, any handling of U = p A2, T = A1^T p and g";
constexpr std::string_view kFullRank =
    "n_k >= 2; X, Y without exploitable low rank; distinct arrays but as --sources says";
constexpr std::string_view kCompleteU =
    "PA, every word of U complete before it is multiplied, S not formed anew per visit";
constexpr std::string_view kFormsU = "PA, U = P A formed as such";

/// Words of A1, A2, A3 with `cols` columns: what is one array counts once.
Words source_words(const AttentionProblem& x, index_t cols) {
  const Words queries = Words(x.n_q) * cols, keys = Words(x.n_k) * cols;
  switch (x.sources) {
    case Sources::distinct:
      return queries + keys + keys;
    case Sources::shared:
      return queries + keys;
    case Sources::self:
      return keys;
  }
  return keys;
}

/// max over s in {1 if sqrt M <= most (c := 1), min(1, c most / sqrt M)} of 2 c s width N / sqrt M - s^2 N - rest.
Words start_bound(const AttentionProblem& x, long double width, long double most, long double rest) {
  const long double N = scored_pairs(x).to_long_double(), M = x.M.to_long_double(), root = std::sqrt(M),
                    c = 1 - 1 / (2 * M);
  const Words words = start_line(c, std::min(1.0L, c * most / root), width, N, M, M + rest);
  return root <= most ? std::max(words, start_line(1, 1, width, N, M, M + rest)) : words;
}

}  // namespace

Bound projected_trivial(Operation op, const AttentionProblem& x) {
  const Words d = x.d, d_v = x.d_v, A = source_words(x, x.d), O = Words(x.n_q) * d_v;
  const Words XY = d * d + d * d_v, n_A = Words(x.n_q) * d + Words(2) * x.n_k * d;
  const auto bound = [&](Words words) {
    return Bound{Words(x.instances) * words, "trivial", kAny, "proved", "none", true};
  };
  const bool scored = x.n_k >= 2;  // a row that sees one key has P = 1: dS = 0, and scores do not matter
  const Words values = Words(x.n_k) * d + d * d_v;
  switch (op) {
    case Operation::forward_x:
      return bound((scored ? A + XY : values) + O + (x.lse_required ? x.n_q : 0));
    case Operation::gradient_x:
      return bound((scored ? A + XY + O : Words(0)) + d * d);
    case Operation::backward_x:
      return bound((scored ? A + XY : values) + O + XY + n_A);
    default: {
      const Words W = Words(x.d_in) * (d + d + d_v);
      const Words in = scored ? source_words(x, x.d_in) + W : Words(x.n_k) * x.d_in + Words(x.d_in) * d_v;
      return bound(in + O + W + Words(x.d_in) * (Words(x.n_q) + x.n_k + x.n_k));
    }
  }
}

Bound gradient(const AttentionProblem& x) {
  const long double d = static_cast<long double>(x.d), row = d + static_cast<long double>(std::min(x.d, x.d_v));
  const long double K = x.sources == Sources::distinct ? row * row
                        : x.sources == Sources::shared ? d * row
                                                       : d * row / 4;
  const bool holds = x.n_k >= 2;
  const long double words = holds ? value(scored_pairs(x), K, x.M) : 0;
  return {ceil_words(words, words + 20 * x.M.to_long_double()), "g", kGradient, "proved", kFullRank, holds};
}

Bound gradient_prime(const AttentionProblem& x) {
  const bool holds = x.d_v <= x.d && x.n_k >= 2 && x.sources == Sources::distinct;
  const long double width = static_cast<long double>(x.d) + static_cast<long double>(x.d_v);
  // s <= c width / sqrt M, and s = 1 up to sqrt M = 2 width.
  const long double N = scored_pairs(x).to_long_double(), M = x.M.to_long_double(), c = 1 - 1 / (2 * M);
  Words words = start_line(c, std::min(1.0L, c * width / std::sqrt(M)), width, N, M, M);
  if (std::sqrt(M) <= 2 * width) words = std::max(words, start_line(1, 1, width, N, M, M));
  return {holds ? words : Words(0), "g'", kGradient, "derived", "d_v <= d; distinct arrays", holds};
}

Bound gradient_star(const AttentionProblem& x) {
  const bool holds = x.n_k >= 2 && x.sources == Sources::distinct;
  const long double width = std::sqrt(2.0L) * static_cast<long double>(x.d) + static_cast<long double>(x.d_v);
  const long double first = (Words(x.instances) * x.n_q * x.d).to_long_double();
  return {holds ? start_bound(x, width, width, first) : Words(0),         "g*", kCompleteU, "restricted",
          "6R, 9R-a, 9R-b, 9R-c, and 9R-d for d_v <= d; distinct arrays", holds};
}

Bound shared_source(const AttentionProblem& x) {
  const bool holds = x.n_k >= 2 && x.sources == Sources::shared;
  const long double width = std::sqrt(2.0L) * static_cast<long double>(x.d);
  return {holds ? start_bound(x, width, width, 0) : Words(0), "shared", kFormsU, "restricted", "A2 = A3", holds};
}

std::vector<Bound> projected_bounds(Operation op, const AttentionProblem& x) {
  const Bound first = projected_trivial(op, x);
  if (x.score == Score::identity || op == Operation::backward_w) return {first};
  if (op == Operation::forward_x) return {first, shared_source(x)};
  if (op == Operation::backward_x) return {first, gradient(x)};
  return {first, gradient(x), gradient_prime(x), gradient_star(x)};
}

}  // namespace redblue::bound
