#pragma once
#include <cmath>

#include "redblue/schedule/parts/gemm.hpp"
#include "redblue/schedule/parts/pair_modifiers.hpp"

/// Products over the pairs of a pattern (theory notes 2g). SDDMM forms a word A_i . B_j for each pair, in tiles that
/// hold as many pairs as there is room for, however sparse they lie: a tile takes keys of a block of rows until it is
/// full. SpMM multiplies a matrix that has a word for each pair.
///   SDDMM  reads SUM over tiles of (r + c) w    footprint the largest e + min(r, c) + 1
///   SpMM   as gemm.hpp: ceil(w/b2) nnz + w A(b1)
/// of a tile: e pairs, r rows and c keys that have one.
namespace redblue::schedule {

struct PairTiling {
  index_t a = 1;     ///< rows of a block
  index_t room = 2;  ///< words for the pairs of a tile and its rows; a tile has one key at least
};

/// A tile: the pairs of these rows and keys.
struct PairTile {
  Range rows, keys;
  index_t pairs = 0;
  index_t r = 0, c = 0;  ///< rows and keys that have a pair
};

/// Rows, as runs with gaps between them.
class RowSet {
 public:
  void clear() { runs_.clear(); }
  /// How many of these are not there.
  index_t missing(Range rows) const {
    index_t count = rows.size();
    for (auto run = first_from(rows.begin); run != runs_.end() && run->begin < rows.end; ++run)
      count -= intersection(*run, rows).size();
    return count;
  }
  void add(Range rows) {
    const auto first = runs_.begin() + (first_from(rows.begin - 1) - runs_.cbegin());  // it may touch
    auto last = first;
    for (; last != runs_.end() && last->begin <= rows.end; ++last)
      rows = {std::min(rows.begin, last->begin), std::max(rows.end, last->end)};
    if (first == last) {
      runs_.insert(first, rows);
    } else {
      *first = rows;
      runs_.erase(first + 1, last);
    }
  }

 private:
  /// The first run that ends after i.
  std::vector<Range>::const_iterator first_from(index_t i) const {
    return std::ranges::partition_point(runs_, [&](const Range& run) { return run.end <= i; });
  }
  std::vector<Range> runs_;
};

/// f(tile) for the tiles of the rows I, from the first key on.
template <class F>
void for_pair_tiles(const Pattern& pattern, Range I, index_t room, const F& f) {
  PairTile tile{I, {}, 0, 0, 0};
  RowSet has;
  const auto new_rows = [&](std::span<const Range> runs) {
    index_t rows = 0;
    for_inside(runs, I, [&](Range run) { rows += has.missing(run); });
    return rows;
  };
  const auto finish = [&] {
    if (tile.pairs > 0) f(tile);
    has.clear();
    tile = {I, {}, 0, 0, 0};
  };
  for (const Range& seen : union_of(pattern.rows(), I))
    pattern.keys().for_groups(seen, [&](Range keys, std::span<const Range> runs) {
      const index_t each = pattern.keys().count(keys.begin, I);  // pairs of one key
      while (keys.size() > 0) {
        const index_t rows = tile.r == I.size() ? 0 : new_rows(runs), left = room - tile.pairs - tile.r - rows;
        index_t fitting = std::min(keys.size(), std::max<index_t>(0, left / each));
        if (fitting == 0 && tile.pairs > 0) {
          finish();
          continue;
        }
        fitting = std::max<index_t>(1, fitting);
        if (tile.pairs == 0) tile.keys.begin = keys.begin;
        if (rows > 0) for_inside(runs, I, [&](Range run) { has.add(run); });
        tile.r += rows;
        tile.c += fitting;
        tile.pairs += fitting * each;
        keys.begin += fitting;
        tile.keys.end = keys.begin;
      }
    });
  finish();
}

/// What SDDMM costs: T is where its words go, A B^T has w terms in each, `stats` statistics of every row of a block are
/// resident. Where its words are scores, the problem's modifiers act on them.
struct PairCost {
  SlowArray T, A, B;
  index_t w;
  index_t stats;
  Words finish = 0;  ///< what passes while a tile is finished
  bool scores = false;

