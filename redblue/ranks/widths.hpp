#pragma once
#include "redblue/problem/problem.hpp"

namespace redblue::ranks {

/// Words of a row of some heads, of all batches: of what travels to where it is needed, and of what comes back.
struct RowWidths {
  Words inputs, results;
  Words statistics;  ///< of the inputs: lse and D
};
inline RowWidths row_widths(const Problem& p, Side side, index_t heads) {
  const bool backward = p.op == Operation::backward;
  const Words each = Words(heads) * p.batch;
  if (side == Side::queries)
    return backward ? RowWidths{each * (p.d + p.d_v + 2), each * p.d, each * 2}
                    : RowWidths{each * p.d, each * (p.d_v + 1), 0};
  return {each * (p.d + p.d_v), backward ? each * (p.d + p.d_v) : Words(0), 0};
}

}  // namespace redblue::ranks
