#pragma once
#include "redblue/schedules/pairs/modifiers.hpp"
#include "redblue/schedules/parts/visible.hpp"

/// Strips: all scores of a block of queries, or of keys, are resident at once, one word for each pair that the mask
/// leaves, row by row. For rows that see few keys. Theory notes 2j.
namespace redblue::schedule {

/// A block of queries and the keys that they see, or of keys and the queries that see them.
struct Strip {
  Range rows, keys;
  index_t pairs = 0;

  Shape words() const { return {pairs, 1}; }
  kernel::PairBox box(const Sizes& x) const {
    return {x.formed(rows.begin, keys.begin), rows.size(), keys.size(), 0, rows.size()};
  }
};
inline Strip strip_of_rows(const Sizes& x, Range I) {
  return {I, x.pairs().keys_of(I), x.pairs().count_of_rows(I).to_index()};
}
inline Strip strip_of_keys(const Sizes& x, Range J) {
  return {x.pairs().rows_of(J), J, x.pairs().count_of_keys(J).to_index()};
}

/// The largest words(rows, pairs) over blocks of `a` queries, and words(keys, pairs) over blocks of b keys.
template <class BlockWords>
Words row_strips_footprint(const Sizes& x, index_t a, const BlockWords& words) {
  const Pairs pairs = x.pairs();
  const index_t rows = std::min(a, x.n_q), ragged = x.n_q % rows;
  const Blocks blocks = pairs.row_blocks(rows);
  const Range rest = blocks(blocks.ragged_first ? 0 : blocks.count() - 1);
  return std::max(words(rows, pairs.most_pairs_of_rows(rows)),
                  ragged > 0 ? words(ragged, pairs.count_of_rows(rest)) : Words(0));
}
template <class BlockWords>
Words key_strips_footprint(const Sizes& x, index_t b, const BlockWords& words) {
  const index_t keys = std::min(b, x.n_k), ragged = x.n_k % keys;
  return std::max(words(keys, x.pairs().most_pairs_of_keys(keys)),
                  ragged > 0 ? words(ragged, x.pairs().count_of_keys({x.n_k - ragged, x.n_k})) : Words(0));
}

/// The size of blocks of n queries or keys for which fits(size) holds and visits(size) is least; 0 if there is none.
/// Neither is monotone. could_fit(size, pairs) says whether a block of this size with so few pairs would fit: `pairs`
/// is the mean of the blocks, of which the largest has no fewer. From some size on it fails for all; sizes are tried
/// from there down, multiples of `step`, kTries at most, until even the least visits are no fewer. A multiple of a size
/// fits only where the size does.
template <class CouldFit, class Fits, class Visits>
index_t best_strip(const Sizes& x, LeastVisits::Of of, index_t step, const CouldFit& could_fit, const Fits& fits,
                   const Visits& visits) {
  constexpr index_t kTries = 4096;
  const index_t n = of == LeastVisits::Of::keys ? x.n_k : x.n_q;
  const Words nnz = x.nnz();
  const LeastVisits at_least(x, of, nnz);
  const auto may_fit = [&](index_t size) { return could_fit(size, nnz / ceil_div(n, size)); };
  index_t best = largest_tile(n, step, [&](index_t size) { return may_fit(size) && fits(size); });
  if (best == 0) return 0;
  Words least = visits(best);
  const index_t most = largest_tile(n, step, may_fit), first = ceil_div(most, step),
                last = std::max<index_t>(0, std::min(first, best / step + kTries / 2) - kTries);
  for (index_t k = std::min(first, last + kTries); k > last; --k) {
    const index_t size = std::min(n, k * step);
    if (at_least(size) >= least) break;
    if (const Words here = visits(size); here < least && fits(size)) {
      best = size;
      least = here;
    }
  }
  return best;
}
template <class CouldFit, class Fits>
index_t best_row_strip(const Sizes& x, index_t step, const CouldFit& could_fit, const Fits& fits) {
  return best_strip(x, LeastVisits::Of::rows, step, could_fit, fits,
                    [&](index_t a) { return x.pairs().visited_keys(a); });
}
template <class CouldFit, class Fits>
index_t best_key_strip(const Sizes& x, index_t step, const CouldFit& could_fit, const Fits& fits) {
  return best_strip(x, LeastVisits::Of::keys, step, could_fit, fits,
                    [&](index_t b) { return x.pairs().visited_rows(b); });
}

/// T <- A B^T on the pairs of the strip: a column of A is resident while that of B streams past.
inline Phase strip_phase(const Sizes& x, SlowArray A, SlowArray B, index_t rows) {
  const Words words = x.tile(A, rows, 1) + x.word(B);
  return {words, words};
}
template <class W, class T>
void form_strip(W& w, const Sizes& x, const T& tile, const Strip& strip, const SlowMatrix& A, const SlowMatrix& B) {
  kernel::PairBox box = strip.box(x);
  box.count = strip.keys.size();
  const kernel::PairProducts products(box, false, strip.pairs);
  w.compute(kernel::Zero{}, tile);
  for (index_t t = 0; t < A.shape.cols; ++t) {
    const auto a = w.load(A.block(strip.rows, {t, t + 1}));
    w.compute(products, tile, a, w.stream(B.block(strip.keys, {t, t + 1})));
  }
}

/// The strip of scores from that of Q K^T, F that of the derivatives of a softcap where it has words: the slopes are
/// resident, then a bias passes. Then the softmax of its rows, whose sinks pass beside lse.
inline Phase strip_scores_phase(const Sizes& x, index_t rows) {
  const Phase products = strip_phase(x, SlowArray::Q, SlowArray::K, rows);
  return {std::max(products.footprint, slopes_tile(x) + passing_bias(x, 0)), products.prefetch};
}
inline Phase strip_softmax_phase(const Sizes& x, index_t rows) {
  return {x.tile(SlowArray::lse, rows, 1) + passing_sink(x, 0), 0};
}
inline Io strip_scores_io(const Sizes& x, index_t a) {
  const index_t strips = ceil_div(x.n_q, a);
  return modifiers_io(x, x.nnz(), x.pairs().visited_keys(a), strips) + sinks_io(x, strips);
}
template <class W, class Operands, class T, class F>
void modify_strip(W& w, const Operands& x, const T& tile, const Strip& strip, const F& derivative) {
  const Slopes slopes(w, x);
  const kernel::PairBox box = strip.box(x.shape);
  pair_scores(w, x, box, tile, derivative, slopes.arg());
  if (x.shape.hiding == nullptr) return;
  kernel::PairBox hidden = box;
  hidden.place = x.shape.place(strip.rows.begin, strip.keys.begin);
  w.compute(kernel::PairHide(hidden), tile);
}

/// Y = T X, or T^T X, for the rows of Y that the strip has: a column of Y is resident while that of X streams past.
inline Phase strip_product_phase(const Sizes& x, SlowArray Y, SlowArray X, index_t rows) {
  return {x.tile(Y, rows, 1) + x.word(X), x.word(X)};
}
template <class W, class T>
void multiply_strip(W& w, const Sizes& x, const SlowMatrix& Y, const T& tile, const Strip& strip, bool transposed,
                    const SlowMatrix& X) {
  const auto [to, from] = transposed ? std::pair(strip.keys, strip.rows) : std::pair(strip.rows, strip.keys);
  for (index_t t = 0; t < Y.shape.cols; ++t) {
    const auto y = w.alloc(Y.block(to, {t, t + 1}));
    w.compute(kernel::Zero{}, y);
    w.compute(kernel::PairTimesColumn(strip.box(x), transposed), y, tile, w.stream(X.block(from, {t, t + 1})));
    w.store(y, Y.block(to, {t, t + 1}));
  }
}

/// f(words of the tile, where a band of slow memory has them) for each row of the strip.
template <class T, class F>
void for_rows_of_strip(const Sizes& x, const T& tile, const Strip& strip, const SlowMatrix& band, const F& f) {
  index_t done = 0;
  for (index_t i = strip.rows.begin; i < strip.rows.end; ++i) {
    const Range all = x.pairs().keys_of({i, i + 1}), seen = intersection(all, strip.keys);
    f(tile.rows(done, seen.size()), band.block(seen.shifted(-all.begin), {i, i + 1}));
    done += seen.size();
  }
}

}  // namespace redblue::schedule
