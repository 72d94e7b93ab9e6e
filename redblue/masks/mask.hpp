#pragma once
#include <algorithm>

#include "redblue/masks/pattern.hpp"

namespace redblue {

/// Which keys a row of scores sees: an interval whose ends never go back from one row to the next. The query at
/// position p sees the keys p + lo <= j < max(p + hi, prefix). Rows are `group` query heads that share one key-value
/// head, position-major: row r is position r / group. Where a pattern is set, it says which keys a row sees, and the
/// three numbers leave out none.
struct Mask {
  static constexpr index_t kFar = index_t{1} << 52;  ///< farther than any key
  index_t lo = -kFar;                                ///< -kFar: no left edge
  index_t hi = kFar;                                 ///< kFar: no right edge
  index_t prefix = 0;                                ///< keys before it do not end at p + hi
  index_t group = 1;
  const Pattern* pattern = nullptr;  ///< not owned: Sizes owns it
  /// A pattern of intervals in place of the three numbers, which leave out none: loops go over it as over any other
  /// mask. Not owned either.
  const Pattern* intervals = nullptr;

  constexpr bool full() const { return lo == -kFar && hi == kFar && pattern == nullptr && intervals == nullptr; }
  /// Does a pattern say who sees whom?
  constexpr bool is_listed() const { return list() != nullptr; }
  constexpr const Pattern* list() const { return pattern != nullptr ? pattern : intervals; }
  /// Does every row see the keys from 0 on?
  constexpr bool from_first_key() const { return lo == -kFar && pattern == nullptr; }

  /// The keys that one of these rows sees, under a pattern from the first to the last; of a single row [lo_i, hi_i).
  /// All n_k keys are from 0 on.
  constexpr Range keys(Range rows, index_t n_k) const {
    if (is_listed()) return listed_keys(rows, n_k);
    const index_t first = std::clamp<index_t>(rows.begin / group + lo, 0, n_k);
    return {first, std::clamp<index_t>(std::max((rows.end - 1) / group + hi, prefix), first, n_k)};
  }
  constexpr Range keys(index_t row, index_t n_k) const { return keys({row, row + 1}, n_k); }

  /// The rows, of n_q, that see one of these keys: those between al_J, the first whose interval ends beyond keys.begin,
  /// and be_J, the first whose interval begins at keys.end or beyond.
  constexpr Range rows(Range keys, index_t n_q) const {
    if (is_listed()) return listed_rows(keys, n_q);
    const index_t first = keys.begin < prefix ? 0 : rows_before(keys.begin + 1 - hi, n_q);
    return {first, std::max(first, rows_before(keys.end - lo, n_q))};
  }

  /// The same mask for the rows from `row` on, a whole position, and the keys from `key` on.
  constexpr Mask from(index_t row, index_t key) const {
    Mask m = *this;
    const index_t shift = row / group - key;
    if (lo != -kFar) m.lo += shift;
    if (hi != kFar) m.hi += shift;
    m.prefix = std::max<index_t>(0, prefix - key);
    return m;
  }

  friend constexpr bool operator==(const Mask&, const Mask&) = default;

 private:
  Range listed_keys(Range rows, index_t n_k) const;
  Range listed_rows(Range keys, index_t n_q) const;
  /// The rows, of n_q, at positions before p.
  constexpr index_t rows_before(index_t p, index_t n_q) const {
    return std::min(n_q, std::clamp<index_t>(p, 0, n_q) * group);
  }
};

/// The place of a tile of scores: its corner is at (row, col) of the score matrix.
struct Place {
  Mask mask{};
  index_t row = 0;
  index_t col = 0;

  /// The columns of the tile that its row r sees, of `cols`; under a pattern from the first to the last.
  constexpr Range cols_of(index_t r, index_t cols) const { return cols_of(Range{r, r + 1}, cols); }
  constexpr Range cols_of(Range rows, index_t cols) const {
    if (mask.pattern != nullptr)
      return envelope_of(mask.pattern->rows(), {row + rows.begin, row + rows.end}, {col, col + cols}).shifted(-col);
    const Range keys = mask.keys({row + rows.begin, row + rows.end}, col + cols);
    const index_t begin = std::max<index_t>(0, keys.begin - col);
    return {begin, std::max(begin, keys.end - col)};
  }
  /// The rows of the tile that see its column c, of `rows`.
  constexpr Range rows_of(index_t c, index_t rows) const { return rows_of(Range{c, c + 1}, rows); }
  constexpr Range rows_of(Range cols, index_t rows) const {
    if (mask.pattern != nullptr)
      return envelope_of(mask.pattern->keys(), {col + cols.begin, col + cols.end}, {row, row + rows}).shifted(-row);
    const Range queries = mask.rows({col + cols.begin, col + cols.end}, row + rows);
    const index_t begin = std::max<index_t>(0, queries.begin - row);
    return {begin, std::max(begin, queries.end - row)};
  }
  /// f(columns) for the runs of columns that row r sees, of `cols`, and for those that it does not see.
  template <class F>
  constexpr void for_seen(index_t r, index_t cols, const F& f) const {
    if (mask.pattern != nullptr)
      for_inside(mask.pattern->rows().of(row + r), {col, col + cols}, f);
    else if (const Range seen = cols_of(r, cols); seen.size() > 0)
      f(seen);
  }
  template <class F>
  constexpr void for_hidden(index_t r, index_t cols, const F& f) const {
    index_t done = 0;
    for_seen(r, cols, [&](Range seen) {
      if (seen.begin > done) f(Range{done, seen.begin});
      done = seen.end;
    });
    if (done < cols) f(Range{done, cols});
  }

  /// Does every row of a tile of this shape see every column?
  constexpr bool sees_all(Shape s) const {
    if (mask.pattern != nullptr) return hides_none(s);
    return cols_of(index_t{0}, s.cols).end == s.cols && cols_of(s.rows - 1, s.cols).begin == 0;
  }
  /// The place of the part that begins at (r, c) of the tile.
  constexpr Place at(index_t r, index_t c) const { return {mask, row + r, col + c}; }

 private:
  bool hides_none(Shape s) const {
    const auto sees_all_of = [&](std::span<const Range> runs) {
      return std::ranges::any_of(runs, [&](const Range& run) { return run.begin <= col && col + s.cols <= run.end; });
    };
    const RunLists& rows = mask.pattern->rows();
    // Most tiles that hide something hide it in their first row.
    bool all = row + s.rows <= mask.pattern->n_q() && (s.rows == 0 || sees_all_of(rows.of(row)));
    if (all)
      rows.for_groups({row, row + s.rows}, [&](Range, std::span<const Range> runs) { all = all && sees_all_of(runs); });
    return all;
  }
};

}  // namespace redblue
