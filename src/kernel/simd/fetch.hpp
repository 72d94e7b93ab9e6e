#pragma once
#include <algorithm>
#include <cstdint>

#include "redblue/core/types.hpp"

/// Rows on their way to L2 before they are wanted: what the processor fetches unasked ends where a page does, and
/// begins anew on the next. One line is asked for while another is worked on: many at a time would be waited for.
namespace redblue::kernel::simd {

template <class Element>
[[gnu::always_inline]] inline void fetch(const Element* p) {
  __builtin_prefetch(p, 0, 2);
}

inline constexpr index_t kPage = 4096, kFetchedAhead = 8192;  ///< bytes

/// How many rows of so many words ahead of the one that is read: as much as memory brings in two of its latencies.
template <class Element>
[[gnu::always_inline]] inline index_t rows_ahead(index_t words, index_t bytes = kFetchedAhead) {
  return std::max<index_t>(1, bytes / (words * index_t{sizeof(Element)}));
}

/// Rows that R queries share. With rows one after another for a single query, which hardly does anything but read, only
/// the first lines of a page: the processor keeps up with the rest unasked, and more requests would stand in its way.
template <int R, class Element>
struct SharedRows {
  bool pages;
  index_t ahead;

  SharedRows(index_t words, index_t stride)
      : pages(R == 1 && stride == words), ahead(rows_ahead<Element>(words, pages ? kPage : kFetchedAhead) * stride) {}
  [[gnu::always_inline]] void fetch_after(const Element* p) const {
    if (R > 1 || !pages || reinterpret_cast<std::uintptr_t>(p + ahead) % kPage < 256) fetch(p + ahead);
  }
};

}  // namespace redblue::kernel::simd
