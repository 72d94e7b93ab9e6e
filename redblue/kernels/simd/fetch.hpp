#pragma once
#include <algorithm>
#include <cstdint>

#include "redblue/language/types.hpp"

/// Prefetches rows into L2 before their use: the processor's own prefetching stops at the end of a page and starts anew
/// on the next. One line is requested while another one is in use, because a burst of requests would stall.
namespace redblue::kernel::simd {

template <class Element>
[[gnu::always_inline]] inline void fetch(const Element* p) {
  __builtin_prefetch(p, 0, 2);
}

inline constexpr index_t kPage = 4096, kFetchedAhead = 8192;  ///< bytes

/// How many rows of `words` words to fetch ahead: as much as memory delivers in two of its latencies.
template <class Element>
[[gnu::always_inline]] inline index_t rows_ahead(index_t words, index_t bytes = kFetchedAhead) {
  return std::max<index_t>(1, bytes / (words * index_t{sizeof(Element)}));
}

/// How far from a row, in words, the row lies that is fetched while it is multiplied; 0: none is.
struct FetchAhead {
  index_t ahead = 0;
  index_t last = 0;        ///< from this row on
  index_t ahead_last = 0;  ///< it is this far, among the rows of the next step

  /// How far to fetch ahead in a step with `rows` rows. The next step begins `next` rows below the first of this one;
  /// 0: below its last. A register tile reads up to `side_by_side` rows at a time.
  template <class Element>
  static FetchAhead of(index_t rows, index_t words, index_t stride, index_t next, index_t side_by_side) {
    index_t ahead = std::max(side_by_side, rows_ahead<Element>(words));
    const index_t gap = next == 0 ? 0 : next - rows;
    if (gap != 0) ahead = std::min(ahead, rows);
    return {ahead * stride, rows - ahead, (ahead + gap) * stride};
  }
  [[gnu::always_inline]] index_t from(index_t row) const { return row < last ? ahead : ahead_last; }
};

/// Fetches rows that R queries share. For one or two queries, whose work is little more than reading, and rows that lie
/// one after another and are read in order, it requests only the first lines of a page: the processor fetches the rest
/// by itself, and more requests would slow it down.
template <int R, class Element>
struct SharedRows {
  bool pages;
  index_t ahead;

  SharedRows(index_t words, index_t stride, bool in_order)
      : pages(R <= 2 && in_order && stride == words),
        ahead(rows_ahead<Element>(words, pages ? kPage : kFetchedAhead) * stride) {}
  [[gnu::always_inline]] void fetch_after(const Element* p) const {
    if (R > 2 || !pages || reinterpret_cast<std::uintptr_t>(p + ahead) % kPage < 256) fetch(p + ahead);
  }
};

/// Fetches rows before they are read. If they lie one after another, are read whole and in order, and little else is
/// done, it requests only the first lines of a page, one page ahead: the processor fetches the rest by itself, and more
/// requests would slow it down.
template <class Element>
class RowsInOrder {
 public:
  [[gnu::always_inline]] RowsInOrder(index_t words, index_t stride, bool in_order)
      : pages_(in_order && stride == words),
        ahead_(pages_ ? kPage / index_t{sizeof(Element)} : rows_ahead<Element>(words) * stride) {}
  /// These words of a row are about to be read.
  [[gnu::always_inline]] void before(const Element* p, index_t words) const {
    constexpr index_t kLine = 64 / index_t{sizeof(Element)}, kFirstLines = 4;
    const auto in_page = static_cast<index_t>(reinterpret_cast<std::uintptr_t>(p) % kPage);
    const bool starts_page = in_page == 0 || in_page + words * index_t{sizeof(Element)} > kPage;
    if (pages_ && !starts_page) return;
    const index_t end = pages_ ? kFirstLines * kLine : words;
    for (index_t t = 0; t < end; t += kLine) fetch(p + ahead_ + t);
  }

 private:
  bool pages_;
  index_t ahead_;
};
struct NothingFetched {
  [[gnu::always_inline]] void before(const void*, index_t) const {}
};

/// Rows that are needed later, fetched a few lines at a time while others are multiplied. They may lie beyond an array:
/// a prefetch never faults.
template <class Element>
class FetchInTurn {
 public:
  FetchInTurn() = default;
  /// These rows, whose words lie side by side.
  [[gnu::always_inline]] FetchInTurn(const Element* p, index_t rows, index_t words, index_t stride)
      : at_(p), words_(words), gap_(stride - words), left_(words), rows_(rows) {
    if (gap_ == 0) left_ = words_ = words * rows, rows_ = 1;
  }
  /// To be fetched in this many turns.
  [[gnu::always_inline]] FetchInTurn(const Element* p, index_t rows, index_t words, index_t stride, index_t turns)
      : FetchInTurn(p, rows, words, stride) {
    in_turn_ = ceil_div(rows_ * ceil_div(words_, kLine), std::max<index_t>(1, turns));
  }
  [[gnu::always_inline]] void before(const Element*, index_t) { some(in_turn_); }
  /// The next lines.
  [[gnu::always_inline]] void some(index_t lines) {
    for (; lines > 0 && rows_ > 0; --lines) {
      fetch(at_);
      const index_t now = std::min(kLine, left_);
      at_ += now;
      left_ -= now;
      if (left_ > 0) continue;
      at_ += gap_;
      left_ = words_;
      --rows_;
    }
  }
  /// How many are to be fetched at a time to be done in this many turns; none where they would be a burst.
  index_t lines_of(index_t turns) const {
    const index_t lines = ceil_div(rows_ * ceil_div(words_, kLine), std::max<index_t>(1, turns));
    return lines <= kBurst ? lines : 0;
  }

 private:
  static constexpr index_t kLine = 64 / index_t{sizeof(Element)}, kBurst = 16;
  const Element* at_ = nullptr;
  index_t words_ = 0, gap_ = 0, left_ = 0, rows_ = 0, in_turn_ = 0;
};

}  // namespace redblue::kernel::simd
