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

}  // namespace redblue::schedule
