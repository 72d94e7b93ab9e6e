#pragma once
#include <initializer_list>

#include "redblue/schedules/pairs/rows.hpp"
#include "redblue/schedules/parts/gemm.hpp"

/// Index words of a pattern whose pairs are a list in slow memory (theory notes 2g), in the order in which a schedule
/// needs them: block by block, and of each key that a block of rows meets its number, the number of its pairs in the
/// block, and their rows. Numbers steer loops and are dropped; the rows stay while the words of their key pass. Nothing
/// else changes: what stays and what streams is as without these words. All is for a core that has a pattern.
namespace redblue::schedule {

/// Words of phases that follow each other.
inline IndexWords index_of_phases(std::initializer_list<IndexWords> phases) {
  IndexWords words;
  for (const IndexWords& phase : phases) words = words.then(phase);
  return words;
}

/// A pass over blocks of rows or keys, and what each of them meets passes once.
struct PassIndex {
  Words reads;
  MostBySize pairs;  ///< of one key, or row, that passes

  IndexWords words() const {
    return {reads, pairs.largest([](index_t, index_t most) { return most; })};
  }
};
/// T blocks of `a` rows: T + 2 A(a) + nnz words read, and g resident, the most pairs of one key in a block.
inline PassIndex row_pass_index(const Sizes& x, const Blocks& blocks, Words visits) {
  return {blocks.count() + 2 * visits + x.nnz(), most_in_block(x.pattern->keys(), blocks)};
}
inline PassIndex row_pass_index(const Sizes& x, index_t a) {
  return {x.pairs().row_blocks(a).count() + 2 * x.pairs().visited_keys(a) + x.nnz(),
          most_pairs(x, BlocksOf::rows, std::min(a, x.n_q))};
}
/// T blocks of b keys: T + 2 B(b) + nnz words read, and the most pairs of one row in a block resident.
inline PassIndex key_pass_index(const Sizes& x, index_t b) {
  return {x.pairs().key_blocks(b).count() + 2 * x.pairs().visited_rows(b) + x.nnz(),
          most_pairs(x, BlocksOf::keys, std::min(b, x.n_k))};
}

/// SDDMM: panels take a pass; a tile of e pairs, r rows and c keys needs its whole list for each of the terms: its
/// numbers of rows and keys, the rows, of each key its number and its number of pairs, and the row of each pair. 2 + r
/// + 2 c + e words.
inline IndexWords sddmm_index(const Sizes& x, PairTiling t) {
  if (t.form() == Panel::rows) return row_pass_index(x, t.a).words();
  if (t.form() == Panel::keys) return key_pass_index(x, t.b).words();
  const Pattern::Found words = x.pattern->found("index of pair tiles", {t.a, t.room}, [&] {
    IndexWords all;
    const Blocks blocks = x.pairs().row_blocks(std::min(t.a, x.n_q));
    for (index_t i = 0; i < blocks.count(); ++i)
      for_like_pair_tiles(*x.pattern, blocks(i), t.room, [&](const PairTile& tile, index_t count) {
        const Words list = Words(2) + tile.r + 2 * tile.c + tile.pairs;
        all = all.then({count * list, list});
      });
    return Pattern::Found{all.reads, all.resident};
  });
  return {words[0], words[1]};
}

/// SpMM: the list passes once for each block of columns. Where the words of a term's pairs stay, their rows stay with
/// them; where those words stream, one row at a time. `by_keys`: the product has rows for keys.
inline IndexWords spmm_index(const Sizes& x, const GemmCost& product, GemmTiling t, bool by_keys) {
  const index_t b1 = std::min(t.b1, product.m), b2 = std::min(t.b2, product.n);
  const PassIndex pass = by_keys ? key_pass_index(x, b1) : row_pass_index(x, b1);
  IndexWords words{c(product.n, b2) * pass.reads, 0};
  const auto hold = [&](index_t rows, index_t cols, index_t pairs) {
    if (cols == 0) return;
    const bool pairs_stay = RankOne(x.fast, product.A, product.B, rows, cols).column_stays();
    words.resident = std::max(words.resident, Words(pairs_stay ? pairs : std::min<index_t>(1, pairs)));
  };
  for (const index_t cols : {b2, product.n % b2})
    for (const auto& [rows, most] : pass.pairs) hold(rows, cols, most);
  return words;
}

}  // namespace redblue::schedule
