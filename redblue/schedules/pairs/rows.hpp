#pragma once
#include "redblue/schedules/pairs/cost.hpp"

/// Products over the pairs of a pattern (theory notes 2g). SDDMM (pairs/cost.hpp) forms a word for each pair. SpMM
/// multiplies a matrix that has a word for each pair, as gemm.hpp: ceil(w/b2) nnz + w A(b1).
namespace redblue::schedule {

/// T <- A B^T on the pairs of a tile; finish(T, box) when it is done.
template <class W, class Finish>
void pair_tile(W& w, const Sizes& s, SlowArray T_array, const PairTile& tile, const SlowMatrix& A, const SlowMatrix& B,
               const Finish& finish) {
  const Place place{s.mask, tile.rows.begin, tile.keys.begin};
  const auto box = [&](Range window, Range all) {
    return kernel::PairBox{place, tile.rows.size(), tile.keys.size(), window.begin - all.begin, window.size()};
  };
  std::vector<Range> rows, keys;  // that have a pair
  for (const Range& run : union_of(s.pattern->keys(), tile.keys))
    if (const Range part = intersection(run, tile.rows); part.size() > 0) rows.push_back(part);
  for (const Range& run : union_of(s.pattern->rows(), tile.rows))
    if (const Range part = intersection(run, tile.keys); part.size() > 0) keys.push_back(part);
  const bool rows_stay = RankOne(s.fast, A.array, B.array, tile.r, tile.c).column_stays();
  const std::vector<Range>&staying = rows_stay ? rows : keys, &passing = rows_stay ? keys : rows;
  std::vector<index_t> pairs;  // of each that passes
  for (const Range& run : passing) {
    index_t count = 0;
    const RunLists& lists = rows_stay ? s.pattern->keys() : s.pattern->rows();
    lists.for_groups(run, [&](Range part, std::span<const Range> runs) {
      for_inside(runs, rows_stay ? tile.rows : tile.keys, [&](Range seen) { count += part.size() * seen.size(); });
    });
    pairs.push_back(count);
  }
  const auto T = w.alloc(T_array, {tile.pairs, 1});
  w.compute(kernel::Zero{}, T);
  for (index_t t = 0; t < A.shape.cols; ++t) {
    const Range column{t, t + 1};
    const SlowMatrix &stays = rows_stay ? A : B, &passes = rows_stay ? B : A;
    const auto resident = w.alloc(stays.array, {rows_stay ? tile.r : tile.c, 1});
    index_t done = 0;
    for (const Range& run : staying) {
      w.load_into(resident.rows(done, run.size()), stays.block(run, column));
      done += run.size();
    }
    for (std::size_t k = 0; k < passing.size(); ++k) {
      const kernel::PairProducts products(box(passing[k], rows_stay ? tile.keys : tile.rows), !rows_stay, pairs[k]);
      const auto stream = w.stream(passes.block(passing[k], column));
      if (rows_stay)
        w.compute(products, T, resident, stream);
      else
        w.compute(products, T, stream, resident);
    }
  }
  finish(T, rows, [&](Range window) { return box(window, tile.rows); });
}

/// T = A_I B_j^T on the pairs of a key j, with A_I resident; f(tile, T) for each key that has some. The rows of its
/// tile are those from the first to the last that see the key.
template <class W, class F>
void pair_panel(W& w, const Sizes& s, SlowArray T_array, Range I, const SlowMatrix& A, const SlowMatrix& B,
                const F& f) {
  const auto A_i = w.load(A.rows(I));
  for (const Range& run : union_of(s.pattern->rows(), I))
    for (index_t j = run.begin; j < run.end; ++j) {
      const Range key{j, j + 1}, rows = envelope_of(s.pattern->keys(), key, I);
      const index_t pairs = s.pattern->keys().count(j, I);
      const auto T = w.alloc(T_array, {pairs, 1});
      w.compute(kernel::PairScores{{s.mask, rows.begin, j}, false}, T, A_i.rows(rows.begin - I.begin, rows.size()),
                w.stream(B.rows(key)));
      f(PairTile{rows, key, pairs, pairs, 1}, T);
    }
}

/// f(tile, T, rows, box) for the words T = A B^T of all pairs of the rows I, tile by tile: `rows` are those that have
/// pairs in the tile, as runs, and box(run) is its box with the run as its window. Beside a panel of rows, which has a
/// statistic of all of them, `rows` are those of the tile.
template <class W, class F>
void for_pair_products(W& w, const Sizes& s, SlowArray T_array, Range I, const PairTiling& t, const SlowMatrix& A,
                       const SlowMatrix& B, const F& f) {
  if (t.form() == Panel::rows)
    return pair_panel(w, s, T_array, I, A, B, [&](const PairTile& tile, const auto& T) {
      const Place place{s.mask, tile.rows.begin, tile.keys.begin};
      f(tile, T, std::vector{tile.rows}, [&](Range window) {
        return kernel::PairBox{place, tile.rows.size(), 1, window.begin - tile.rows.begin, window.size()};
      });
    });
  for_pair_tiles(*s.pattern, I, t.room, [&](const PairTile& tile) {
    pair_tile(w, s, T_array, tile, A, B,
              [&](const auto& T, const auto& rows, const auto& box) { f(tile, T, rows, box); });
  });
}

/// The words of a tile that belong to a row, in slow memory: f(the first of them in the tile, block).
template <class F>
void for_pair_rows(const Sizes& s, const PairTile& tile, const SlowMatrix& of_pairs, const F& f) {
  index_t done = 0;
  const auto row = [&](index_t r, index_t pairs) {
    const index_t first = pairs > 0 ? s.pattern->pair_at(r, tile.keys.begin) : 0;
    if (pairs > 0) f(done, of_pairs.block(Range{first, first + pairs}, {0, 1}));
    done += pairs;
  };
  if (tile.keys.size() == 1)
    return for_inside(s.pattern->keys().of(tile.keys.begin), tile.rows, [&](Range seen) {
      for (index_t r = seen.begin; r < seen.end; ++r) row(tile.rows.begin + r, 1);
    });
  for (index_t r = tile.rows.begin; r < tile.rows.end; ++r) row(r, s.pattern->rows().count(r, tile.keys));
}

/// For each term t that block G of rows of the product meets: apply(window, z, x) with the words Z[G, t] of those rows
/// that have one, and row t of X in the columns C. One of the two is resident, the other passes, Z piece by piece: as
/// far as its words lie side by side. `by_keys`: the product has rows for keys, and Z is transposed.
template <class W, class Apply>
void for_pair_terms(W& w, const Sizes& s, Shape room, const SlowMatrix& Z, bool by_keys, Range G, const SlowMatrix& X,
                    Range C, const Apply& apply) {
  const Pattern& pattern = *s.pattern;
  const bool column_stays = RankOne(s.fast, Z.array, X.array, room.rows, room.cols).column_stays();
  for (const Range& run : union_of(by_keys ? pattern.keys() : pattern.rows(), G))
    for (index_t t = run.begin; t < run.end; ++t) {
      /// f(rows of G, the block with their words)
      const auto for_pieces = [&](const auto& f) {
        for_inside((by_keys ? pattern.rows() : pattern.keys()).of(t), G, [&](Range seen) {
          const auto words = [&](Range part) {
            const index_t first =
                by_keys ? pattern.pair_at(t, G.begin + part.begin) : pattern.pair_at(G.begin + part.begin, t);
            f(part, Z.block(Range{first, first + part.size()}, {0, 1}));
          };
          if (by_keys) return words(seen);
          for (index_t r = seen.begin; r < seen.end; ++r) words({r, r + 1});
        });
      };
      const Block x = X.block(Range{t, t + 1}, C);
      if (column_stays) {
        const auto z = w.alloc(Z.array, {room.rows, 1});
        index_t done = 0;
        for_pieces([&](Range part, const Block& block) {
          w.load_into(z.rows(done, part.size()), block);
          done += part.size();
        });
        apply(t, Range{0, G.size()}, z.rows(0, done), w.stream(x));
      } else {
        const auto row = w.alloc(X.array, {1, room.cols});
        w.load_into(row, x);
        for_pieces([&](Range part, const Block& block) { apply(t, part, w.stream(block), row.arg()); });
      }
    }
}

/// Y = Z X, or Z^T X, with Z a word for each pair; without the weights Z that are dropped.
template <class M>
void spmm(M& m, const Sizes& s, const SlowMatrix& Y, const SlowMatrix& Z, bool by_keys, const SlowMatrix& X,
          GemmTiling t, const kernel::DropOfPairs& drop = {}) {
  const Blocks blocks = by_keys ? s.pairs().key_blocks(t.b1) : s.pairs().row_blocks(t.b1), columns{Y.shape.cols, t.b2};
  m.each(blocks.count(), [&](auto& w, index_t i) {
    for (index_t k = 0; k < columns.count(); ++k) {
      const Range G = blocks(i), C = columns(k);
      const auto acc = w.alloc(Y.block(G, C));
      w.compute(kernel::Zero{}, acc);
      for_pair_terms(w, s, acc.shape(), Z, by_keys, G, X, C,
                     [&](index_t term, Range window, const auto& z, const auto& x) {
                       const Place place = by_keys ? Place{s.mask, term, G.begin} : Place{s.mask, G.begin, term};
                       w.compute(kernel::PairAccumulate{place, window.begin, window.size(), by_keys, drop}, acc, z, x);
                     });
      w.store(acc, Y.block(G, C));
    }
  });
}

}  // namespace redblue::schedule
