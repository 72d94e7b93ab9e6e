#pragma once
#include <initializer_list>
#include <type_traits>
#include <utility>
#include <vector>

#include "redblue/language/words.hpp"
#include "redblue/masks/blocks.hpp"
#include "redblue/masks/mask.hpp"

/// Sums of visible keys over blocks of rows, and of rows over blocks of keys, in closed form: O(log n), for n up to
/// 2^40 and beyond. Where rows have intervals in place of three numbers, block by block, kept for the next time.
namespace redblue {

namespace detail {
/// SUM_{i < n} floor((a i + b) / m) for a, b >= 0, by Euclid's algorithm on (a, m).
inline Words floor_sum(Words n, Words m, Words a, Words b) {
  Words sum = 0;
  while (true) {
    sum += n * (n - 1) / 2 * (a / m) + n * (b / m);
    a -= a / m * m;
    b -= b / m * m;
    const Words last = a * n + b;
    if (last < m) return sum;
    n = last / m;
    b = last - n * m;
    std::swap(a, m);
  }
}

/// The first i in [0, n) for which holds(i), n if none; holds must be monotone.
template <class Holds>
index_t first_that(index_t n, const Holds& holds) {
  index_t low = 0, high = n;
  while (low < high) {
    const index_t mid = low + (high - low) / 2;
    if (holds(mid))
      high = mid;
    else
      low = mid + 1;
  }
  return low;
}

/// Numbers that grow by `step` from `start` on, `count` of them.
struct Series {
  index_t start, step, count;
};
/// SUM over r of the series of floor(r / group) + shift, held between low and high. No r is negative.
inline Words clamped_sum(const Series& s, index_t group, index_t shift, index_t low, index_t high) {
  if (low == high) return Words(s.count) * low;
  // The first that reaches a value: r >= group (value - shift).
  const auto first = [&](Words value) {
    const Words missing = Words(group) * (value - shift) - s.start;
    return missing <= 0 ? 0 : std::min<Words>(s.count, (missing + s.step - 1) / s.step).to_index();
  };
  const index_t above = first(Words(low) + 1), top = first(high);
  Words sum = Words(above) * low + Words(s.count - top) * high;
  if (top <= above) return sum;
  const Words n = top - above, least = s.start + Words(above) * s.step;
  if (group == 1) return sum + n * (least + shift) + n * (n - 1) / 2 * s.step;
  return sum + n * shift + floor_sum(n, group, s.step, least);
}
}  // namespace detail

/// Keys or rows that a block meets: neighbours, or the runs of a pattern.
class Runs {
 public:
  Runs(const Runs&) = delete;
  Runs& operator=(const Runs&) = delete;
  [[gnu::noinline]] ~Runs() {}    // NOLINT(modernize-use-equals-default): loops are long enough without it
  Runs(Range one) : one_(one) {}  // NOLINT(google-explicit-constructor): a range is one run
  explicit Runs(std::vector<Range> many) : many_(std::move(many)) {}
  const Range* begin() const { return many_.empty() ? &one_ : many_.data(); }
  const Range* end() const { return begin() + std::max<std::size_t>(1, many_.size()); }
  index_t count() const {
    index_t sum = 0;
    for (const Range& run : *this) sum += run.size();
    return sum;
  }
  index_t longest() const {
    index_t most = 0;
    for (const Range& run : *this) most = std::max(most, run.size());
    return most;
  }

 private:
  Range one_;
  std::vector<Range> many_;
};

/// The scores that exist between n_q rows and n_k keys. Sums are of a core: every row sees a key, every key is seen
/// (schedules/parts/cores.hpp).
struct Pairs {
  Mask mask{};
  index_t n_q = 0;
  index_t n_k = 0;

