#pragma once
#include <limits>
#include <optional>

#include "redblue/problem.hpp"

/// Variants of a problem.
namespace redblue::test {

inline constexpr double kMinusInfinity = -std::numeric_limits<double>::infinity();

inline Problem with_lse(Problem p) {
  p.lse_required = true;
  return p;
}
inline Problem with_heads(Problem p, index_t batch, index_t heads, index_t kv_heads) {
  p.batch = batch;
  p.heads = heads;
  p.kv_heads = kv_heads;
  return p;
}
inline Problem causal(Problem p, std::optional<index_t> offset = {}) {
  p.causal = true;
  p.causal_offset = offset;
  return p;
}

}  // namespace redblue::test
