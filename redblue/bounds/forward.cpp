#include "redblue/bounds/forward.hpp"

#include <algorithm>
#include <cmath>

#include "redblue/bounds/bytes.hpp"
#include "redblue/bounds/rounding.hpp"
#include "redblue/masks/visible.hpp"

namespace redblue::bound {

namespace {

constexpr std::string_view kTrees = "standard summation trees, strict red-blue pebbling, recomputation included";

Words inputs(const AttentionProblem& x) {
  const Need need = need_of(x);
  return (need.scored_rows + need.scored_keys) * x.d + need.keys * x.d_v;
}

}  // namespace

Bound trivial(const AttentionProblem& x) { return trivial(x, inputs(x)); }
Bound trivial(const AttentionProblem& x, Words inputs) {
  const Words outputs = Words(x.n_q) * x.d_v + (x.lse_required ? x.n_q : 0);
  return {inputs + Words(x.instances) * outputs, "trivial", kAny, "proved", "none", true};
}

Bound f_prime(const AttentionProblem& x) {
  const long double N = scored_pairs(x).to_long_double(), M = x.M.to_long_double();
  const long double d = static_cast<long double>(x.d), sum = d + static_cast<long double>(x.d_v), c = 1 - 1 / (2 * M);
  Words words = start_line(c, std::min(1.0L, c * std::min(sum, 2 * d) / std::sqrt(M)), sum, N, M, M);
  if (x.M <= Words(4) * x.d * x.d) words = std::max(words, start_line(1, 1, sum, N, M, M));
  return {words, "F'", kPA, "proved", kDistinct, true};
}

Bound f_double_prime(const AttentionProblem& x) {
  const Words sum = Words(x.d) + x.d_v, K = x.d_v <= x.d ? sum * sum : Words(4) * x.d * x.d_v, N = scored_pairs(x);
  const long double words = value(N, K.to_long_double(), x.M);
  return {ceil_words(words, words + 20 * x.M.to_long_double()), "F''", kPA, "proved", kDistinct, true};
}

Bound g(const AttentionProblem& x) {
  const long double N = scored_pairs(x).to_long_double(), M = x.M.to_long_double(),
                    dd = static_cast<long double>(x.d) * static_cast<long double>(x.d);
  const long double parts = N * dd / (M + 4 * dd);
  return {ceil_words(parts - M, std::max(parts, M)), "G", kTrees, "proved", "Q, K distinct arrays", true};
}

std::vector<Bound> forward_bounds(const AttentionProblem& x) {
  if (x.score == Score::identity) return {trivial(x)};
  std::vector<Bound> list{trivial(x), f_prime(x), f_double_prime(x), g(x)};
  if (x.bytes > 0) {
    list.push_back(f_prime_bytes(x));
    list.push_back(f_double_prime_bytes(x));
  }
  return list;
}

}  // namespace redblue::bound
