#include "redblue/bounds/bytes.hpp"

#include <algorithm>
#include <cmath>

#include "redblue/bounds/backward.hpp"
#include "redblue/bounds/rounding.hpp"

namespace redblue::bound {

namespace {

long double real(index_t x) { return static_cast<long double>(x); }

/// max over L of (L - event) N / G - (L - M) - free, and the largest magnitude that enters it.
struct Segments {
  long double N, K, M, tau;
  long double event;  ///< the most that one event charges
  long double free;   ///< what the first visits of outputs are charged too much

  Words best() const {
    constexpr int kFirst = 8, kLast = 160;
    return ceil_words(largest_line<kLast - kFirst + 1>([&]<class T>(T, int step) -> Line<T> {
      const T m = static_cast<T>(M), k = static_cast<T>(4 * K), w = static_cast<T>(tau), L = m * (kFirst + step) / 8;
      const T G = std::max({(m + L) * (m + L) / k, w * m + L / 2, L * L / k + w * m, m * m / k + L / 2});
      const T moved = (L - static_cast<T>(event)) * static_cast<T>(N) / G, rest = L - m + static_cast<T>(free);
      return Line<T>{moved - rest, std::abs(moved) + rest}.lowered();
    }));
  }
};

long double least_width(const AttentionProblem& x, std::initializer_list<SlowArray> arrays) {
  Words least = x.word(*arrays.begin());
  for (const SlowArray a : arrays) least = std::min(least, x.word(a));
  return least.to_long_double();
}

}  // namespace

Bound f_double_prime_bytes(const AttentionProblem& x) {
  using enum SlowArray;
  const long double d = real(x.d), d_v = real(x.d_v), N = scored_pairs(x).to_long_double();
  const long double outputs = (Words(x.instances) * x.n_q * x.d_v).to_long_double();
  const auto width = [&](SlowArray a) { return x.word(a).to_long_double(); };
  const auto line = [&](long double u, long double chi) {
    const auto weight = [&](SlowArray a) { return std::min(1.0L, width(a) / u); };
    const long double a_O = std::min(chi, width(O) / u);
    const auto cost = [&](long double h) {
      return (h * weight(Q) * d + a_O * d_v) * (h * weight(K) * d + weight(V) * d_v) / h;
    };
    long double h = 1;
    while (cost(h + 1) < cost(h)) ++h;  // convex in h
    return Segments{N, cost(h), x.bytes.to_long_double() / u, std::max(u / width(S), 0.5L), chi, (chi - 1) * outputs}
        .best();
  };
  Words words = 0;
  for (const SlowArray a : {Q, K, V, O})
    for (const long double u : {width(a), width(a) / 2})
      for (const long double chi : {1.0L, 2.0L, width(O) / u})
        if (1 <= chi && chi <= 2) words = std::max(words, line(u, chi));
  return {words, "F''_B", kPA, "proved", kDistinct, true};
}

Bound f_prime_bytes(const AttentionProblem& x) {
  using enum SlowArray;
  const long double w = least_width(x, {Q, K, V, O}), M = x.bytes.to_long_double() / w, root = std::sqrt(M);
  const long double N = scored_pairs(x).to_long_double(), d = real(x.d), d_v = real(x.d_v);
  const long double outputs = (Words(x.instances) * x.n_q * x.d_v).to_long_double();
  Words words = 0;
  for (const long double beta : {1.0L, std::min(2.0L, x.word(O).to_long_double() / w)}) {
    const long double c = 1 - beta / (2 * M), sum = d + std::sqrt(beta) * d_v;
    if (c <= 0) continue;
    const long double s = std::min({1.0L, std::sqrt(x.word(S).to_long_double() / w), 2 * c * d / root, c * sum / root});
    words = std::max(words, start_words(c, s, sum, N, M, M + (beta - 1) * outputs));
  }
  return {words, "F'_B", kPA, "proved", kDistinct, true};
}

Bound b_double_prime_bytes(const AttentionProblem& x) {
  using enum SlowArray;
  const long double gradients = least_width(x, {dQ, dK, dV}), w = std::min(gradients, least_width(x, {Q, K, V, dO}));
  const long double d = real(x.d), d_v = real(x.d_v), M = x.bytes.to_long_double() / w;
  const long double N = scored_pairs(x).to_long_double(), tau = std::max(w / x.word(S).to_long_double(), 0.5L);
  const long double outputs =
      (Words(x.instances) * (Words(x.n_q) * x.d + x.n_k * (Words(x.d) + x.d_v))).to_long_double();
  const bool holds = x.d_v <= 2 * x.d;
  Words words = holds ? Segments{N, b_double_prime_cost(x), M, tau, 1, 0}.best() : Words(0);
  if (gradients >= 2 * w && x.d_v <= x.d)
    words = std::max(words, Segments{N, (d + d_v) * (6 * d + 4 * d_v), M, tau, 2, outputs}.best());
  return {words, "B''_B", kPA, "proved", "d_v <= 2 d; Q, K, V, dO distinct arrays, each word read as it is", holds};
}

}  // namespace redblue::bound
