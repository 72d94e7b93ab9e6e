#pragma once
#include <vector>

#include "redblue/problem/problem.hpp"
#include "redblue/verify/oracle/dense.hpp"

/// The dense oracle over batches and heads, on plain vectors.
namespace redblue::test {

/// Contiguous [batch, heads, sequence, features], in fp64 whatever was computed in.
struct Result {
  std::vector<double> o, lse;
};

/// One head of one batch.
inline Problem head_of(const Problem& p, index_t b, index_t h) {
  Problem head = p;
  head.batch = head.heads = 1;
  head.kv_heads.reset();
  if (const auto given = static_cast<index_t>(p.patterns.size()); given > 1)
    head.patterns = {std::make_shared<const RunLists>(p.patterns[static_cast<std::size_t>((b * p.heads + h) % given)])};
  return head;
}

/// Attention in T. Inputs are contiguous [batch, heads or kv_heads, sequence, features].
template <class T>
Result attend(const Problem& p, const std::vector<double>& q, const std::vector<double>& k,
              const std::vector<double>& v) {
  const auto rows = [](const std::vector<double>& x, index_t instance, Shape shape) {
    oracle::Matrix<T> m(shape);
    const double* const from = x.data() + instance * shape.words();
    for (std::size_t i = 0; i < m.words.size(); ++i) m.words[i] = static_cast<T>(from[i]);
    return m;
  };
  const index_t kv_heads = p.kv_heads.value_or(p.heads);
  Result r;
  for (index_t b = 0; b < p.batch; ++b)
    for (index_t h = 0; h < p.heads; ++h) {
      const index_t kv = b * kv_heads + h / p.group();
      const Problem head = head_of(p, b, h);
      const oracle::Dense<T> dense(head, {{SlowArray::Q, rows(q, b * p.heads + h, {p.n_q, p.d})},
                                          {SlowArray::K, rows(k, kv, {p.n_k, p.d})},
                                          {SlowArray::V, rows(v, kv, {p.n_k, p.d_v})}});
      const oracle::Matrices<T> forward = dense.forward();
      for (const T x : forward.at(SlowArray::O).words) r.o.push_back(static_cast<double>(x));
      for (const T x : forward.at(SlowArray::lse).words) r.lse.push_back(static_cast<double>(x));
    }
  return r;
}

/// The truth: attention in fp64.
inline Result truth_of(const Problem& p, const std::vector<double>& q, const std::vector<double>& k,
                       const std::vector<double>& v) {
  return attend<double>(p, q, k, v);
}

}  // namespace redblue::test
