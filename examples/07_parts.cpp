// Keys that come in parts, as from a file: attention goes on from what the parts before gave, and two states merge.
#include <cmath>
#include <iostream>
#include <limits>
#include <random>
#include <vector>

#include "redblue/attention.hpp"

int main() {
  // 1. One head: 40 queries, and 100 keys, of which 32 are at hand at a time. o and lse begin as those of no key.
  constexpr redblue::index_t n_q = 40, n_k = 100, d = 16, most = 32;
  auto random = [generator = std::mt19937(1)](redblue::index_t rows) mutable {
    std::normal_distribution<float> normal;
    std::vector<float> x(static_cast<std::size_t>(rows * d));
    for (float& e : x) e = normal(generator);
    return x;
  };
  std::vector<float> q = random(n_q), k = random(n_k), v = random(n_k), o(q.size());
  std::vector<float> lse(n_q, -std::numeric_limits<float>::infinity());
  const redblue::Tensor q_all(q, {1, 1, n_q, d});
  const redblue::Outputs into{{o, {1, 1, n_q, d}}, {lse, {1, 1, n_q, 1}}};

  // 2. Causal: query i sees the keys up to i + 60, which is i + 60 - begin in the part that begins there.
  redblue::Words moved;
  for (redblue::index_t begin = 0; begin < n_k; begin += most) {
    const redblue::index_t n = std::min(most, n_k - begin);
    redblue::Problem kind;
    kind.causal = true;
    kind.causal_offset = n_k - n_q - begin;
    const std::span<float> k_part(k.data() + begin * d, static_cast<std::size_t>(n * d));
    const std::span<float> v_part(v.data() + begin * d, static_cast<std::size_t>(n * d));
    const redblue::Inputs part{q_all, {k_part, {1, 1, n, d}}, {v_part, {1, 1, n, d}}};
    moved += redblue::attention_partial(part, into, kind, {.M = 1000}).io.total();
  }

  // 3. One call attends to all keys.
  redblue::Problem whole{.n_q = n_q, .n_k = n_k, .d = d, .d_v = d};
  whole.causal = true;
  std::vector<float> all(o.size());
  const redblue::plan::Plan plan = redblue::plan::make_plan(whole, {.M = 1000});
  redblue::run(plan, {q_all, {k, {1, 1, n_k, d}}, {v, {1, 1, n_k, d}}}, {{all, {1, 1, n_q, d}}, {}});
  float gap = 0;
  for (std::size_t i = 0; i < o.size(); ++i) gap = std::max(gap, std::abs(o[i] - all[i]));
  std::cout << "parts moved " << moved.str() << " words, one call " << plan.io().total().str()
            << "; the largest difference is " << gap << '\n';
  return gap < 1e-5F ? 0 : 1;
}
