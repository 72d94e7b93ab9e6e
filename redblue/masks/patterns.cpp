#include "redblue/masks/patterns.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "redblue/language/error.hpp"
#include "redblue/masks/philox.hpp"

namespace redblue::patterns {

namespace {

void require(bool right, const std::string& text) {
  if (!right) throw InvalidProblem(text);
}
constexpr index_t kFar = index_t{1} << 48;  // sums of such numbers do not overflow
void require_between(std::string_view what, index_t value, index_t least) {
  require(least <= value && value <= kFar, fmt::format("{} = {}: give a number from {} to 2^48", what, value, least));
}
void require_positive(std::string_view what, index_t value) { require_between(what, value, 1); }
void require_count(std::string_view what, index_t value) { require_between(what, value, 0); }
void require_sizes(const Between& x) {
  require_count("n_q", x.n_q);
  require_count("n_k", x.n_k);
  const index_t offset = x.position(0);
  require(-kFar <= offset && offset <= kFar, fmt::format("offset = {}: at most 2^48 either way", offset));
}

/// The lists of all queries, from the runs of one: runs_of(i).
template <class RunsOf>
RunLists of_queries(const Between& x, const RunsOf& runs_of) {
  require_sizes(x);
  RunLists rows;
  for (index_t i = 0; i < x.n_q; ++i) rows.append(1, runs_of(i));
  return rows;
}
/// Sorted, below n_k, without overlaps.
std::vector<Range> tidy(std::vector<Range> runs, index_t n_k) {
  for (Range& run : runs) run = intersection(run, {0, n_k});
  sort_and_join(runs);
  return runs;
}

/// A window around a position.
std::vector<Range> window_at(index_t position, index_t n_k, index_t left, index_t right, index_t step) {
  if (step == 1)
    return {intersection({left < 0 ? 0 : position - left, right < 0 ? n_k : position + right + 1}, {0, n_k})};
  const index_t below = position >= 0 ? position / step : -ceil_div(-position, step),  // steps from key 0 or before
      above = (n_k - 1 - position) / step;
  const index_t first = left < 0 ? -below : -std::min(left, below), last = right < 0 ? above : std::min(right, above);
  std::vector<Range> runs;
  for (index_t k = first; k <= last; ++k)
    if (const index_t j = position + k * step; 0 <= j && j < n_k) runs.push_back({j, j + 1});
  return runs;
}
void require_window(index_t left, index_t right, index_t step) {
  for (const auto& [side, keys] : {std::pair("left", left), std::pair("right", right)})
    require(-1 <= keys && keys <= kFar,
            fmt::format("window {} = {}: give 0 to 2^48 keys, or -1 for no edge", side, keys));
  require_positive("the dilation of a window", step);
}

}  // namespace

RunLists window(const Between& x, index_t left, index_t right, index_t step) {
  require_window(left, right, step);
  return of_queries(x, [&](index_t i) { return window_at(x.position(i), x.n_k, left, right, step); });
}

RunLists longformer(const Between& x, index_t left, index_t right, index_t globals, index_t step) {
  require_window(left, right, step);
  require_count("globals", globals);
  return of_queries(x, [&](index_t i) {
    const index_t p = x.position(i);
    if (0 <= p && p < globals) return std::vector<Range>{{0, x.n_k}};
    std::vector<Range> runs = window_at(p, x.n_k, left, right, step);
    runs.insert(runs.begin(), {0, globals});
    return tidy(std::move(runs), x.n_k);
  });
}

RunLists big_bird(const Between& x, const BigBird& b) {
  require_positive("block", b.block);
  require_count("window blocks", b.window);
  require_count("global blocks", b.globals);
  require_count("random blocks", b.randoms);
  require(0 <= b.seed && b.seed <= index_t{1} << 53, fmt::format("seed = {} is out of range: give 0 to 2^53", b.seed));
  require_sizes(x);
  const index_t blocks = ceil_div(x.n_k, b.block), globals = std::min(b.globals, blocks);
  RunLists rows;
  std::vector<index_t> places(b.randoms > 0 ? static_cast<std::size_t>(blocks) : 0);  // of the blocks to draw from
  std::iota(places.begin(), places.end(), 0);
  std::vector<std::size_t> picks;
  for (index_t i = 0; i < x.n_q;) {
    const index_t p = x.position(i), I = p >= 0 ? p / b.block : -ceil_div(-p, b.block);
    const index_t count = std::min(x.n_q - i, (I + 1) * b.block - p);  // queries of the same block
    i += count;
    if (0 <= I && I < b.globals) {
      rows.append(count, {Range{0, x.n_k}});
      continue;
    }
    const Range window = intersection({I - b.window, I + b.window + 1}, {globals, blocks});
    std::vector<Range> runs{{0, globals * b.block}, {window.begin * b.block, window.end * b.block}};
    // A shuffle of all other blocks, as far as they are drawn; then every place gets its number back.
    const index_t before = window.begin - globals, others = before + blocks - window.end;
    picks.clear();
    for (index_t k = 0; k < std::min(b.randoms, others); ++k) {
      const auto draw =
          philox(std::array<std::uint32_t, 4>{static_cast<std::uint32_t>(I), static_cast<std::uint32_t>(k),
                                              static_cast<std::uint32_t>(I >> 32), 0},
                 static_cast<std::uint64_t>(b.seed));
      const std::uint64_t wide = (static_cast<std::uint64_t>(draw[0]) << 32) | draw[1];
      const auto at = static_cast<std::size_t>(k);
      const auto pick = at + static_cast<std::size_t>(wide % static_cast<std::uint64_t>(others - k));
      std::swap(places[at], places[pick]);
      picks.push_back(pick);
      const index_t J = places[at] < before ? globals + places[at] : window.end + places[at] - before;
      runs.push_back({J * b.block, (J + 1) * b.block});
    }
    for (std::size_t k = 0; k < picks.size(); ++k)
      for (const std::size_t at : {k, picks[k]}) places[at] = static_cast<index_t>(at);
    rows.append(count, tidy(std::move(runs), x.n_k));
  }
  return rows;
}

RunLists strided(const Between& x, index_t stride) {
  require_positive("stride", stride);
  return of_queries(x, [&](index_t i) {
    const index_t p = x.position(i);
    std::vector<Range> runs = window_at(p, x.n_k, -1, 0, stride);
    runs.push_back({p - stride + 1, p + 1});
    return tidy(std::move(runs), x.n_k);
  });
}

RunLists fixed(const Between& x, index_t stride, index_t summary) {
  require_positive("stride", stride);
  require(1 <= summary && summary <= stride,
          fmt::format("summary = {} keys of each block of {}: give 1 to {}", summary, stride, stride));
  return of_queries(x, [&](index_t i) {
    const index_t p = x.position(i), own = std::max<index_t>(p, 0) / stride * stride;
    std::vector<Range> runs{{own, p + 1}};
    for (index_t end = stride; end <= own && end - summary < x.n_k; end += stride) runs.push_back({end - summary, end});
    return tidy(std::move(runs), x.n_k);
  });
}

RunLists of_blocks(const Between& x, index_t rows, index_t cols, std::span<const std::uint8_t> seen) {
  require_positive("queries of a block", rows);
  require_positive("keys of a block", cols);
  require_sizes(x);
  const index_t down = ceil_div(x.n_q, rows), across = ceil_div(x.n_k, cols);
  require(std::ssize(seen) == down * across,
          fmt::format("{} entries for blocks of {} x {}: n_q = {} and n_k = {} have {} x {} blocks", seen.size(), rows,
                      cols, x.n_q, x.n_k, down, across));
  using enum PatternIndex::Kind;
  RunLists lists;
  lists.set_index({rows == 1 && cols == 1 ? pairs : blocks, rows, cols});
  for (index_t I = 0; I < down; ++I) {
    std::vector<Range> runs;
    for (index_t J = 0; J < across; ++J)
      if (seen[static_cast<std::size_t>(I * across + J)] != 0)
        runs.push_back({J * cols, std::min((J + 1) * cols, x.n_k)});
    lists.append(std::min(rows, x.n_q - I * rows), runs);
  }
  return lists;
}

RunLists of_mask(const Between& x, std::span<const std::uint8_t> seen) { return of_blocks(x, 1, 1, seen); }

RunLists of_csr(const Between& x, std::span<const index_t> indptr, std::span<const index_t> indices) {
  require(std::ssize(indptr) == x.n_q + 1,
          fmt::format("indptr has {} entries: {} queries need {}", indptr.size(), x.n_q, x.n_q + 1));
  require(indptr.front() == 0, fmt::format("indptr begins with {}: it begins with 0", indptr.front()));
  require(indptr.back() == std::ssize(indices),
          fmt::format("indptr ends with {} and there are {} indices: it ends with their number", indptr.back(),
                      indices.size()));
  for (std::size_t i = 0; i + 1 < indptr.size(); ++i)
    require(indptr[i] <= indptr[i + 1] && indptr[i + 1] <= std::ssize(indices),
            fmt::format("indptr goes from {} to {} at query {}: it never falls, and stays within the {} indices",
                        indptr[i], indptr[i + 1], i, indices.size()));
  RunLists lists = of_queries(x, [&](index_t i) {
    const index_t begin = indptr[static_cast<std::size_t>(i)], end = indptr[static_cast<std::size_t>(i + 1)];
    std::vector<Range> runs;
    runs.reserve(static_cast<std::size_t>(end - begin));
    for (index_t k = begin; k < end; ++k) {
      const index_t j = indices[static_cast<std::size_t>(k)];
      require(0 <= j && j < x.n_k, fmt::format("query {} sees key {}: keys are 0 to {}", i, j, x.n_k - 1));
      const index_t before = runs.empty() ? -1 : runs.back().end - 1;
      require(j > before, fmt::format("query {} has key {} after key {}: {}", i, j, before,
                                      j == before ? "give each key once" : "give its keys in ascending order"));
      runs.push_back({j, j + 1});
    }
    return runs;
  });
  lists.set_index({PatternIndex::Kind::pairs});
  return lists;
}

namespace {

/// The lists of a and b joined by join(runs of a, runs of b), as many rows at a time as have one list in both.
template <class Join>
RunLists joined(const RunLists& a, const RunLists& b, const Join& join) {
  require(a.size() == b.size(), fmt::format("patterns of {} and of {} queries do not go together", a.size(), b.size()));
  RunLists rows;
  rows.set_index(more_explicit(a.index(), b.index()));
  a.for_groups([&](Range part, std::span<const Range> of_a) {
    b.for_groups(part, [&](Range same, std::span<const Range> of_b) { rows.append(same.size(), join(of_a, of_b)); });
  });
  return rows;
}

}  // namespace

RunLists united(const RunLists& a, const RunLists& b) {
  return joined(a, b, [](std::span<const Range> x, std::span<const Range> y) {
    std::vector<Range> runs(x.begin(), x.end());
    runs.insert(runs.end(), y.begin(), y.end());
    return tidy(std::move(runs), index_t{1} << 52);
  });
}

RunLists intersected(const RunLists& a, const RunLists& b) {
  return joined(a, b, [](std::span<const Range> x, std::span<const Range> y) {
    std::vector<Range> runs;
    for (auto i = x.begin(), j = y.begin(); i != x.end() && j != y.end(); (i->end < j->end ? i : j)++)
      if (const Range both = intersection(*i, *j); both.size() > 0) runs.push_back(both);
    return runs;
  });
}

}  // namespace redblue::patterns
