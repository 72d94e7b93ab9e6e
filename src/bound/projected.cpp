#include "redblue/bound/projected.hpp"

#include <algorithm>
#include <cmath>

#include "redblue/core/visible.hpp"
#include "rounding.hpp"

namespace redblue::bound {

namespace {

constexpr std::string_view kGradient = "PA; S, h formed anew at will, any handling of U = p A2, T = A1^T p and g";
constexpr std::string_view kFullRank =
    "n_k >= 2; X, Y without exploitable low rank; distinct arrays but as --sources says";
constexpr std::string_view kCompleteU =
    "PA, every word of U complete before it is multiplied, S not formed anew per visit";
constexpr std::string_view kFormsU = "PA, U = P A formed as such";

/// How many of them both hold together.
Words together(Range a, Range b) { return Words(a.size()) + b.size() - intersection(a, b).size(); }

/// The needed rows of A1, A2 and A3, with the values of these keys, which hold the scored ones. An array that has
/// several roles counts once.
Words source_rows(const AttentionProblem& x, const Needed& need, Range values) {
  switch (x.sources) {
    case Sources::distinct:
      return Words(need.scored_rows.size()) + need.scored_keys.size() + values.size();
    case Sources::shared:
      return Words(need.scored_rows.size()) + values.size();
    case Sources::self:
      return together(need.scored_rows, values);
  }
  return 0;
}

/// min(1, c width / sqrt M): the largest price s of a start that g', g* and the shared line allow, apart from s = 1
/// with c := 1.
long double start_price(long double c, long double width, long double M) {
  return std::min(1.0L, c * width / std::sqrt(M));
}

}  // namespace

Bound projected_trivial(Operation op, const AttentionProblem& x) {
  const Needed need = needed_of(x.pairs());
  const Words d = x.d, d_v = x.d_v, d_in = x.d_in, n = Words(x.n_q) + x.n_k + x.n_k;
  const Words X = need.scored_rows.size() > 0 ? d * d : Words(0), Y = need.keys.size() > 0 ? d * d_v : Words(0);
  const Words A = source_rows(x, need, need.keys) * (op == Operation::backward_w ? d_in : d);
  const auto bound = [&](Words words) {
    return Bound{Words(x.instances) * words, "trivial", kAny, "proved", "none", true};
  };
  switch (op) {
    case Operation::forward_x:
      return bound(A + X + Y + x.n_q * d_v + (x.lse_required ? x.n_q : 0));
    case Operation::gradient_x: {
      const bool scores = x.score != Score::identity;  // else g = scale A1^T (dO h^T) A2, without X
      const Words scored =
          source_rows(x, need, need.scored_keys) * d + (scores ? X : Words(0)) + need.scored_rows.size() * d_v;
      return bound(scored + (need.scored_rows.size() > 0 ? Y : Words(0)) + d * d);
    }
    case Operation::backward_x:
      return bound(A + X + Y + need.rows.size() * d_v + d * d + d * d_v + n * d);
    default: {
      const Words W =
          (need.scored_rows.size() > 0 ? 2 * d_in * d : Words(0)) + (need.keys.size() > 0 ? d_in * d_v : Words(0));
      return bound(A + W + need.rows.size() * d_v + d_in * (2 * d + d_v) + n * d_in);
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
  Words words = start_line(c, start_price(c, width, M), width, N, M, M);
  if (std::sqrt(M) <= 2 * width) words = std::max(words, start_line(1, 1, width, N, M, M));
  return {holds ? words : Words(0), "g'", kGradient, "derived", "d_v <= d; distinct arrays", holds};
}

Bound gradient_star(const AttentionProblem& x) {
  const bool holds = x.n_k >= 2 && x.sources == Sources::distinct;
  const long double N = scored_pairs(x).to_long_double(), M = x.M.to_long_double(), c = 1 - 1 / (2 * M);
  const long double width = std::sqrt(2.0L) * static_cast<long double>(x.d) + static_cast<long double>(x.d_v);
  const long double rest = M + (Words(x.instances) * x.n_q * x.d).to_long_double();
  Words words = start_line(c, start_price(c, width, M), width, N, M, rest);
  if (std::sqrt(M) <= width) words = std::max(words, start_line(1, 1, width, N, M, rest));
  return {holds ? words : Words(0),
          "g*",
          kCompleteU,
          "restricted",
          "6R, 9R-a, 9R-b, 9R-c, and 9R-d for d_v <= d; distinct arrays",
          holds};
}

Bound shared_source(const AttentionProblem& x) {
  const bool holds = x.n_k >= 2 && x.sources == Sources::shared;
  const long double N = scored_pairs(x).to_long_double(), M = x.M.to_long_double(), c = 1 - 1 / (2 * M);
  const long double width = std::sqrt(2.0L) * static_cast<long double>(x.d);
  const Words words = start_line(c, start_price(c, width, M), width, N, M, M);
  return {holds ? words : Words(0), "shared", kFormsU, "restricted", "A2 = A3", holds};
}

std::vector<Bound> projected_bounds(Operation op, const AttentionProblem& x) {
  const Bound first = projected_trivial(op, x);
  if (x.score == Score::identity || op == Operation::backward_w) return {first};
  if (op == Operation::forward_x) return {first, shared_source(x)};
  if (op == Operation::backward_x) return {first, gradient(x)};
  return {first, gradient(x), gradient_prime(x), gradient_star(x)};
}

}  // namespace redblue::bound
