#include "redblue/bounds/backward.hpp"

#include <algorithm>
#include <cmath>

#include "redblue/bounds/bytes.hpp"
#include "redblue/bounds/rounding.hpp"
#include "redblue/masks/visible.hpp"

namespace redblue::bound {

Bound backward_trivial(const AttentionProblem& x) {
  // A row that sees one key has P = 1 and dS = 0: it needs neither its query nor that key.
  const Need need = need_of(x);
  const Words width = Words(x.d) + x.d_v;
  const Words inputs = need.scored_rows * x.d + need.rows * x.d_v + need.scored_keys * width;
  const Words outputs = Words(x.n_q) * x.d + x.n_k * width;
  return {inputs + Words(x.instances) * outputs, "trivial", kAny, "proved", "none", true};
}

Bound b_prime(const AttentionProblem& x) { return b_prime(x, scored_pairs(x)); }
Bound b_prime(const AttentionProblem& x, Words pairs) {
  constexpr int kSteps = 200;
  const long double all = pairs.to_long_double(), fast = x.M.to_long_double();
  const long double most = largest_line<2 * (kSteps - 1)>([&]<class T>(T, int k) -> Line<T> {
    const T N = static_cast<T>(all), M = static_cast<T>(fast), root = std::sqrt(M);
    const T d = static_cast<T>(x.d), d_v = static_cast<T>(x.d_v), c = 1 - 1 / (2 * M);
    const int step = k / 2 + 1;
    const T a = static_cast<T>(step) / kSteps, width = (a + 2 * std::sqrt(1 - a)) * d + std::sqrt(T(2)) * d_v;
    if (k % 2 == 0) return start_line<T>(c, std::min<T>(1, c * 2 * a * d / root), width, N, root, M).lowered();
    if (root <= 2 * a * d) return start_line<T>(1, 1, width, N, root, M).lowered();
    return {-std::numeric_limits<T>::infinity(), 0};
  });
  return {ceil_words(most), "B'", kPA, "proved", kDistinct, true};
}

long double b_double_prime_cost(const AttentionProblem& x) {
  const long double d = static_cast<long double>(x.d), d_v = static_cast<long double>(x.d_v);
  const bool narrow = Words(x.d_v) * x.d_v <= Words(2) * x.d * x.d;
  return narrow ? (2 * d + d_v) * (2 * d + 2 * d_v) : (6 + 4 * std::sqrt(2.0L)) * d * d_v;
}

Bound b_double_prime(const AttentionProblem& x) { return b_double_prime(x, scored_pairs(x)); }
Bound b_double_prime(const AttentionProblem& x, Words pairs) {
  const bool holds = x.d_v <= 2 * x.d;
  const long double words = value(pairs, b_double_prime_cost(x), x.M);
  return {holds ? ceil_words(words, words + 20 * x.M.to_long_double()) : Words(0), "B''", kPA, "proved",
          "d_v <= 2 d; Q, K, V, dO distinct arrays, each word read as it is",      holds};
}

Bound b14(const AttentionProblem& x) {
  constexpr long double kUnit = 100000;  // k is kept in units of 1/100000
  const long double N = scored_pairs(x).to_long_double(), M = x.M.to_long_double();
  const long double d = static_cast<long double>(x.d), d_v = static_cast<long double>(x.d_v);
  const Words width = Words(x.d) + x.d_v;
  const long double outputs = (Words(x.instances) * (Words(x.n_q) * x.d + x.n_k * width)).to_long_double();
  const auto line = [&](long double k, long double h) {
    const long double moved = 2 * k * (N - M) / (kUnit * (2 * M + h + 1));
    return ceil_words(std::ceil(moved - std::ldexp(std::abs(moved), -60)) - outputs, 0);
  };
  const bool holds = x.d <= 8 * x.d_v && x.d_v <= x.d;
  Words words = 0;
  if (holds) {
    const long double k = kUnit * (d + d_v) * (4 * d + 3 * d_v) - 13 * d * d;
    words = line(k, std::ceil(4 * k / 300000));
    if (x.d_v == x.d && x.mask.full() && x.sequences == nullptr) {
      const long double k_dense = 1389600 * d * d;
      words = std::max(words, line(k_dense, std::ceil(10 * k_dense / 900000)));
    }
  }
  return {words, "B14", kStrictPA, "proved", "d <= 8 d_v <= 8 d; Q, K, V, dO distinct arrays, each word read as it is",
          holds};
}

Bound b10(const AttentionProblem& x) {
  constexpr long double kLeast = 0.70711L;  // 2 a^2 >= 1; s is a little less than it may be, so that rounding is safe
  const long double N = scored_pairs(x).to_long_double(), M = x.M.to_long_double(), root = std::sqrt(M);
  const long double d = static_cast<long double>(x.d), d_v = static_cast<long double>(x.d_v), g = 1 - 0.1L / (M * M);
  const long double outputs =
      (Words(x.instances) * (Words(x.n_q) * x.d + x.n_k * (Words(x.d) + x.d_v))).to_long_double();
  const long double s = std::min(1.0L, g * std::min(d, d_v) / (0.70712L * root));
  const long double a = std::clamp(g * d / (2 * s * root), kLeast, 1.0L);
  const long double c = std::clamp(g * d_v / (2 * s * root), kLeast, 1.0L);
  const long double products = 2 * g * s * N * ((a + 2) * d + (c + 1) * d_v) / root;
  const long double rest = 2 * s * s * (a * a + c * c) * N + outputs;
  return {ceil_words(products - rest, std::max(products, rest)),  "B10", kTwoKindsPA, "proved",
          "Q, K, V, dO distinct arrays, each word read as it is", true};
}

std::vector<Bound> backward_bounds(const AttentionProblem& x) {
  if (x.score == Score::identity) return {backward_trivial(x)};
  std::vector<Bound> list{backward_trivial(x), b_prime(x), b_double_prime(x), b14(x), b10(x)};
  if (x.bytes > 0) list.push_back(b_double_prime_bytes(x));
  return list;
}

}  // namespace redblue::bound
