#pragma once
#include <algorithm>

#include "redblue/schedules/parts/limits.hpp"
#include "redblue/schedules/parts/modifiers.hpp"

/// Sizes of blocks under a mask, and the words of a schedule whose blocks of queries stay while keys pass. Sums over
/// blocks: masks/visible.hpp.
namespace redblue::schedule {

/// The part of a tile of these rows and keys that holds pairs, empty if there is none.
struct Box {
  Range rows, keys;
};
inline Box box_of(const Pairs& pairs, Range I, Range J) {
  return {intersection(I, pairs.rows_of(J)), intersection(J, pairs.keys_of(I))};
}
/// The part of the tile of a box that holds these rows and keys.
inline Arg part_of(Arg T, const Box& box, Range rows, Range keys) {
  T.block.row += rows.begin - box.rows.begin;
  T.block.col += keys.begin - box.keys.begin;
  T.block.shape = {rows.size(), keys.size()};
  return T;
}

/// What is read of given outputs, in each of `passes` passes over the queries those of lse.
inline Io given_outputs_io(const Sizes& x, Words passes = 1) {
  if (!x.accumulate) return {};
  return Io().read(SlowArray::O, Words(x.n_q) * x.d_v).read(SlowArray::lse, passes * x.row_statistics());
}
/// A word of the given lse, which passes before the keys do.
inline Words passing_given(const Sizes& x) {
  return x.accumulate && x.statistics() > 0 ? x.word(SlowArray::lse) : Words(0);
}

/// The words that such a schedule moves when all its blocks together visit `visits` keys in each of `passes` passes
/// over the queries. A value is visited in one pass only. The bias passes whole, for blocks of Br queries.
struct QueryPasses {
  Words pairs, keys;    ///< in the envelopes of all blocks; keys that blocks meet, added up
  Words blocks, sinks;  ///< how often slopes are loaded, and sinks pass
};
inline Io query_outer_io(const Sizes& x, const QueryPasses& v, Words visits, Words passes = 1) {
  return modifiers_io(x, v.pairs, v.keys, v.blocks) + sinks_io(x, v.sinks) + given_outputs_io(x, passes) +
         Io().read(SlowArray::Q, passes * x.n_q * x.d)
             .read(SlowArray::K, passes * visits * x.d)
             .read(SlowArray::V, visits * x.d_v)
             .write(SlowArray::O, Words(x.n_q) * x.d_v)
             .write(SlowArray::lse, x.row_statistics());
}
inline Io query_outer_io(const Sizes& x, index_t Br, Words visits, Words passes = 1) {
  if (!x.modifiers.any()) return query_outer_io(x, QueryPasses{}, visits, passes);
  const Pairs pairs = x.pairs();
  const Words blocks = passes * pairs.row_blocks(Br).count();
  return query_outer_io(x, {passes * pairs.pairs_of_rows(Br), passes * pairs.visited_keys(Br), blocks, blocks}, visits,
                        passes);
}

/// Where a text has a place for what another schedule does beside it.
struct NothingElse {
  void operator()(auto&&...) const {}
};

/// f(step, next) for at most `most` at a time of each run, one after another: `next` is where the next step begins, or
/// where the last one ends.
template <class W, class F>
void for_steps(W& w, const Runs& runs, index_t most, const F& f) {
  for (const Range* run = runs.begin(); run != runs.end(); ++run) {
    const Range* following = std::find_if(run + 1, runs.end(), [](const Range& r) { return r.size() > 0; });
    w.in_turn(ceil_div(run->size(), most), [&](index_t i) {
      const index_t begin = run->begin + i * most, end = std::min(begin + most, run->end);
      f(Range{begin, end}, end == run->end && following != runs.end() ? following->begin : end);
    });
  }
}

/// The same runs, cut before this key where one holds it and the one before it.
[[gnu::noinline]] inline Runs cut_at(const Runs& runs, index_t key) {
  std::vector<Range> parts;
  for (const Range& run : runs) {
    const index_t cut = std::clamp(key, run.begin, run.end);
    for (const Range& part : {Range{run.begin, cut}, Range{cut, run.end}})
      if (part.size() > 0) parts.push_back(part);
  }
  return Runs(std::move(parts));
}

/// The larger of of(rows, keys) for the largest tiles of `a` rows and b keys: whole blocks of both. Intervals may be so
/// short that whole blocks of rows meet none but the ragged block of keys; then it is the ragged block of rows with
/// whole blocks of keys, and whole ones with that. Theory notes 2j.
template <class Of>
Phase over_largest_tiles(const Sizes& x, index_t a, index_t b, const Of& of) {
  const index_t rows = std::min(a, x.n_q), keys = std::min(b, x.n_k);
  const index_t ragged_rows = x.n_q % rows, ragged_keys = x.n_k % keys;
  if (x.mask.intervals == nullptr || ragged_rows == 0 || ragged_keys == 0 ||
      x.pairs().keys_of({ragged_rows, ragged_rows + 1}).begin < x.n_k - ragged_keys)
    return of(rows, keys);
  const Phase p = of(ragged_rows, keys), q = of(rows, ragged_keys);
  return {std::max(p.footprint, q.footprint), std::max(p.prefetch, q.prefetch)};
}

namespace detail {
/// Under a pattern: the largest words(size, met) over these blocks, of queries or of keys, where a block meets
/// met(its runs); `walk` is the name of that.
template <class Met, class BlockWords>
[[gnu::noinline]] Words pattern_footprint(const Pairs& pairs, const Blocks& blocks, bool of_queries,
                                          std::string_view walk, const Met& met, const BlockWords& words) {
  const MostBySize& most = pairs.mask.pattern->found(walk, {blocks.size, of_queries ? 1 : 0}, [&] {
    MostBySize found;
    for (index_t i = 0; i < blocks.count(); ++i) {
      const Range block = blocks(i);
      found.add(block.size(), of_queries ? met(pairs.runs_of_keys(block)) : met(pairs.runs_of_rows(block)));
    }
    return found;
  });
  return most.largest(words);
}
inline index_t longest_run(const Runs& runs) { return runs.longest(); }
inline index_t count_runs(const Runs& runs) { return runs.count(); }
}  // namespace detail

/// The largest words(rows, kappa) over blocks of `a` queries that see kappa keys; under a pattern kappa is the longest
/// run of keys. The ragged block may see more keys.
template <class BlockWords>
Words query_blocks_footprint(const Sizes& x, index_t a, const BlockWords& words) {
  const index_t rows = std::min(a, x.n_q);
  if (x.mask.pattern != nullptr)
    return detail::pattern_footprint(x.pairs(), x.pairs().row_blocks(rows), true, "longest run", detail::longest_run,
                                     words);
  if (x.mask.from_first_key()) return words(rows, x.n_k);  // the last block sees all
  const Pairs pairs = x.pairs();
  const index_t ragged = x.n_q % rows;
  return std::max(words(rows, pairs.most_keys(rows)),
                  ragged > 0 ? words(ragged, pairs.keys_of({0, ragged}).size()) : 0);
}
/// The largest words(keys, rho) over blocks of b keys, where rho queries see a block.
template <class BlockWords>
Words key_blocks_footprint(const Sizes& x, index_t b, const BlockWords& words) {
  const index_t keys = std::min(b, x.n_k);
  if (x.mask.pattern != nullptr)
    return detail::pattern_footprint(x.pairs(), x.pairs().key_blocks(keys), false, "longest run", detail::longest_run,
                                     words);
  if (x.mask.from_first_key()) return words(keys, x.n_q);  // all see the first block
  const Pairs pairs = x.pairs();
  const index_t ragged = x.n_k % keys;
  return std::max(words(keys, pairs.most_rows(keys)),
                  ragged > 0 ? words(ragged, pairs.rows_of({x.n_k - ragged, x.n_k}).size()) : 0);
}

/// The price of a visit: of every key that a block of queries sees, and of every block.
struct VisitPrices {
  Words visit = 1;
  Words block = 0;
};
/// What a block loads for sinks: nothing, or those of its rows.
enum class Sinks : bool { none, of_rows };
/// Where each block loads the slopes, if any, and sinks.
inline VisitPrices prices_with_modifiers(const Sizes& x, const Limits& limits, Words visit, Sinks sinks) {
  Words block;
  if (x.modifiers.loads_slopes()) block += limits.price.reading(SlowArray::slopes) * x.mask.group;
  if (sinks == Sinks::of_rows && x.modifiers.sinks) block += limits.price.reading(SlowArray::sinks) * x.mask.group;
  return {visit, block};
}
/// The prices of blocks of queries that visit keys in each of `passes` passes, and their values in one.
inline VisitPrices query_block_prices(const Sizes& x, const Limits& limits, Words passes = 1) {
  const Prices& price = limits.price;
  Words visit = passes * price.reading(SlowArray::K) * x.d + price.reading(SlowArray::V) * x.d_v;
  if (x.modifiers.bias == Modifiers::Bias::of_keys) visit += passes * price.reading(SlowArray::bias);
  VisitPrices p = prices_with_modifiers(x, limits, visit, Sinks::of_rows);
  p.block = passes * p.block;
  return p;
}

/// At least how many visits blocks of `size` rows, or of keys, have; smaller blocks have no fewer. Between two edges
/// that is close to what they have, else it is that of blocks without a hidden pair:
///   visits(b) >= nnz / b   visits(b) >= (nnz - u (n - 1)) / b + N - most
/// of n rows (keys), N keys (rows), of which one row meets `most` at most, and u more or fewer than its neighbour. A
/// block of keys meets what its first one meets, and as many more as the far end of that moves up to its last one.
/// Those moves add up to all but those from block to block, fewer than n / b of u. How many one meets rises and then
/// falls: so what the first ones of all blocks meet is nnz / b, less what it rises by, or more. A block of rows is
/// taken from its last one back.
class LeastVisits {
 public:
  enum class Of : bool { rows, keys };
  LeastVisits(const Sizes& x, Of of, Words nnz) : n_(of == Of::keys ? x.n_k : x.n_q), nnz_(nnz) {
    const Mask& mask = x.mask;
    if (x.sequences != nullptr || mask.is_listed() || mask.prefix > 0 || mask.lo == -Mask::kFar) return;
    const Words width = mask.hi - mask.lo, group = mask.group;  // the width is more than all where an edge is far
    if (of == Of::keys)
      moving_ = nnz - group * (n_ - 1), fixed_ = x.n_q - std::min<Words>(group * width, x.n_q);
    else
      moving_ = nnz - (n_ - 1), fixed_ = x.n_k - std::min<Words>(width, x.n_k);
  }
  Words operator()(index_t size) const { return std::max(nnz_ / size, moving_ / size + fixed_); }
  /// This is the same where each block but one is spared that many.
  Words sparing(Words spared, index_t size) const {
    const Words left = moving_ - spared * (n_ - 1);
    return left > 0 ? left / size + fixed_ : Words(0);
  }

