#pragma once
#include "redblue/bound/forward.hpp"

namespace redblue::test {

/// The pairs of rows that see two keys or more, one by one.
inline index_t pairs_one_by_one(const bound::AttentionProblem& x) {
  index_t pairs = 0;
  for (index_t r = 0; r < x.n_q; ++r)
    if (const index_t seen = x.mask.keys(r, x.n_k).size(); seen > 1) pairs += seen;
  return x.instances * pairs;
}

}  // namespace redblue::test
