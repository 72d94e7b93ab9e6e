#pragma once
#include <algorithm>
#include <vector>

#include "redblue/kernels/gradient.hpp"
#include "redblue/language/data_machine.hpp"
#include "redblue/methods/kernels/sorting.hpp"
#include "redblue/schedules/operands/forward.hpp"
#include "redblue/schedules/parts/limits.hpp"

/// Sorts of the positions 0 to n - 1 by keys, with runs of pairs (key, position) in slow memory. Which position comes
/// where the data say, and how many words move they do not.
namespace redblue::schedule {

struct SortTiling {
  index_t rho = 1;  ///< pairs sorted at a time in fast memory
  index_t f = 2;    ///< runs merged at a time
};

/// The times that runs are merged until one is left.
inline index_t merge_passes(index_t n, SortTiling t) {
  index_t passes = 0;
  for (index_t runs = ceil_div(n, t.rho); runs > 1; runs = ceil_div(runs, t.f)) ++passes;
  return passes;
}
/// Words of runs, as many written as read.
inline Words run_words(index_t n, SortTiling t) { return 2 * Words(n) * merge_passes(n, t); }
/// While pairs are formed; `word` is what passes meanwhile.
inline Words forming_words(const Sizes& x, index_t n, SortTiling t, Words word) {
  return x.tile(SlowArray::runs, std::min(t.rho, n), 2) + word;
}
inline Words merging_words(const Sizes& x, index_t n, SortTiling t) {
  const index_t runs = ceil_div(n, t.rho);
  return runs > 1 ? x.tile(SlowArray::runs, std::min(t.f, runs), 2) : Words(0);
}

/// Merges neighbouring runs of `length` pairs each, those of the positions I, which lie in two columns of `runs` from
/// `from` on. write(pair, place) writes the next pair. Only a machine with data knows which run it comes from: its
/// position says so, for a run has the positions of its own places.
template <class M, class Write>
void merge_runs(M& m, const SlowMatrix& runs, index_t from, Range I, index_t length, const Write& write) {
  const index_t count = ceil_div(I.size(), length);
  const auto heads = m.alloc(SlowArray::runs, {count, 2});
  std::vector<index_t> next(static_cast<std::size_t>(count));
  const auto end = [&](index_t run) { return std::min(I.begin + (run + 1) * length, I.end); };
  const auto bring = [&](index_t run, index_t row) {
    index_t& at = next[static_cast<std::size_t>(run)];
    m.load_into(heads.rows(row, 1), runs.block(at++, from, {1, 2}));
  };
  for (index_t run = 0; run < count; ++run) {
    next[static_cast<std::size_t>(run)] = I.begin + run * length;
    bring(run, run);
  }
  index_t left = count, other = 0;  // runs with a pair among the heads; the first of them where no data say which
  for (index_t i = I.begin; i < I.end; ++i) {
    m.compute(kernel::SmallestFirst{}, heads.rows(0, left));
    const index_t run = (look_up(m, heads.part({1, 1}, 0, 1), I.begin + other * length) - I.begin) / length;
    write(heads, i);
    if (next[static_cast<std::size_t>(run)] < end(run)) {
      bring(run, 0);
      continue;
    }
    --left;
    if (run == other) ++other;
    if (left > 0) m.compute(kernel::Copy{}, heads.rows(0, 1), heads.rows(left, 1));
  }
}

/// order <- the positions 0 to n - 1, sorted. form(keys, positions, rows) fills the pairs of some rows.
template <class M, class Form>
void sort_positions(M& m, index_t n, const SlowMatrix& runs, const SlowMatrix& order, SortTiling t, const Form& form) {
  const index_t passes = merge_passes(n, t);
  for (index_t i = 0; i < n; i += t.rho) {
    const Range I{i, std::min(i + t.rho, n)};
    const auto pairs = m.alloc(SlowArray::runs, {I.size(), 2});
    form(pairs.cols(0, 1), pairs.cols(1, 1), I);
    m.compute(kernel::SortPairs{}, pairs);
    if (passes == 0)
      m.store(pairs.cols(1, 1), order.rows(I));
    else
      m.store(pairs, runs.block(i, 0, {I.size(), 2}));
  }
  index_t length = t.rho, from = 0;
  for (index_t pass = 1; pass <= passes; ++pass, length *= t.f, from = 2 - from)
    for (index_t i = 0; i < n; i += length * t.f)
      merge_runs(m, runs, from, {i, std::min(i + length * t.f, n)}, length, [&](const auto& heads, index_t place) {
        if (pass == passes)
          m.store(heads.part({1, 1}, 0, 1), order.rows(place, 1));
        else
          m.store(heads.rows(0, 1), runs.block(place, 2 - from, {1, 2}));
      });
}

}  // namespace redblue::schedule
