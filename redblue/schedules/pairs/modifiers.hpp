#pragma once
#include "redblue/kernels/pair_modifiers.hpp"
#include "redblue/schedules/operands/backward.hpp"
#include "redblue/schedules/parts/modifiers.hpp"

/// Modifiers of scores on tiles that hold one word for each pair (parts/modifiers.hpp has those of dense tiles). A bias
/// with a row for each query passes run by run, a word for each pair; a row that all queries share passes once for each
/// tile, a word for each key that has a pair in it.
namespace redblue::schedule {

/// f(row and keys of the run in slow memory, the run as a box, the place of its first pair) for each run of a box.
template <class F>
void for_runs_of(const kernel::PairBox& box, const F& f) {
  const Place& at = box.place;
  box.for_runs([&](index_t r, Range seen, index_t pair) {
    const Range row{at.row + r, at.row + r + 1}, keys = seen.shifted(at.col);
    f(row, keys, kernel::PairBox{{at.mask, row.begin, keys.begin}, 1, keys.size(), 0, keys.size()}, pair);
  });
}
/// The box with all its keys, or a part of them, as its window.
inline kernel::PairBox with_keys(kernel::PairBox box, Range window) {
  box.first = window.begin;
  box.count = window.size();
  return box;
}
inline kernel::PairBox with_keys(const kernel::PairBox& box) { return with_keys(box, {0, box.cols}); }

/// Scores of the pairs of a box, whose tile T holds products of queries and keys, before the bias; F becomes the
/// derivative of the softcap, where it has words.
template <class W, class Operands, class T, class F, class Slopes>
[[gnu::noinline]] void begin_pair_scores(W& w, const Operands& x, const kernel::PairBox& box, const T& tile,
                                         const F& derivative, const Slopes& slopes) {
  const kernel::ModifyScores modify = modify_scores(x.shape, box.place);
  w.compute(kernel::Scale{x.scale}, tile);
  if (!modify.idle(derivative.shape(), {0, 0}, slopes.shape()))
    w.compute(kernel::PairModify(modify, box), tile, derivative, slopes);
}
/// f(keys of the run, the box with these as its window) for each run of keys that have a pair in the box.
template <class F>
void for_keys_of(const Sizes& x, const kernel::PairBox& box, const F& f) {
  const Range rows{box.place.row, box.place.row + box.rows}, all{box.place.col, box.place.col + box.cols};
  for (const Range& run : x.pairs().runs_of_keys(rows))
    if (const Range keys = intersection(run, all); keys.size() > 0) f(keys, with_keys(box, keys.shifted(-all.begin)));
}
/// The bias of the pairs of a box passes.
template <class W, class Operands, class T>
[[gnu::noinline]] void add_passing_bias(W& w, const Operands& x, const kernel::PairBox& box, const T& tile) {
  if (x.bias.shape.words() == 0) return;
  if (x.bias_of_keys)
    return for_keys_of(x.shape, box, [&](Range keys, const kernel::PairBox& part) {
      w.compute(kernel::PairBias(part), tile, w.stream(x.bias.block({0, 1}, keys)));
    });
  for_runs_of(box, [&](Range row, Range keys, const kernel::PairBox& run, index_t pair) {
    w.compute(kernel::PairBias(run), tile.rows(pair, keys.size()), w.stream(x.bias.block(row, keys)));
  });
}
/// Both.
template <class W, class Operands, class T, class F, class Slopes>
void pair_scores(W& w, const Operands& x, const kernel::PairBox& box, const T& tile, const F& derivative,
                 const Slopes& slopes) {
  begin_pair_scores(w, x, box, tile, derivative, slopes);
  add_passing_bias(w, x, box, tile);
}

inline kernel::DropOfPairs drop_of_pairs(const Sizes& x, index_t instance) {
  const kernel::Drop of_tile = drop(x, instance, {});
  return {of_tile, of_tile.col};
}
/// Weights that are dropped become 0.
template <class W, class Operands, class T>
void drop_pairs(W& w, const Operands& x, const kernel::PairBox& box, const T& tile) {
  if (x.shape.modifiers.dropout > 0) w.compute(kernel::PairDrop(drop_of_pairs(x.shape, x.instance()), box), tile);
}

/// dBias += dS / scale in slow memory: a word for each pair of the box, or for each key of it where all queries share a
/// row.
template <class W, class T>
[[gnu::noinline]] void add_pair_bias_gradient(W& w, const BackwardOperands& x, const kernel::PairBox& box,
                                              const T& scaled) {
  const double factor = 1 / x.scale;
  if (x.bias_of_keys)
    return for_keys_of(x.shape, box, [&](Range keys, const kernel::PairBox& part) {
      w.update(kernel::PairBiasGradient(factor, part), x.dBias.block({0, 1}, keys), scaled);
    });
  for_runs_of(box, [&](Range row, Range keys, const kernel::PairBox& run, index_t pair) {
    w.update(kernel::PairBiasGradient(factor, run), x.dBias.block(row, keys), scaled.rows(pair, keys.size()));
  });
}
/// A word of dBias that passes.
inline Words passing_pair_bias_gradient(const Sizes& x) {
  return x.modifiers.bias_gradient ? x.word(SlowArray::dBias) : Words(0);
}

}  // namespace redblue::schedule