  /// The keys that one of these rows sees, and the rows that see one of these keys.
  constexpr Range keys_of(Range rows) const { return mask.keys(rows, n_k); }
  constexpr Range rows_of(Range keys) const { return mask.rows(keys, n_q); }
  /// The keys that one of these rows sees, without the unseen ones between the first and the last.
  [[gnu::noinline]] Runs runs_of_keys(Range rows) const {
    if (mask.pattern == nullptr) return keys_of(rows);
    return Runs(union_of(mask.pattern->rows(), rows));
  }
  [[gnu::noinline]] Runs runs_of_rows(Range keys) const {
    if (mask.pattern == nullptr) return rows_of(keys);
    return Runs(union_of(mask.pattern->keys(), keys));
  }

  /// Blocks of `a` rows. Under a mask the ragged one is the first: blocks then see fewer keys. A pattern says how it is
  /// cut.
  constexpr Blocks row_blocks(index_t a) const {
    return mask.pattern != nullptr ? mask.pattern->row_blocks(a) : Blocks{n_q, a, !mask.full()};
  }
  constexpr Blocks key_blocks(index_t b) const {
    return mask.pattern != nullptr ? mask.pattern->key_blocks(b) : Blocks{n_k, b};
  }

  /// A(a) of docs/model.md: the keys that the blocks of `a` rows see, summed over the blocks.
  Words visited_keys(index_t a) const {
    if (mask.pattern != nullptr) return mask.pattern->visited_keys(a);
    if (mask.intervals != nullptr) return mask.intervals->keys_visited_by_intervals(a);
    const index_t T = ceil_div(n_q, a), end = n_q - (T - 1) * a;  // of the first block
    if (T == 0) return 0;
    const index_t least = std::clamp<index_t>(mask.prefix, 0, n_k);
    return detail::clamped_sum({end - 1, a, T}, mask.group, mask.hi, least, n_k) -
           detail::clamped_sum({end, a, T - 1}, mask.group, mask.lo, 0, n_k) -
           keys_of({std::max<index_t>(0, end - a), end}).begin;
  }
  /// visited_keys of the keys from `key` on.
  Words visited_keys_beyond(index_t a, index_t key) const {
    if (mask.pattern != nullptr) return blocks_met(mask.pattern->keys(), {key, n_k}, row_blocks(a));
    if (mask.intervals != nullptr) {
      Words sum;
      const Blocks blocks = row_blocks(a);
      for (index_t i = 0; i < blocks.count(); ++i) sum += intersection(keys_of(blocks(i)), {key, n_k}).size();
      return sum;
    }
    return Pairs{mask.from(0, key), n_q, n_k - key}.visited_keys(a);
  }
  /// visited_keys where the last `most` keys of each block need no visit by the next one: each key once, and again for
  /// each block that sees it and the block before it had to let go. Blocks before which some had to go are neighbours.
  /// The mask has a left edge.
  Words visited_keys_keeping(index_t a, index_t most) const {
    const Blocks blocks = row_blocks(a);
    const index_t pairs = blocks.count() - 1;
    const auto begin = [&](index_t i) { return keys_of(blocks(i)).begin; };
    const auto end = [&](index_t i) { return keys_of(blocks(i)).end; };
    if (mask.intervals != nullptr) {
      Words sum = n_k;
      for (index_t i = 0; i < pairs; ++i) sum += std::max<index_t>(0, end(i) - begin(i + 1) - most);
      return sum;
    }
    const index_t from = detail::first_that(pairs, [&](index_t i) { return end(i) >= most; });
    // Away from the ends two blocks share hi - lo keys, or one less.
    const index_t enough = most < mask.hi - mask.lo ? most : most + 1;
    const index_t count =
        detail::first_that(pairs - from, [&](index_t i) { return end(from + i) - begin(from + i + 1) < enough; });
    if (count <= 0) return n_k;
    const index_t row = blocks(from).end, least = std::clamp<index_t>(mask.prefix, 0, n_k);
    return Words(n_k) + detail::clamped_sum({row - 1, a, count}, mask.group, mask.hi, least, n_k) -
           detail::clamped_sum({row, a, count}, mask.group, mask.lo, 0, n_k) - Words(count) * most;
  }
  /// B(b): the rows that see a key of a block of b keys, summed over the blocks.
  Words visited_rows(index_t b) const {
    if (mask.pattern != nullptr) return mask.pattern->visited_rows(b);
    if (mask.intervals != nullptr) return mask.intervals->rows_visited_by_intervals(b);
    const index_t T = ceil_div(n_k, b), positions = n_q / mask.group;
    if (T == 0) return 0;
    const index_t all = std::min(T, ceil_div(std::min(mask.prefix, n_k), b));  // these blocks begin before the prefix
    const Words last = rows_of({n_k - 1, n_k}).end;
    return last + Words(mask.group) * (detail::clamped_sum({b, b, T - 1}, 1, -mask.lo, 0, positions) -
                                       detail::clamped_sum({all * b, b, T - all}, 1, 1 - mask.hi, 0, positions));
  }
  /// All of them.
  Words count() const {
    if (mask.is_listed()) return mask.list()->pairs();
    return mask.full() ? Words(n_q) * n_k : visited_keys(1);
  }

