#pragma once
#include <algorithm>

#include "redblue/language/words.hpp"

namespace redblue::threads {

/// To wake a thread that sleeps takes about 10 us, in which one that is awake does this much at 200 GFLOP/s.
inline constexpr index_t kFlopsPerThread = 2'000'000;

/// How many of `most` threads a run of this many flops takes, where nobody says how many.
inline int worth(Words flops, int most) {
  return static_cast<int>(std::clamp(flops / kFlopsPerThread, Words(1), Words(std::max(most, 1))).to_index());
}

}  // namespace redblue::threads
