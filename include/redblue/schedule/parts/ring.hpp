#pragma once
#include <algorithm>

#include "redblue/core/mask.hpp"

namespace redblue::schedule {

/// A tile whose rows hold the keys that are in use: key j lies in row j mod `places`.
struct Ring {
  index_t places = 1;

  /// f(keys, rows of the tile) for parts of these keys that lie side by side: two at most, where all have a place.
  template <class F>
  void for_parts(Range keys, const F& f) const {
    for (index_t j = keys.begin; j < keys.end;) {
      const index_t row = j % places, end = std::min(keys.end, j + places - row);
      f(Range{j, end}, Range{row, row + end - j});
      j = end;
    }
  }
};

/// Blocks of rings move the same words whatever their size, and large ones run faster: this size of n rows or keys,
/// doubled while fits(size) holds, up to a size beyond which kernels gain little.
template <class Fits>
index_t doubled(index_t size, index_t n, const Fits& fits) {
  constexpr index_t kEnough = 64;
  while (2 * size <= std::min(n, kEnough) && fits(2 * size)) size *= 2;
  return size;
}

}  // namespace redblue::schedule
