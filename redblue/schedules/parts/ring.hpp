#pragma once
#include <algorithm>
#include <optional>

#include "redblue/schedules/parts/visible.hpp"

namespace redblue::schedule {

/// A tile whose rows hold the keys, or the queries, that are in use: key j lies in row j mod `places`.
struct Ring {
  index_t places = 1;

  /// f(keys, rows of the tile) for parts of these keys that lie side by side: two at most, where all have a place.
  template <class F>
  void for_parts(Range keys, const F& f) const {
    for (index_t j = keys.begin; j < keys.end;) {
      const index_t row = j % places, end = std::min(keys.end, j + places - row);
      f(Range{j, end}, Range{row, row + end - j});
      j = end;
    }
  }
};

/// The most keys that a block of `a` queries sees, and the most queries that see a block of b keys.
inline index_t most_seen_keys(const Sizes& x, index_t a) {
  if (x.mask.from_first_key()) return x.n_k;
  const Pairs pairs = x.pairs();
  const index_t rows = std::min(a, x.n_q);
  return std::max(pairs.most_keys(rows), pairs.keys_of({0, x.n_q % rows}).size());
}
inline index_t most_seeing_rows(const Sizes& x, index_t b) {
  if (x.mask.from_first_key()) return x.n_q;
  const Pairs pairs = x.pairs();
  const index_t keys = std::min(b, x.n_k), ragged = x.n_k % keys;
  return std::max(pairs.most_rows(keys), ragged > 0 ? pairs.rows_of({x.n_k - ragged, x.n_k}).size() : 0);
}

/// Sizes of blocks of queries, or of keys, up to which a larger block needs no less room: between two edges some whole
/// block, and its neighbour, meet as many as any can. With groups of heads this is so of blocks of whole positions, and
/// others need no less than the whole positions that fit into them. 0: there are none.
inline index_t sizes_that_grow(const Sizes& x, bool keys) {
  const Mask& mask = x.mask;
  if (x.sequences != nullptr || mask.is_listed() || mask.prefix > 0 || mask.lo == -Mask::kFar || mask.hi == Mask::kFar)
    return 0;
  const index_t positions = x.n_q / mask.group;
  // Each of these meets hi - lo positions or keys: none of them is cut off at the ends.
  const Range inside = keys ? Range{std::max<index_t>(0, mask.hi - 1), std::min(x.n_k, positions + mask.lo)}
                            : Range{std::max<index_t>(0, -mask.lo), std::min(positions, x.n_k - mask.hi + 1)};
  return inside.size() <= 0 ? 0 : (inside.size() * (keys ? 1 : mask.group) + 1) / 2;
}

/// done = f(size) for numbers of queries (of Q), or of keys (of K), in a block, from the smallest on, until one is
/// done. Under a pattern, where each size takes a pass over its runs, of sizes above 16 every one that is twice another
/// is tried. Sizes in `none` are done for none, and left out.
template <class F>
void for_block_sizes(const Sizes& x, const Limits& limits, SlowArray of, const F& f, Range none = {}) {
  constexpr index_t kTries = 4096, kFew = 48, kEach = 16;
  const bool keys = of == SlowArray::K;
  const index_t n = keys ? x.n_k : x.n_q, step = keys ? limits.multiple.key : limits.multiple.query;
  const bool doubles = x.mask.pattern != nullptr && n > kFew;
  index_t size = smallest_tile(n, step);
  const auto block_fits = [&] { return limits.fit(x.tile(of, size, x.d), 0); };
  for (index_t tries = 1; tries <= kTries && size < n && block_fits(); ++tries) {
    if (none.holds(size)) {
      const index_t others = std::min((std::min(none.end, n) - 1 - size) / step, kTries - tries);
      tries += others;
      size += others * step;
    } else if (f(size)) {
      return;
    }
    size += doubles && tries >= kEach ? size : step;
  }
  f(std::max(size, n));
}

/// The smallest block for which fits(size) holds; nothing if it holds for none. It need not be monotone: a larger block
/// takes more room itself, and may leave fewer keys that two blocks see.
template <class Fits>
std::optional<index_t> smallest_block(const Sizes& x, const Limits& limits, SlowArray of, const Fits& fits) {
  const bool keys = of == SlowArray::K;
  const index_t step = keys ? limits.multiple.key : limits.multiple.query, position = keys ? 1 : x.mask.group,
                first = std::max(position, step / position * position), last = sizes_that_grow(x, keys);
  const Range none = first <= last && !fits(first) ? Range{first, last + 1} : Range{};
  std::optional<index_t> smallest;
  const auto try_size = [&](index_t size) {
    if (fits(size)) smallest = size;
    return smallest.has_value();
  };
  for_block_sizes(x, limits, of, try_size, none);
  return smallest;
}

/// The block of this size of n queries or keys; where blocks load slopes or sinks, a larger one that fits: it moves
/// fewer words.
template <class Fits>
index_t enlarged_for_modifiers(const Sizes& x, const Limits& limits, index_t size, index_t n, index_t step, Sinks sinks,
                               const Fits& fits) {
  const bool pays = prices_with_modifiers(x, limits, 1, sinks).block > 0 && x.modifiers.bias == Modifiers::Bias::none;
  if (!pays) return size;
  return fits(n) ? n : std::max(size, largest_tile(n, step, fits));
}

/// The block of this size, doubled while it fits, up to `enough`; as it is where a bias is read for each pair of a
/// block, because a larger block reads it for more pairs that nobody sees.
template <class Fits>
index_t doubled_block(const Sizes& x, index_t size, index_t n, const Fits& fits, index_t enough = kEnough) {
  return x.modifiers.bias == Modifiers::Bias::of_pairs && !x.mask.full() ? size : doubled(size, n, fits, enough);
}

/// The largest words(queries, keys that they see) over blocks of `a` queries, where all those keys are resident at
/// once.
template <class BlockWords>
Words seen_keys_footprint(const Sizes& x, index_t a, const BlockWords& words) {
  if (x.mask.pattern == nullptr) return query_blocks_footprint(x, a, words);
  const Blocks blocks = x.pairs().row_blocks(std::min(a, x.n_q));
  return detail::pattern_footprint(x.pairs(), blocks, true, "keys seen", detail::count_runs, words);
}
/// The largest words(keys, queries that see them) over blocks of b keys, where all those queries are resident at once.
template <class BlockWords>
Words seeing_queries_footprint(const Sizes& x, index_t b, const BlockWords& words) {
  if (x.mask.pattern == nullptr) return key_blocks_footprint(x, b, words);
  const Blocks blocks = x.pairs().key_blocks(std::min(b, x.n_k));
  return detail::pattern_footprint(x.pairs(), blocks, false, "keys seen", detail::count_runs, words);
}

}  // namespace redblue::schedule
