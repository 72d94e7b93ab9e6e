#pragma once
#include <cmath>
#include <limits>
#include <vector>

#include "redblue/problem.hpp"

/// Plain attention, written from its definition and from nothing else in this repository.
namespace redblue::test {

/// Contiguous [batch, heads, sequence, features], in fp64 whatever was computed in.
struct Result {
  std::vector<double> o, lse;
};

/// Attention in T: all scores of a row, their maximum, their weights, the weighted sum. Inputs are contiguous
/// [batch, heads or kv_heads, sequence, features]. Query i sees keys j <= i + offset; a row that sees none gives 0 and
/// -inf; a NaN score makes its row NaN, as in PyTorch.
template <class T>
Result attend(const Problem& p, const std::vector<double>& q, const std::vector<double>& k,
              const std::vector<double>& v) {
  const auto at = [](const std::vector<double>& x, index_t i) {
    return static_cast<T>(x[static_cast<std::size_t>(i)]);
  };
  const index_t kv_heads = p.kv_heads.value_or(p.heads), offset = p.causal_offset.value_or(p.n_k - p.n_q);
  const T scale = static_cast<T>(p.scale.value_or(1 / std::sqrt(static_cast<double>(p.d))));
  Result r;
  for (index_t b = 0; b < p.batch; ++b)
    for (index_t h = 0; h < p.heads; ++h)
      for (index_t i = 0; i < p.n_q; ++i) {
        const index_t q_row = (b * p.heads + h) * p.n_q + i;
        const index_t kv_row = (b * kv_heads + h / (p.heads / kv_heads)) * p.n_k;
        const index_t seen = p.causal ? std::min(std::max<index_t>(i + offset + 1, 0), p.n_k) : p.n_k;
        std::vector<T> s;
        T m = -std::numeric_limits<T>::infinity();
        for (index_t j = 0; j < seen; ++j) {
          T sum = 0;
          for (index_t t = 0; t < p.d; ++t) sum += at(q, q_row * p.d + t) * at(k, (kv_row + j) * p.d + t);
          s.push_back(scale * sum);
          if (s.back() > m || std::isnan(s.back())) m = s.back();
        }
        T l = 0;
        for (T& x : s) l += x = std::exp(x - m);
        for (index_t t = 0; t < p.d_v; ++t) {
          T sum = 0;
          for (index_t j = 0; j < seen; ++j) sum += s[static_cast<std::size_t>(j)] * at(v, (kv_row + j) * p.d_v + t);
          r.o.push_back(seen == 0 ? 0.0 : static_cast<double>(sum / l));
        }
        r.lse.push_back(static_cast<double>(m + std::log(l)));
      }
  return r;
}

/// The truth: naive attention in fp64.
inline Result oracle(const Problem& p, const std::vector<double>& q, const std::vector<double>& k,
                     const std::vector<double>& v) {
  return attend<double>(p, q, k, v);
}

}  // namespace redblue::test
