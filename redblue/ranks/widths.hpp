#pragma once
#include "redblue/ranks/layout.hpp"

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
/// Rows whose heads change ranks are as wide, but where a gradient finds q, k and v.
inline RowWidths head_widths(const Problem& p, const Layout& layout, Side side, index_t heads) {
  RowWidths widths = row_widths(p, side, heads);
  if (layout.keeps_heads && p.op == Operation::backward)  // q, k and v are there
    widths.inputs = side == Side::queries ? widths.inputs - Words(heads) * p.batch * p.d : Words(0);
  return widths;
}

}  // namespace redblue::ranks
