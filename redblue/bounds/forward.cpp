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

Bound f_prime(const AttentionProblem& x) { return f_prime(x, scored_pairs(x)); }
Bound f_prime(const AttentionProblem& x, Words pairs) {
  const long double N = pairs.to_long_double(), M = x.M.to_long_double();
  const long double d = static_cast<long double>(x.d), sum = d + static_cast<long double>(x.d_v), c = 1 - 1 / (2 * M);
  Words words = start_words(c, std::min(1.0L, c * std::min(sum, 2 * d) / std::sqrt(M)), sum, N, M, M);
  if (x.M <= Words(4) * x.d * x.d) words = std::max(words, start_words(1, 1, sum, N, M, M));
  return {words, "F'", kPA, "proved", kDistinct, true};
}

Bound f_double_prime(const AttentionProblem& x) { return f_double_prime(x, scored_pairs(x)); }
Bound f_double_prime(const AttentionProblem& x, Words pairs) {
  const Words sum = Words(x.d) + x.d_v, K = x.d_v <= x.d ? sum * sum : Words(4) * x.d * x.d_v;
  const long double words = value(pairs, K.to_long_double(), x.M);
  return {ceil_words(words, words + 20 * x.M.to_long_double()), "F''", kPA, "proved", kDistinct, true};
}

Bound g(const AttentionProblem& x) {
  const long double N = scored_pairs(x).to_long_double(), M = x.M.to_long_double(),
                    dd = static_cast<long double>(x.d) * static_cast<long double>(x.d);
  const long double parts = N * dd / (M + 4 * dd);
  return {ceil_words(parts - M, std::max(parts, M)), "G", kTrees, "proved", "Q, K distinct arrays", true};
}

Bound merge(const AttentionProblem& x) {
  return {Words(3) * x.instances * x.n_q * (Words(x.d_v) + 1), "trivial", kAny, "proved", "none", true};
}

/// Outputs that are given (docs/proofs/accumulating.md): a schedule that takes 0 and -inf for each word that it reads
/// of them is one of the problem where none are given, and each word that changes is read once. Others are not written.
void add_given_outputs(Operation op, const AttentionProblem& x, std::vector<Bound>& list) {
  const Need need = need_of(x);
  const bool backward = op == Operation::backward;
  const Words of_key = Words(x.d) + x.d_v, of_row = Words(x.d_v) + x.statistics();
  const Words all = backward ? Words(x.n_q) * x.d + x.n_k * of_key : x.n_q * of_row;
  const Words changed =
      backward ? need.scored_rows * x.d + need.scored_keys * x.d + need.keys * x.d_v : need.rows * of_row;
  for (Bound& b : list) {
    b.words += changed;
    if (b.name == "trivial") b.words -= x.instances * all - changed;
    if (b.status == "proved") continue;
    b.holds = false;
    b.condition = "no given outputs";
  }
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
