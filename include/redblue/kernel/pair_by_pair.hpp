#pragma once
#include "redblue/core/types.hpp"

namespace redblue::kernel {

/// What a body of OnlineAttention takes for queries that each see few of the keys, here and there: row by row and pair
/// by pair, in multiply-adds of whole tiles. Measured on an AMD EPYC (docs/kernels.md).
struct PairByPair {
  static constexpr index_t kKeys = 256;  ///< of a row at a time

  double words;  ///< d + d_v
  explicit PairByPair(index_t words) : words(static_cast<double>(words)) {}
  double macs(index_t rows, index_t keys, index_t pairs) const {
    const index_t parts = rows * ceil_div(keys, kKeys);
    return (2400 + 6 * words) * static_cast<double>(parts) + (75 + 2.2 * words) * static_cast<double>(pairs);
  }
  bool pays(index_t rows, index_t keys, index_t pairs) const {
    return macs(rows, keys, pairs) < words * static_cast<double>(rows * keys);
  }
};

}  // namespace redblue::kernel
