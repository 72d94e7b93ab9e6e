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

/// A window without an edge on a side where nothing is given.
inline Problem windowed(Problem p, std::optional<index_t> left, std::optional<index_t> right, index_t prefix = 0) {
  p.window_left = left;
  p.window_right = right;
  p.prefix = prefix;
  return p;
}

}  // namespace redblue::test
