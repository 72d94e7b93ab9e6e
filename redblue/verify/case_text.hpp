#pragma once
#include <fmt/format.h>

#include <span>
#include <string>

#include "redblue/problem/sizes.hpp"

namespace redblue::claims {

/// What a random problem is, for the message of a claim that does not hold on it.
inline std::string case_text(const Sizes& x) {
  std::string text =
      fmt::format("n_q {} n_k {} d {} d_v {} d_in {} {}", x.n_q, x.n_k, x.d, x.d_v, x.d_in, name_of(x.score));
  if (x.approximation != nullptr) text += ' ' + x.approximation->title(x.n_k) + ' ' + x.approximation->text(x.n_k);
  if (x.accumulate) text += " accumulate";
  if (x.lse_gradient) text += " dlse";
  if (!x.mask.full()) text += fmt::format(" mask lo {} hi {} prefix {}", x.mask.lo, x.mask.hi, x.mask.prefix);
  if (x.sequences != nullptr)
    for (const Sequence& one : x.sequences->list) {
      text += fmt::format(" sequence {}..{} x {}..{} mask lo {} hi {} prefix {}", one.rows.begin, one.rows.end,
                          one.keys.begin, one.keys.end, one.mask.lo, one.mask.hi, one.mask.prefix);
      if (one.pattern == nullptr) continue;
      one.pattern->rows().for_groups([&](Range rows, std::span<const Range> runs) {
        text += fmt::format(" {}..{}:", rows.begin, rows.end);
        for (const Range& run : runs) text += fmt::format(" {}..{}", run.begin, run.end);
      });
    }
  if (x.mask.group > 1) text += fmt::format(" group {}", x.mask.group);
  if (const Modifiers& m = x.modifiers; m.any())
    text += fmt::format(
        " bias {} (gradient {}, moves {}, one for all keys {}) slopes {} at {} sinks {} (gradient {}, move {}) softcap "
        "{} dropout {} seed {} from head {} (of {} more) row {} key {}",
        static_cast<int>(m.bias), m.forms_bias_gradient(), m.bias_moves, m.bias_over_keys, m.slopes, m.slope_offset,
        m.sinks, m.sinks_gradient, m.sinks_move, m.softcap, m.dropout, m.seed, m.drop_head, m.drop_other_heads,
        m.drop_row, m.drop_col);
  return text;
}

}  // namespace redblue::claims