  /// The sums of a phase over all tiles.
  struct Sums {
    Words rows, keys, footprint, prefetch;
  };
  Sums sums(const Sizes& x, PairTiling t) const {
    const Pattern::Key key{t.a,
                           t.room,
                           x.tile(T, 1, 1),
                           x.tile(A, 1, 1),
                           x.tile(B, 1, 1),
                           x.word(A),
                           x.word(B),
                           finish,
                           stats * x.tile(SlowArray::lse, 1, 1)};
    const auto [rows, keys, footprint, prefetch] = x.pattern->found("pair tiles", key, [&] {
      const Sums s = walked(x, t);
      return Pattern::Found{s.rows, s.keys, s.footprint, s.prefetch};
    });
    return {rows, keys, footprint, prefetch};
  }
  /// At least, of blocks of `a` rows: every key that a block sees is in one of its tiles. A tile of e pairs, r rows and
  /// c keys has e <= r c, and e <= room or, with one key, e <= a: r >= e^2 / (c max(room, a)), and over all tiles
  /// nnz^2 / (A(a) max(room, a)) or more.
  static Sums at_least(const Sizes& x, index_t a, Words room) {
    const Words keys = x.pairs().visited_keys(a), nnz = x.nnz();
    return {keys > 0 ? nnz * nnz / (std::max<Words>(room, a) * keys) : Words(0), keys, 0, 0};
  }
  /// Does the largest tile of one key fit, which no room makes smaller?
  bool one_key_fits(const Sizes& x, const Limits& limits, index_t a) const {
    const auto fits = [&](index_t rows, index_t pairs) {
      const Words pass = std::max(RankOne(x.fast, A, B, pairs, 1).least(), finish);
      return limits.fit(phase(x, {0, 0, stats * x.tile(SlowArray::lse, rows, 1) + x.tile(T, pairs, 1) + pass, pass}));
    };
    if (fits(a, a)) return true;
    const MostInBlock most = x.pattern->found(
        "pairs of a key", {a}, [&] { return most_in_block(x.pattern->keys(), x.n_q, std::min(a, x.n_q), true); });
    return (most.whole == 0 || fits(a, most.whole)) && (most.ragged == 0 || fits(x.n_q % a, most.ragged));
  }
  Sums walked(const Sizes& x, PairTiling t) const {
    Sums s;
    const Blocks blocks = x.pairs().row_blocks(std::min(t.a, x.n_q));
    for (index_t i = 0; i < blocks.count(); ++i) {
      const Range I = blocks(i);
      const Words rows = stats * x.tile(SlowArray::lse, I.size(), 1);
      s.footprint = std::max(s.footprint, rows);
      for_pair_tiles(*x.pattern, I, t.room, [&](const PairTile& tile) {
        s.rows += tile.r;
        s.keys += tile.c;
        const Words factors = RankOne(x.fast, A, B, tile.r, tile.c).least(), pass = std::max(factors, finish);
        s.footprint = std::max(s.footprint, rows + x.tile(T, tile.pairs, 1) + pass);
        s.prefetch = std::max(s.prefetch, pass);
      });
    }
    return s;
  }
  Io io(const Sizes& x, PairTiling t, const Sums& s) const {
    const Io products = Io().read(A, s.rows * w).read(B, s.keys * w);
    return scores ? products + modifiers_io(x, x.nnz(), s.keys, ceil_div(x.n_q, t.a)) : products;
  }
  Phase phase(const Sizes& x, const Sums& s) const {
    return {s.footprint + (scores ? slopes_tile(x) : Words(0)), s.prefetch};
  }

  /// The cheapest of some sizes of blocks, each with the largest room that fits; `each_row` is what a row of a tile
  /// costs beside its words of A.
  std::optional<PairTiling> choose(const Sizes& x, const Limits& limits, Words each_row) const {
    std::optional<PairTiling> best;
    Words cheapest;
    const index_t step = limits.multiple.query;
    const auto try_rows = [&](index_t a) {
      const Words room = limits.M - limits.reserve - stats * x.tile(SlowArray::lse, a, 1) - x.word(B);
      if (room < 2 || !one_key_fits(x, limits, a)) return;
      const Words most = std::min<Words>(room / std::max<Words>(1, x.word(T)), Words(x.pattern->pairs()) + x.n_q);
      const auto costs = [&](PairTiling t, const Sums& s) { return limits.price.of(io(x, t, s)) + each_row * s.rows; };
      if (best && costs({a, most.to_index()}, at_least(x, a, most)) >= cheapest) return;
      for (index_t size = most.to_index(); size >= 2; size -= std::max<index_t>(1, size / 8)) {
        const PairTiling t{a, size};
        const Sums s = sums(x, t);
        if (!limits.fit(phase(x, s))) continue;
        if (const Words cost = costs(t, s); !best || cost < cheapest) {
          best = t;
          cheapest = cost;
        }
        return;
      }
    };
    // All sizes where those are few; else as many as there is time for, a half more or less each, from that of a square
    // tile on.
    constexpr index_t kSteps = index_t{1} << 23, kFewest = 3, kMost = 24;
    const index_t most = ceil_div(x.n_q, step),
                  work = x.pattern->rows().runs_held() + x.pattern->keys().runs_held() + x.n_q + x.n_k,
                  tries = std::clamp(kSteps / work, kFewest, kMost);
    if (most <= kMost * 2) {
      for (index_t k = 1; k <= most; ++k) try_rows(std::min(x.n_q, k * step));
      return best;
    }
    std::vector<index_t> sizes;  // the same for any M, so that what is walked is known
    for (index_t k = 1; k < most; k += std::max<index_t>(1, k / 2)) sizes.push_back(k);
    sizes.push_back(most);
    const auto square = static_cast<index_t>(std::sqrt((limits.M / std::max<Words>(1, x.word(T))).to_double())) / step;
    const index_t n = std::ssize(sizes), middle = std::ranges::lower_bound(sizes, square) - sizes.begin();
    for (index_t k = 0, left = tries; left > 0 && k < 2 * n; ++k) {
      const index_t at = middle + (k + 1) / 2 * (k % 2 == 0 ? 1 : -1);
      if (at < 0 || at >= n) continue;
      try_rows(std::min(x.n_q, sizes[static_cast<std::size_t>(at)] * step));
      --left;
    }
    return best;
  }
};

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

/// The words of a tile that belong to a row, in slow memory: f(the first of them in the tile, block).
template <class F>
void for_pair_rows(const Sizes& s, const PairTile& tile, const SlowMatrix& of_pairs, const F& f) {
  index_t done = 0;
  for (index_t r = tile.rows.begin; r < tile.rows.end; ++r) {
    const index_t first = s.pattern->pair_at(r, tile.keys.begin), end = s.pattern->pair_at(r, tile.keys.end);
    if (end > first) f(done, of_pairs.block(Range{first, end}, {0, 1}));
    done += end - first;
  }
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
