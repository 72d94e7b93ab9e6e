#pragma once
#include <array>
#include <random>
#include <string_view>
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

/// Inputs that break careless softmaxes, and ordinary ones.
enum class Kind : std::uint8_t { normal, huge_logits, all_equal, dominant_key };
inline constexpr std::array kAllKinds = {Kind::normal, Kind::huge_logits, Kind::all_equal, Kind::dominant_key};
constexpr std::string_view name_of(Kind k) {
  return k == Kind::normal        ? "normal"
         : k == Kind::huge_logits ? "huge_logits"
         : k == Kind::all_equal   ? "all_equal"
                                  : "dominant_key";
}

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

/// normal: N(0,1). huge_logits: scores around +-1e4. all_equal: every score the same. dominant_key: one key that all
/// queries of its batch and head give nearly all their weight.
inline Data generate(const Problem& p, Kind kind = Kind::normal, std::uint64_t seed = 1) {
  std::mt19937_64 random(seed);
  const index_t instances = p.batch * p.kv_heads.value_or(p.heads);
  Data x{normal(p.batch * p.heads * p.n_q * p.d, random), normal(instances * p.n_k * p.d, random),
         normal(instances * p.n_k * p.d_v, random)};
  switch (kind) {
    case Kind::normal:
      break;
    case Kind::huge_logits:
      for (double& e : x.q) e = static_cast<double>(static_cast<float>(100 * e));
      for (double& e : x.k) e = static_cast<double>(static_cast<float>(100 * e));
      break;
    case Kind::all_equal:
      for (double& e : x.q) e = 0.5;
      for (double& e : x.k) e = -0.25;
      break;
    case Kind::dominant_key:
      for (double& e : x.q) e = std::abs(e) + 1;
      for (index_t i = 0; i < instances; ++i) {
        const index_t key = std::uniform_int_distribution<index_t>(0, p.n_k - 1)(random);
        for (index_t t = 0; t < p.d; ++t) x.k[static_cast<std::size_t>((i * p.n_k + key) * p.d + t)] = 30;
      }
      break;
  }
  return x;
}

}  // namespace redblue::test
