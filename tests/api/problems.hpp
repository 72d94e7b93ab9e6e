#pragma once
#include <optional>

#include "redblue/problem.hpp"

/// Variants of a problem.
namespace redblue::test {

inline Problem with_lse(Problem p) {
  p.lse_required = true;
  return p;
}
inline Problem causal(Problem p, std::optional<index_t> offset = {}) {
  p.causal = true;
  p.causal_offset = offset;
  return p;
}

}  // namespace redblue::test
