#include "redblue/ranks/rows.hpp"

#include <numeric>

namespace redblue::ranks {

Rows::Rows(std::vector<Range> ranges) {
  std::erase_if(ranges, [](const Range& r) { return r.size() <= 0; });
  std::ranges::sort(ranges, {}, &Range::begin);
  for (const Range& r : ranges)
    if (!ranges_.empty() && r.begin <= ranges_.back().end)
      ranges_.back().end = std::max(ranges_.back().end, r.end);
    else
      ranges_.push_back(r);
}

index_t Rows::count() const {
  index_t sum = 0;
  for (const Range& r : ranges_) sum += r.size();
  return sum;
}

index_t Rows::place_of(index_t position) const {
  index_t before = 0;
  for (const Range& r : ranges_) {
    if (position < r.end) return before + position - r.begin;
    before += r.size();
  }
  return before;
}

std::vector<index_t> Rows::positions() const {
  std::vector<index_t> list(static_cast<std::size_t>(count()));
  auto at = list.begin();
  for (const Range& r : ranges_) {
    std::iota(at, at + r.size(), r.begin);
    at += r.size();
  }
  return list;
}

Rows union_of(const Rows& a, const Rows& b) {
  std::vector<Range> all(a.ranges().begin(), a.ranges().end());
  all.insert(all.end(), b.ranges().begin(), b.ranges().end());
  return Rows(std::move(all));
}

Rows intersection(const Rows& a, const Rows& b) {
  std::vector<Range> both;
  const auto y = b.ranges();
  std::size_t from = 0;
  for (const Range& x : a.ranges()) {
    while (from < y.size() && y[from].end <= x.begin) ++from;
    for (std::size_t k = from; k < y.size() && y[k].begin < x.end; ++k) both.push_back(redblue::intersection(x, y[k]));
  }
  return Rows(std::move(both));
}

}  // namespace redblue::ranks