  /// The pairs of these rows, and the pairs of these keys; not for patterns.
  Words count_of_rows(Range rows) const {
    if (mask.intervals != nullptr) return mask.intervals->pairs_of_rows(rows);
    return Pairs{mask, rows.end, n_k}.count() - Pairs{mask, rows.begin, n_k}.count();
  }
  Words count_of_keys(Range keys) const {
    if (mask.intervals != nullptr) return mask.intervals->pairs_of_keys(keys);
    return Pairs{mask, n_q, keys.end}.count() - Pairs{mask, n_q, keys.begin}.count();
  }

  /// SUM |I| kappa_I over blocks of `a` rows, and SUM |J| rho_J over blocks of b keys: the pairs in their envelopes.
  Words pairs_of_rows(index_t a) const {
    if (mask.pattern != nullptr) return mask.pattern->pairs_of_row_blocks(a);
    if (n_q == 0) return 0;
    const Range ragged = row_blocks(a)(mask.full() ? ceil_div(n_q, a) - 1 : 0);
    return visited_keys(a) * a - Words(a - ragged.size()) * keys_of(ragged).size();
  }
  Words pairs_of_keys(index_t b) const {
    if (mask.pattern != nullptr) return mask.pattern->pairs_of_key_blocks(b);
    if (n_k == 0) return 0;
    const Range ragged = key_blocks(b)(ceil_div(n_k, b) - 1);
    return visited_rows(b) * b - Words(b - ragged.size()) * rows_of(ragged).size();
  }

  /// The keys that a block of rows sees, and its first row does not, and the most of a whole block of `a` rows. All
  /// rows see keys from the first on.
  constexpr index_t fresh_keys(Range rows) const {
    return keys_of(rows).end - keys_of({rows.begin, rows.begin + 1}).end;
  }
  index_t most_fresh_keys(index_t a) const {
    return mask.full() ? 0 : most_of_rows(a, [&](Range rows) { return fresh_keys(rows); });
  }
  /// The same keys with those that the row after the block sees first.
  constexpr index_t keys_to_next(Range rows) const { return fresh_keys({rows.begin, std::min(rows.end + 1, n_q)}); }
  index_t most_keys_to_next(index_t a) const {
    return mask.full() ? 0 : most_of_rows(a, [&](Range rows) { return keys_to_next(rows); });
  }
  /// SUM |I| fresh_keys(I) over blocks I of `a` rows.
  Words pairs_with_fresh_keys(index_t a) const {
    if (mask.full() || n_q == 0) return 0;
    const index_t T = ceil_div(n_q, a), end = n_q - (T - 1) * a, least = std::clamp<index_t>(mask.prefix, 0, n_k);
    const Words begins = detail::clamped_sum({end, a, T - 1}, mask.group, mask.hi, least, n_k);
    return pairs_of_rows(a) - begins * a - Words(end) * keys_of({0, 1}).end;
  }

