#pragma once
#include <algorithm>
#include <optional>
#include <vector>

#include "redblue/kernels/dense.hpp"
#include "redblue/kernels/softmax.hpp"
#include "redblue/schedules/linear/state.hpp"
#include "redblue/schedules/operands/forward.hpp"

/// States of attention that keys enter and queries read, in one pass or, where the state does not fit, in several: each
/// for some of its rows (a group of features) and some of its columns. Partial sums go through slow memory from group
/// to group.
namespace redblue::schedule {

/// Columns of the state: some of V, and in the first block the row sums of weights, whose value is 1 for every key.
struct StateColumns {
  index_t first = 0;
  index_t values = 0;
  index_t sums = 1;  ///< 1 or 0
};

/// The d_v + 1 columns of a state, cut into blocks of as many columns as the first one has: `values` of V, and the
/// sums.
struct ColumnBlocks {
  index_t d_v, columns;
  ColumnBlocks(index_t d_v, index_t values) : d_v(d_v), columns(std::min(values, d_v) + 1) {}
  index_t count() const { return ceil_div(d_v + 1, columns); }
  StateColumns operator()(index_t block) const {
    if (block == 0) return {0, columns - 1, 1};
    const index_t first = block * columns - 1;
    return {first, std::min(columns, d_v - first), 0};
  }
  /// The largest of a size over all blocks: of the first, and of the second, of which no later one has more.
  template <class F>
  Words largest(const F& size) const {
    return std::max(size((*this)(0)), size((*this)(std::min<index_t>(1, count() - 1))));
  }
  /// The largest of the phases of each block.
  template <class F>
  Phase phase(const F& phases) const {
    const Words footprint = largest([&](StateColumns c) { return footprint_of(phases(c)); });
    const auto with_second_buffers = [&](StateColumns c) { return footprint_of(phases(c)) + prefetch_of(phases(c)); };
    return {footprint, largest(with_second_buffers) - footprint};
  }
};

/// How many values the first block of columns may have, the most first: multiples of step, or all; of those that make
/// as many blocks the least.
inline std::vector<index_t> numbers_of_values(index_t d_v, index_t step) {
  std::vector<index_t> list;
  const auto blocks = [&](index_t values) { return ColumnBlocks(d_v, values).count(); };
  for (index_t values = d_v; values > 0;) {
    const index_t fewer = (values - 1) / step * step;
    if (blocks(fewer) != blocks(values)) list.push_back(values);
    values = fewer;
  }
  list.push_back(0);
  return list;
}

/// The cheapest number of column blocks of schedule S, whose tiles have gs rows of the state and `values` columns of V.
/// group(t) is the most rows that fit with the columns of t, 0 where none do.
template <class S, class Group>
std::optional<typename S::Tiling> cheapest_columns(const Sizes& x, const Limits& limits, const Group& group) {
  std::optional<typename S::Tiling> best;
  Words least;
  for (const index_t values : numbers_of_values(x.d_v, limits.multiple.feature)) {
    typename S::Tiling t = S::smallest(x, limits.multiple);
    t.values = values;
    t.gs = group(t);
    if (t.gs == 0) continue;
    if (const Words cost = limits.price.of(S::io(x, t)); !best || cost < least) {
      best = t;
      least = cost;
    }
  }
  return best;
}

/// The words of all passes: h blocks of columns, `groups` of them each, which read `coordinates` of each key and query
/// in all.
inline Io io_of_passes(const Sizes& x, Words h, Words groups, Words coordinates) {
  const Words rows = x.n_q, keys = x.n_k, between = groups - 1;
  return Io()
      .read(SlowArray::K, h * keys * coordinates)
      .read(SlowArray::V, groups * keys * x.d_v)
      .read(SlowArray::Q, h * rows * coordinates)
      .read(SlowArray::O, between * rows * x.d_v)
      .read(SlowArray::den, (between + h - 1) * rows)
      .write(SlowArray::O, groups * rows * x.d_v)
      .write(SlowArray::den, (between + (h > 1 ? 1 : 0)) * rows);
}

/// num and den of one pass become those of all so far: partial sums of the groups before come from O and den, and go
/// there until the last group; then num is divided. den stays where other columns need it, too.
template <class M>
void add_to_sums(M& m, const ForwardOperands& x, StateColumns c, bool first, bool last, Range I, const Tile<M>& num,
                 const Tile<M>& den) {
  const Block O_i = x.O.block(I, {c.first, c.first + c.values}), den_i = x.den.rows(I);
  const bool split = c.values < x.shape.d_v;  // there are other columns
  if (!first && c.values > 0) m.compute(kernel::Add{}, num, m.stream(O_i));
  if (!first && c.sums > 0) m.compute(kernel::Add{}, den, m.stream(den_i));
  if (last && c.sums > 0) m.compute(kernel::DivideRows{}, num, den);
  if (last && c.sums == 0) m.compute(kernel::DivideRows{}, num, m.stream(den_i));
  if (c.values > 0) m.store(num, O_i);
  if (c.sums > 0 && (!last || split)) m.store(den, den_i);
}

}  // namespace redblue::schedule