 private:
  index_t n_;
  Words nnz_, moving_, fixed_;
};

namespace detail {
/// How many sizes of blocks are tried under a pattern: each takes a pass over its runs.
inline index_t pattern_tries(const Pattern& pattern) {
  constexpr index_t kSteps = index_t{1} << 23, kFewest = 16, kMost = 4096;
  const index_t runs = pattern.rows().runs_held() + pattern.keys().runs_held();
  return std::clamp(kSteps / std::max<index_t>(1, runs), kFewest, kMost);
}
/// f(size) for sizes of blocks under a pattern, from the largest down until f is false: multiples of `step`; where not
/// all can be tried, the largest and multiples of 16, which blocks of a pattern are likely to have.
template <class F>
void for_pattern_sizes(const Pattern& pattern, index_t largest, index_t step, const F& f) {
  constexpr index_t kLikely = 16;
  const index_t tries = pattern_tries(pattern);
  if (!f(largest)) return;
  index_t size = (largest - 1) / step * step;
  if (size / step > tries) {
    step *= std::max<index_t>(1, ceil_div(size / step, tries * kLikely)) * kLikely;
    size = size / step * step;
  }
  while (size > 0 && f(size)) size -= step;
}

/// Do all queries of each part see its keys from the first one on?
inline bool all_see_from_the_first(const Sizes& x) {
  if (x.sequences == nullptr) return x.mask.from_first_key();
  return std::ranges::all_of(sequences_of(x), [](const Sizes& part) { return part.mask.from_first_key(); });
}

/// The cheapest size of blocks of rows or keys up to `largest`; blocks of a size, blocks(size) of them, have
/// visits(size) visits. Without a mask that is the largest, reduced as far as the number of blocks stays the same.
/// Where all see keys from the first on, larger blocks never have more visits (theory notes 2j). Between two edges
/// visits are not monotone: with the same number of blocks they are fewest for the smallest or the largest size, where
/// it is one query head for each key-value head. Likely sizes are tried from the largest down, until even the least
/// visits would cost more.
template <class Count, class Visits>
index_t best_block(const Sizes& x, LeastVisits::Of of, index_t largest, index_t step, const VisitPrices& price,
                   const Count& blocks, const Visits& visits) {
  const index_t n = of == LeastVisits::Of::keys ? x.n_k : x.n_q;
  if (x.mask.full() && x.sequences == nullptr) return balanced(n, largest, step);
  if (all_see_from_the_first(x)) return largest;
  constexpr index_t kTries = 1024;
  const LeastVisits least(x, of, sum_over_parts(x, [](const Sizes& part) { return part.nnz(); }));
  const auto cost = [&](Words count, Words visited) { return price.visit * visited + price.block * count; };
  index_t best = 0;
  Words cheapest;
  const auto try_size = [&](index_t size) {
    if (best > 0 && cost(ceil_div(n, size), least(size)) >= cheapest) return false;
    if (const Words c = cost(blocks(size), visits(size)); best == 0 || c < cheapest) {
      cheapest = c;
      best = size;
    }
    return true;
  };
  if (x.mask.pattern != nullptr) {
    for_pattern_sizes(*x.mask.pattern, largest, step, try_size);
    return best;
  }
  index_t size = largest;
  for (index_t tries = 0; tries < kTries && size > 0 && try_size(size); ++tries) size = likely_below(n, size, step);
  return best;
}
}  // namespace detail

/// The cheapest size of blocks of queries up to `largest`, and of blocks of keys, each visited by the queries that see
/// it.
inline index_t best_query_block(const Sizes& x, index_t largest, index_t step, const VisitPrices& price = {}) {
  return detail::best_block(
      x, LeastVisits::Of::rows, largest, step, price, [&](index_t a) { return x.pairs().row_blocks(a).count(); },
      [&](index_t a) { return visited_keys(x, a); });
}
inline index_t best_key_block(const Sizes& x, index_t largest, index_t step, const VisitPrices& price = {}) {
  return detail::best_block(
      x, LeastVisits::Of::keys, largest, step, price, [&](index_t b) { return x.pairs().key_blocks(b).count(); },
      [&](index_t b) { return visited_rows(x, b); });
}

/// The cheapest size of blocks of queries for which fits(size), monotone, holds; 0 if there is none.
template <class Fits>
index_t choose_query_block(const Sizes& x, index_t step, const Fits& fits, const VisitPrices& price = {}) {
  const index_t largest = largest_tile(x.n_q, step, fits);
  return largest == 0 ? 0 : best_query_block(x, largest, step, price);
}
/// The cheapest size of blocks of keys for which fits(size), monotone, holds; 0 if there is none.
template <class Fits>
index_t choose_key_block(const Sizes& x, index_t step, const Fits& fits, const VisitPrices& price = {}) {
  const index_t largest = largest_tile(x.n_k, step, fits);
  return largest == 0 ? 0 : best_key_block(x, largest, step, price);
}

/// Rows that all see keys of the block J visit it for the first time from this row on: they see none before J. And they
/// visit it for the last time before this row: they see none after J.
inline index_t first_visit(const Pairs& pairs, Range rows, Range J) {
  return J.begin == 0 ? rows.begin : std::clamp(pairs.rows_of({J.begin - 1, J.begin}).end, rows.begin, rows.end);
}
inline index_t last_visit(const Pairs& pairs, Range rows, Range J) {
  return J.end == pairs.n_k ? rows.end : std::clamp(pairs.rows_of({J.end, J.end + 1}).begin, rows.begin, rows.end);
}

/// Does one of these runs hold something of the window?
inline bool meet(std::span<const Range> runs, Range window) {
  if (window.size() == 0) return false;
  const auto run = std::ranges::partition_point(runs, [&](const Range& r) { return r.end <= window.begin; });
  return run != runs.end() && run->begin < window.end;
}
/// f(part, told) for parts of these rows of a pattern, neighbours for whose runs tells(runs) is the same.
template <class Tells, class F>
void for_alike(const Pattern& pattern, Range rows, const Tells& tells, const F& f) {
  Range part{rows.begin, rows.begin};
  bool told = false;
  pattern.rows().for_groups(rows, [&](Range group, std::span<const Range> runs) {
    const bool now = tells(runs);
    if (now != told && part.size() > 0) f(part, told);
    if (now != told) part.begin = group.begin;
    part.end = group.end;
    told = now;
  });
  if (part.size() > 0) f(part, told);
}
/// f(part, told) for the rows before `cut`, of which it is false, and the others.
template <class F>
void for_two_parts(Range rows, index_t cut, const F& f) {
  cut = std::clamp(cut, rows.begin, rows.end);
  if (cut > rows.begin) f(Range{rows.begin, cut}, false);
  if (cut < rows.end) f(Range{cut, rows.end}, true);
}

/// f(part, first) for parts of these rows, which all see keys of the block J: is J the first block that they visit, of
/// those from key `from` on? Without a pattern each of these rows sees key `from`, or no key before it.
template <class F>
void for_first_visits(const Pairs& pairs, Range rows, Range J, index_t from, const F& f) {
  if (pairs.mask.pattern == nullptr)
    return for_two_parts(rows, J.begin == from ? rows.begin : first_visit(pairs, rows, J), f);
  for_alike(*pairs.mask.pattern, rows, [&](std::span<const Range> runs) { return !meet(runs, {from, J.begin}); }, f);
}

/// f(rows) for rows that see no key: under a pattern they may stand between others.
template <class F>
void for_rows_without_keys(const Pairs& pairs, const F& f) {
  if (pairs.mask.pattern == nullptr) return;
  pairs.mask.pattern->rows().for_groups([&](Range rows, std::span<const Range> runs) {
    if (runs.empty()) f(rows);
  });
}

/// Calls f(rows, keys) for rectangles that hold exactly the pairs of these rows and keys that exist: all in one where
/// every row sees every key, else one for each row, under a pattern one for each run of a row.
template <class F>
void for_visible(const Pairs& pairs, Range rows, Range keys, const F& f) {
  const auto of_row = [&](index_t r) { return intersection(pairs.keys_of({r, r + 1}), keys); };
  if (rows.size() == 0 || keys.size() == 0) return;
  if (pairs.mask.pattern != nullptr) {
    const Place place{pairs.mask, rows.begin, keys.begin};
    for (index_t r = 0; r < rows.size(); ++r)
      place.for_seen(r, keys.size(),
                     [&](Range seen) { f(Range{rows.begin + r, rows.begin + r + 1}, seen.shifted(keys.begin)); });
    return;
  }
  if (of_row(rows.begin) == keys && of_row(rows.end - 1) == keys) return f(rows, keys);
  for (index_t r = rows.begin; r < rows.end; ++r)
    if (const Range seen = of_row(r); seen.size() > 0) f(Range{r, r + 1}, seen);
}

}  // namespace redblue::schedule
