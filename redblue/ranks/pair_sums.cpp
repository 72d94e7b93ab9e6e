#include "redblue/ranks/pair_sums.hpp"

namespace redblue::ranks {

KeySums::KeySums(const Rows& keys) : ranges_(keys.ranges().begin(), keys.ranges().end()) {
  index_t count = 0, at = 0;
  Words sum;
  for (const Range& r : ranges_) {
    sum += Words(count) * (r.begin - at);
    starts_.push_back({r.begin, count, sum});
    sum += Words(count) * r.size() + Words(r.size()) * (r.size() - 1) / 2;
    count += r.size();
    at = r.end;
  }
}

const KeySums::Start* KeySums::last_before(index_t x) const {
  const auto next = std::ranges::upper_bound(starts_, x, {}, &Start::at);
  return next == starts_.begin() ? nullptr : &next[-1];
}

index_t KeySums::count(index_t x) const {
  const Start* s = last_before(x);
  if (s == nullptr) return 0;
  return s->count + std::min(x - s->at, ranges_[static_cast<std::size_t>(s - starts_.data())].size());
}

Words KeySums::sum(index_t x) const {
  const Start* s = last_before(x);
  if (s == nullptr) return 0;
  const index_t size = ranges_[static_cast<std::size_t>(s - starts_.data())].size(), inside = std::min(x - s->at, size);
  return s->sum + Words(s->count) * (x - s->at) + Words(inside) * (inside - 1) / 2 + Words(x - s->at - inside) * size;
}

Words KeySums::before(Range rows, index_t shift, index_t least, index_t most) const {
  const index_t a = std::clamp(least - shift, rows.begin, rows.end), b = std::clamp(most - shift, a, rows.end);
  return Words(a - rows.begin) * count(least) + sum(b + shift) - sum(a + shift) + Words(rows.end - b) * count(most);
}

std::vector<Words> pairs_of_places(const World& w) {
  const int rows = w.layout().grid_rows, cols = w.layout().grid_cols;
  const std::vector<Document>& documents = w.sight().documents();
  std::vector<Words> pairs(static_cast<std::size_t>(rows * cols));
  for (int b = 0; b < cols; ++b) {
    const KeySums keys(w.keys_of_col(b));
    for (int a = 0; a < rows; ++a) {
      Words& sum = pairs[static_cast<std::size_t>(a) * static_cast<std::size_t>(cols) + static_cast<std::size_t>(b)];
      for (const Range& block : w.queries_of_row(a).ranges()) {
        auto d = std::ranges::upper_bound(documents, block.begin, {}, [](const Document& x) { return x.queries.end; });
        for (; d != documents.end() && d->queries.begin < block.end; ++d) {
          const Pairs& all = w.sight().pairs_of_documents()[static_cast<std::size_t>(d - documents.begin())];
          // Rows with a key: the first keys they see go from 0 on, the last ones up to n_k.
          const Range seeing =
              intersection(block.shifted(-d->queries.begin), all.rows_of({0, all.n_k})).shifted(d->keys.begin);
          if (seeing.size() == 0) continue;
          const index_t k = d->keys.begin, end = d->keys.end;
          const index_t prefix = std::min(all.mask.prefix, all.n_k) + k;
          sum += keys.before(seeing, all.mask.hi, std::max(prefix, k), end) - keys.before(seeing, all.mask.lo, k, end);
        }
      }
    }
  }
  return pairs;
}

}  // namespace redblue::ranks
