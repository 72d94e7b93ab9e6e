#pragma once
#include "redblue/language/types.hpp"

namespace redblue::kernel {

/// What an implementation takes for queries that each see few of the keys, here and there: over lists of what is seen,
/// pair by pair, in multiply-adds of whole tiles. Measured on an AMD EPYC (docs/kernels.md).
struct PairByPair {
  static constexpr index_t kKeys = 256;       ///< of a list
  static constexpr index_t kMostWords = 256;  ///< d and d_v of OnlineAttention; others go by whole tiles

  double words;  ///< multiply-adds of a pair in whole tiles
  double list;   ///< what a row of a tile takes for each of its lists
  double pair;

  /// OnlineAttention, of words = d + d_v.
  static constexpr PairByPair attention(index_t words) {
    const auto w = static_cast<double>(words);
    return {w, 2400 + 6 * w, 75 + 2.2 * w};
  }
  /// KeyGradients, of words = d + d_v.
  static constexpr PairByPair gradients(index_t words) {
    const auto w = static_cast<double>(words);
    return {2 * w, 6500 + 8 * w, 110 + 6.5 * w};
  }
  /// GemmOver, of d columns.
  static constexpr PairByPair product(index_t d) {
    const auto w = static_cast<double>(d);
    return {w, 2600, 3.5 * w};
  }

  double macs(index_t rows, index_t keys, index_t pairs) const {
    return list * static_cast<double>(rows * ceil_div(keys, kKeys)) + pair * static_cast<double>(pairs);
  }
  /// Is that less than whole tiles take, which form this number of pairs?
  bool pays(index_t rows, index_t keys, index_t pairs, index_t formed) const {
    return macs(rows, keys, pairs) < words * static_cast<double>(formed);
  }
};

}  // namespace redblue::kernel
