#pragma once
#include "redblue/core/types.hpp"

namespace redblue {

/// Which keys a query sees. Causal with offset: the query at position p sees keys j <= p + offset.
/// Rows are `group` query heads sharing one key-value head, position-major: row r is position r / group.
struct Mask {
  bool causal = false;
  index_t offset = 0;
  index_t group = 1;

  /// How many leading keys row r sees, of n_k.
  constexpr index_t visible(index_t row, index_t n_k) const {
    return causal ? std::clamp<index_t>(row / group + 1 + offset, 0, n_k) : n_k;
  }
  /// How many leading rows of `rows` do not see `key`.
  constexpr index_t blind(index_t key, index_t rows) const {
    return causal ? std::clamp<index_t>(group * (key - offset), 0, rows) : 0;
  }
  /// How many leading keys some row of [row, row + count) sees: the last row sees most.
  constexpr index_t visible(index_t row, index_t count, index_t n_k) const { return visible(row + count - 1, n_k); }
};

}  // namespace redblue
