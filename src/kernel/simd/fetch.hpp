#pragma once
#include <algorithm>

#include "redblue/core/types.hpp"

/// Rows on their way to L2 before they are wanted: what the processor fetches unasked ends where a page does, and
/// begins anew on the next. One line is asked for while another is worked on: many at a time would be waited for.
namespace redblue::kernel::simd {

template <class Element>
[[gnu::always_inline]] inline void fetch(const Element* p) {
  __builtin_prefetch(p, 0, 2);
}

/// How many rows of so many words ahead of the one that is read: as much as memory brings in two of its latencies.
template <class Element>
[[gnu::always_inline]] inline index_t rows_ahead(index_t words) {
  constexpr index_t kBytes = 8192;
  return std::max<index_t>(1, kBytes / (words * index_t{sizeof(Element)}));
}

}  // namespace redblue::kernel::simd
