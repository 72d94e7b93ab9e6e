#pragma once
#include <cstdint>
#include <random>
#include <vector>

#include "redblue/problem/problem.hpp"

namespace redblue::test {

inline Problem problem(index_t n_q, index_t n_k, index_t d, index_t d_v) {
  Problem p;
  p.n_q = n_q;
  p.n_k = n_k;
  p.d = d;
  p.d_v = d_v;
  return p;
}

enum class Kind : std::uint8_t { normal, huge_logits };

/// Contiguous [batch, heads or kv_heads, sequence, features]; every value is exact in fp32.
struct Data {
  std::vector<double> q, k, v;
};

inline std::vector<double> normal(index_t words, std::mt19937_64& random) {
  std::normal_distribution<float> n01;
  std::vector<double> x(static_cast<std::size_t>(words));
  for (double& e : x) e = static_cast<double>(n01(random));
  return x;
}

/// normal: N(0,1). huge_logits: scores around +-1e4, which break careless softmaxes.
inline Data generate(const Problem& p, Kind kind = Kind::normal, std::uint64_t seed = 1) {
  std::mt19937_64 random(seed);
  const index_t instances = p.batch * p.kv_heads.value_or(p.heads);
  Data x{normal(p.batch * p.heads * p.n_q * p.d, random), normal(instances * p.n_k * p.d, random),
         normal(instances * p.n_k * p.d_v, random)};
  if (kind == Kind::huge_logits)
    for (std::vector<double>* words : {&x.q, &x.k})
      for (double& e : *words) e = static_cast<double>(static_cast<float>(100 * e));
  return x;
}

}  // namespace redblue::test
