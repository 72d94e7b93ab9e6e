#include "redblue/bound/forward.hpp"

#include <algorithm>
#include <cmath>

#include "redblue/core/visible.hpp"

namespace redblue::bound {

namespace {

constexpr std::string_view kAny = "any schedule";
constexpr std::string_view kPA = "PA (plain algebra, recomputation included)";
constexpr std::string_view kTrees = "standard summation trees, strict red-blue pebbling, recomputation included";

/// The least integer not below x - error: an integer that x is within rounding of is reached, never overshot. `scale`
/// is the largest magnitude that entered x; 2^-60 of it covers a handful of roundings of 2^-64.
Words ceil_words(long double x, long double scale) {
  const long double lowered = std::ceil(x - std::ldexp(scale, -60));
  return lowered <= 0 ? Words(0) : Words::from_int128(static_cast<redblue::detail::int128>(lowered));
}

}  // namespace

Words scored_pairs(const ForwardProblem& x) {
  const index_t one = first_row_seeing(x.mask, x.n_q, x.n_k, 1), two = first_row_seeing(x.mask, x.n_q, x.n_k, 2);
  return Words(x.instances) * (visible_pairs(x.mask, x.n_q, x.n_k) - (two - one));
}

Bound trivial(const ForwardProblem& x) {
  const index_t scored_rows = x.n_q - first_row_seeing(x.mask, x.n_q, x.n_k, 2);
  const index_t seen = x.mask.visible(x.n_q - 1, x.n_k);  // by the last row, which sees most
  const Words inputs = Words(scored_rows) * x.d + Words(scored_rows > 0 ? seen : 0) * x.d + Words(seen) * x.d_v;
  const Words outputs = Words(x.n_q) * x.d_v + (x.lse_required ? x.n_q : 0);
  return {Words(x.instances) * (inputs + outputs), "trivial", kAny, "proved", "none", true};
}

Bound f_prime(const ForwardProblem& x) {
  const long double N = scored_pairs(x).to_long_double(), M = x.M.to_long_double();
  const long double d = static_cast<long double>(x.d), sum = d + static_cast<long double>(x.d_v), root = std::sqrt(M);
  const auto line = [&](long double c, long double s) {
    const long double products = 2 * c * s * sum * N / root;
    return ceil_words(products - s * s * N - M, std::max({products, s * s * N, M}));
  };
  const long double c = 1 - 1 / (2 * M);
  Words words = line(c, std::min(1.0L, c * std::min(sum, 2 * d) / root));
  if (x.M <= Words(4) * x.d * x.d) words = std::max(words, line(1, 1));
  return {words, "F'", kPA, "proved", "Q, K, V distinct arrays, each word read as it is", true};
}

long double value(Words N, Words K, Words M) {
  const long double n = N.to_long_double(), k = 4 * K.to_long_double(), m = M.to_long_double();
  long double best = 0;
  for (int t = 8; t <= 160; ++t) {
    const long double L = (M * t / 8).to_long_double();
    const long double most = std::max({(m + L) * (m + L) / k, m + L / 2, L * L / k + m, m * m / k + L / 2});
    best = std::max(best, L * n / most - (L - m));
  }
  return best;
}

Bound f_double_prime(const ForwardProblem& x) {
  const Words sum = Words(x.d) + x.d_v, K = x.d_v <= x.d ? sum * sum : Words(4) * x.d * x.d_v, N = scored_pairs(x);
  const long double words = value(N, K, x.M);
  return {ceil_words(words, words + 20 * x.M.to_long_double()), "F''", kPA, "proved",
          "Q, K, V distinct arrays, each word read as it is",   true};
}

Bound g(const ForwardProblem& x) {
  const long double N = scored_pairs(x).to_long_double(), M = x.M.to_long_double(),
                    dd = static_cast<long double>(x.d) * static_cast<long double>(x.d);
  const long double parts = N * dd / (M + 4 * dd);
  return {ceil_words(parts - M, std::max(parts, M)), "G", kTrees, "proved", "Q, K distinct arrays", true};
}

std::vector<Bound> forward_bounds(const ForwardProblem& x) { return {trivial(x), f_prime(x), f_double_prime(x), g(x)}; }

Bound best(const std::vector<Bound>& bounds) {
  Bound best = bounds.front();
  for (const Bound& b : bounds)
    if (b.holds && b.status == "proved" && b.words > best.words) best = b;
  return best;
}

}  // namespace redblue::bound