  /// The most keys that a whole block of `a` rows sees, and no row before it.
  index_t most_new_keys(index_t a) const {
    return most_of_rows(a, [&](Range rows) {
      const Range keys = keys_of(rows);
      return keys.end - (rows.begin == 0 ? keys.begin : std::max(keys.begin, keys_of({0, rows.begin}).end));
    });
  }

  /// The most keys that a whole block of `a` rows sees, and the most rows that see a whole block of b keys.
  index_t most_keys(index_t a) const {
    if (mask.from_first_key()) return n_k;
    return kept("keys", a, [&] { return Words(most_of_rows(a, [&](Range rows) { return keys_of(rows).size(); })); })
        .to_index();
  }
  index_t most_rows(index_t b) const {
    if (mask.from_first_key()) return n_q;
    return kept("rows", b, [&] { return Words(most_of_keys(b, [&](Range keys) { return rows_of(keys).size(); })); })
        .to_index();
  }
  /// The most pairs of a whole block of `a` rows, and of a whole block of b keys. The mask has no pattern.
  Words most_pairs_of_rows(index_t a) const {
    return kept("pairs of rows", a, [&] { return most_of_rows(a, [&](Range rows) { return count_of_rows(rows); }); });
  }
  Words most_pairs_of_keys(index_t b) const {
    return kept("pairs of keys", b, [&] { return most_of_keys(b, [&](Range keys) { return count_of_keys(keys); }); });
  }

  /// The most keys that a block of `a` rows and the next one both see.
  index_t most_kept(index_t a) const {
    const Blocks blocks = row_blocks(a);
    const index_t pairs = blocks.count() - 1;
    if (pairs <= 0) return 0;
    const auto kept = [&](index_t i) {
      return std::max<index_t>(0, keys_of(blocks(i)).end - keys_of(blocks(i + 1)).begin);
    };
    if (mask.from_first_key()) return kept(pairs - 1);
    const index_t ragged = n_q % a;
    return most(pairs, kept, {n_k - mask.hi, mask.prefix - mask.hi, -mask.lo}, n_q / mask.group,
                [&](index_t p) { return (p * mask.group - ragged) / a; });
  }
  /// The most rows that see a block of b keys and the next one.
  index_t most_kept_rows(index_t b) const {
    const Blocks blocks = key_blocks(b);
    const index_t pairs = blocks.count() - 1, positions = n_q / mask.group;
    if (pairs <= 0) return 0;
    const auto kept = [&](index_t j) {
      return std::max<index_t>(0, rows_of(blocks(j)).end - rows_of(blocks(j + 1)).begin);
    };
    if (mask.from_first_key()) return kept(0);
    return most(pairs, kept, {mask.lo + positions, mask.hi, mask.prefix, mask.hi + positions}, n_k,
                [&](index_t j) { return j / b; });
  }

  friend constexpr bool operator==(const Pairs&, const Pairs&) = default;

 private:
  /// make(), which asks all blocks of this size; of intervals that have no closed form it is asked once. `what` is its
  /// name.
  template <class Make>
  Words kept(std::string_view what, index_t size, const Make& make) const {
    if (mask.intervals == nullptr) return make();
    return mask.intervals->found(what, {size}, [&] { return Pattern::Found{make()}; })[0];
  }
  /// The largest size(block) over whole blocks of `a` rows, and of b keys.
  template <class Size>
  std::invoke_result_t<Size, Range> most_of_rows(index_t a, const Size& size) const {
    const index_t ragged = n_q % a;
    return most(
        n_q / a, [&](index_t i) { return size(Range{ragged + i * a, ragged + (i + 1) * a}); },
        {n_k - mask.hi, mask.prefix - mask.hi, -mask.lo}, n_q / mask.group,
        [&](index_t p) { return (p * mask.group - ragged) / a; });
  }
  template <class Size>
  std::invoke_result_t<Size, Range> most_of_keys(index_t b, const Size& size) const {
    const index_t positions = n_q / mask.group;
    return most(
        n_k / b, [&](index_t j) { return size(Range{j * b, (j + 1) * b}); },
        {mask.lo + positions, mask.hi, mask.prefix, mask.hi + positions}, n_k, [&](index_t j) { return j / b; });
  }

