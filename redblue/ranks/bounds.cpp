#include "redblue/ranks/bounds.hpp"

#include <cmath>

#include "redblue/bounds/backward.hpp"
#include "redblue/bounds/forward.hpp"
#include "redblue/bounds/rounding.hpp"
#include "redblue/language/error.hpp"

namespace redblue::ranks {
namespace {

constexpr std::string_view kDistinctAtHome =
    "no dropout; Q, K, V distinct arrays, each word read as it is, each row of them at home on one rank";
constexpr std::string_view kBackwardAtHome =
    "no dropout, d_v <= 2 d; Q, K, V, dO distinct arrays, each word read as it is, each row of them at home on one "
    "rank";
constexpr std::string_view kHeadsAtHome =
    "forward without a mask and dropout, n_q = n_k, each query head with its own K and V, d_v <= d, n + m >= 2 (d + "
    "d_v) with m "
    "rows at home; Q, K, V distinct arrays, each word read as it is, each row of them at home on one rank";

long double pairs_of_a_rank(const Problem& p, const Homes& homes) {
  return bound::scored_pairs(bound_problem(p, 1)).to_long_double() / homes.ranks;
}

/// Does each visible pair need its score and all products with it?
bool forms_all_pairs(const Problem& p) {
  return p.dropout == 0 && p.approximation == nullptr && p.score != Score::identity;
}

/// A rank with X pairs whose items at home and others number V + home at most forms (V + home)^2 / (4 K) of them from
/// items, and one for each pair word that it receives.
Words words_for(long double X, long double K, Words home) {
  const long double moved = std::min(2 * std::sqrt(K * X), X), kept = home.to_long_double();
  return bound::ceil_words(moved - kept, std::max({moved, kept, X}));
}

}  // namespace

bound::Bound forward_over_ranks(const Problem& p, const Homes& homes) {
  const Words sum = Words(p.d) + p.d_v, K = p.d_v <= p.d ? sum * sum : Words(4) * p.d * p.d_v;
  const Words home = (homes.queries * p.heads + homes.keys * p.kv_heads.value_or(p.heads)) * sum * p.batch;
  return {words_for(pairs_of_a_rank(p, homes), K.to_long_double(), home),
          "F'' over ranks",
          bound::kPA,
          "proved",
          kDistinctAtHome,
          p.op == Operation::forward && forms_all_pairs(p)};
}

bound::Bound backward_over_ranks(const Problem& p, const Homes& homes) {
  const bool holds = p.op == Operation::backward && forms_all_pairs(p) && p.d_v <= 2 * p.d;
  const Words home = p.batch * (homes.queries * p.heads * (Words(2) * p.d + p.d_v) +
                                homes.keys * p.kv_heads.value_or(p.heads) * (Words(2) * p.d + Words(2) * p.d_v));
  const long double K = bound::b_double_prime_cost(bound_problem(p, 1));
  return {holds ? words_for(pairs_of_a_rank(p, homes), K, home) : Words(0),
          "B'' over ranks",
          bound::kPA,
          "proved",
          kBackwardAtHome,
          holds};
}

bound::Bound heads_over_ranks(const Problem& p, const Homes& homes) {
  const Words n = p.n_q, m = std::max(homes.queries, homes.keys), sum = Words(p.d) + p.d_v, P = homes.ranks;
  const bool holds = p.op == Operation::forward && forms_all_pairs(p) && p.kv_heads.value_or(p.heads) == p.heads &&
                     p.n_q == p.n_k && !p.several() && p.mask().full() && p.d_v <= p.d && n + m >= sum * 2;
  bound::Bound b{0, "heads over ranks", bound::kPA, "proved", kHeadsAtHome, holds};
  if (!holds || n < 2 || n * n <= P * m * m) return b;
  const Words times_P = p.instances() * (n * n - P * m * m), of_head = P * (n * n - m * m), f = times_P / of_head;
  const long double r = (times_P - f * of_head).to_long_double() / P.to_long_double(), rows = m.to_long_double();
  // sqrt(m^2 + r) - m without a difference of large numbers.
  const long double part = 2 * sum.to_long_double() * r / (std::sqrt(rows * rows + r) + rows);
  const Words whole = sum * 2 * f * (n - m);
  b.words = whole + bound::ceil_words(std::min(r, part), std::max(r, part));
  return b;
}

std::vector<bound::Bound> bounds_over_ranks(const Problem& p, const Homes& homes) {
  if (p.op == Operation::forward) return {forward_over_ranks(p, homes), heads_over_ranks(p, homes)};
  if (p.op == Operation::backward) return {backward_over_ranks(p, homes)};
  throw Unsupported("bounds over ranks are of forward and backward attention");
}

std::vector<bound::Bound> bounds_of_work(const Problem& p, int ranks, Words M) {
  const bound::AttentionProblem x = bound_problem(p, M);
  const Words pairs = bound::scored_pairs(x) / ranks;
  std::vector<bound::Bound> list = p.op == Operation::backward
                                       ? std::vector{bound::b_prime(x, pairs), bound::b_double_prime(x, pairs)}
                                       : std::vector{bound::f_prime(x, pairs), bound::f_double_prime(x, pairs)};
  for (bound::Bound& b : list) b.holds = b.holds && forms_all_pairs(p);
  return list;
}

bound::Bound best_over_ranks(const std::vector<bound::Bound>& bounds) {
  bound::Bound best{0, "trivial", bound::kAny, "proved", "none", true};
  for (const bound::Bound& b : bounds)
    if (b.holds && b.status == "proved" && b.words > best.words) best = b;
  return best;
}

}  // namespace redblue::ranks
