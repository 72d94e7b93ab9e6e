#pragma once
#include "redblue/core/types.hpp"

namespace redblue {

/// Which keys a query sees. Causal with offset: the query at position p sees keys j <= p + offset.
/// Rows are `group` query heads sharing one key-value head, position-major: row r is position r / group.
struct Mask {
  bool causal = false;
  index_t offset = 0;
  index_t group = 1;

  /// How many of n_k keys row r sees: always the first ones.
  constexpr index_t visible(index_t row, index_t n_k) const {
    return causal ? std::clamp<index_t>(row / group + 1 + offset, 0, n_k) : n_k;
  }
  /// How many of the `rows` rows do not see `key`: always the first ones.
  constexpr index_t blind(index_t key, index_t rows) const {
    return causal ? std::clamp<index_t>(group * (key - offset), 0, rows) : 0;
  }
  /// How many of n_k keys at least one row of [row, row + count) sees. The last row sees the most.
  constexpr index_t visible(index_t row, index_t count, index_t n_k) const { return visible(row + count - 1, n_k); }
};

}  // namespace redblue