  /// The largest size(block). It asks all blocks where the mask is a list of intervals. Otherwise the size grows, falls
  /// or repeats after `group` blocks at most between the blocks where an end of the interval begins or ceases to move.
  template <class Size, class BlockOf>
  std::invoke_result_t<Size, index_t> most(index_t count, const Size& size, std::initializer_list<index_t> ends,
                                           index_t n, const BlockOf& block_of) const {
    std::invoke_result_t<Size, index_t> largest = 0;
    const auto look = [&](index_t from, index_t to) {
      for (index_t i = std::clamp<index_t>(from, 0, count); i < std::min(to, count); ++i)
        largest = std::max(largest, size(i));
    };
    if (mask.intervals != nullptr) {
      look(0, count);
      return largest;
    }
    const auto look_around = [&](index_t block) { look(block - mask.group - 1, block + mask.group + 2); };
    look_around(0);
    look_around(count - 1);
    for (const index_t end : ends) look_around(block_of(std::clamp<index_t>(end, 0, n)));
    return largest;
  }
};

/// The pairs of these rows and keys alone, counted from there, with a mask as simple as it can be.
inline Pairs part_of(const Pairs& x, Range rows, Range keys) {
  if (x.mask.is_listed()) return x;  // of a sequence: whole, and its own core
  Pairs part{x.mask.from(rows.begin, keys.begin), rows.size(), keys.size()};
  Mask& mask = part.mask;
  if (part.keys_of({part.n_q - 1, part.n_q}).begin == 0) mask.lo = -Mask::kFar;
  if (part.keys_of({0, 1}).end == part.n_k) mask.hi = Mask::kFar;
  const index_t prefix = std::exchange(mask.prefix, 0);
  if (mask.hi != Mask::kFar && part.keys_of({0, 1}).end < prefix) mask.prefix = prefix;
  return part;
}

/// The pairs of any rows and keys that see each other.
inline Words visible_pairs(const Pairs& x) {
  if (x.mask.pattern != nullptr) return x.count();
  const Range rows = x.rows_of({0, x.n_k});
  return rows.size() > 0 ? part_of(x, rows, x.keys_of(rows)).count() : Words(0);
}

/// What a mask leaves of rows and keys.
struct Needed {
  Range rows;         ///< that see a key; of a pattern their number only, as below
  Range scored_rows;  ///< those that see two keys or more: a row with one key has P = 1 without any score
  Range keys;         ///< that a row sees
  Range scored_keys;  ///< that a scored row sees
  Words scored_pairs;
};
/// Under a pattern.
Needed needed_of(const Pattern& pattern);
inline Needed needed_of(const Pairs& x) {
  if (x.mask.pattern != nullptr) return needed_of(*x.mask.pattern);
  Needed need;
  need.rows = x.mask.rows({0, x.n_k}, x.n_q);
  if (need.rows.size() == 0) return need;
  need.keys = x.keys_of(need.rows);
  const auto size = [&](index_t r) { return x.keys_of({r, r + 1}).size(); };
  const index_t n = need.rows.size(), r0 = need.rows.begin;
  // Rows with one key come first, where the interval ends at key 1, and last.
  const index_t from = detail::first_that(n, [&](index_t i) { return x.keys_of({r0 + i, r0 + i + 1}).end > 1; });
  const index_t scored = detail::first_that(n - from, [&](index_t i) { return size(r0 + from + i) < 2; });
  need.scored_rows = {r0 + from, r0 + from + scored};
  if (scored > 0) need.scored_keys = x.keys_of(need.scored_rows);
  need.scored_pairs = visible_pairs(x) - (n - scored);
  return need;
}

}  // namespace redblue
