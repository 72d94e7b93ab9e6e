#pragma once
#include "redblue/problem/problem.hpp"

namespace redblue::ranks {

/// Words of a row of some heads, of all batches: of what travels to where it is needed, and of what comes back.
struct RowWidths {
  Words inputs, results;
};
inline RowWidths row_widths(const Problem& p, Side side, index_t heads) {
  const bool backward = p.op == Operation::backward;
  const Words each = Words(heads) * p.batch;
  if (side == Side::queries) return {each * (backward ? p.d + p.d_v + 2 : p.d), each * (backward ? p.d : p.d_v + 1)};
  return {each * (p.d + p.d_v), backward ? each * (p.d + p.d_v) : Words(0)};
}

}  // namespace redblue::ranks
