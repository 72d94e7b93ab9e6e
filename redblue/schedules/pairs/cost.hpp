#pragma once
#include <cmath>
#include <optional>

#include "redblue/schedules/pairs/blocks.hpp"
#include "redblue/schedules/pairs/modifiers.hpp"
#include "redblue/schedules/pairs/tiles.hpp"
#include "redblue/schedules/parts/gemm.hpp"

/// What SDDMM costs: a word A_i . B_j for each pair of a pattern (theory notes 2g), in tiles, or in panels: rows of A,
/// or of B, are resident over all w columns while those of the other pass.
///   tiles           reads SUM over tiles of (r + c) w    footprint the largest e + min(r, c) + 1
///   panels of rows  reads w (n_q + A(a))                 footprint the largest |I| w + g_I + 1
///   panels of keys  reads w (n_k + B(b))                 footprint the largest |J| w + g_J + 1
/// of a tile: e pairs, r rows and c keys that have one. g_I: the most pairs that one key has in the panel I. Statistics
/// of rows come on top: a word with each row that is read, beside a panel of rows one for each of them.
namespace redblue::schedule {

/// What is resident over all columns of a product.
enum class Panel : std::uint8_t { none, rows, keys };

struct PairTiling {
  index_t a = 1;      ///< rows of a block
  index_t room = 2;   ///< words for the pairs of a tile and for its rows or keys, whichever are fewer
  index_t panel = 0;  ///< a Panel
  index_t b = 1;      ///< keys of a panel of keys

  Panel form() const { return static_cast<Panel>(panel); }
};

/// What SDDMM costs: T is where its words go, A B^T has w terms in each, and `stats` statistics of every row of a block
/// are resident. `statistic`, if it is an array, has a word for each row that finished words need. Words that are
/// scores meet the problem's modifiers; others, of dS, meet the words that T has and add to dBias.
struct PairCost {
  SlowArray T, A, B;
  index_t w;
  index_t stats = 0;
  std::optional<SlowArray> statistic{};
  bool scores = true;

  /// What passes while words are finished, beside the statistic.
  Words finish(const Sizes& x, Panel panel) const {
    const bool keys_stay = panel == Panel::keys;
    if (scores) return keys_stay ? passing_bias_of_pairs(x) : passing_bias(x, 0);
    return std::max(x.word(T), keys_stay ? passing_bias_gradient(x) : passing_pair_bias_gradient(x));
  }
  Words passing_statistic(const Sizes& x) const { return statistic ? x.word(*statistic) : Words(0); }

  /// The sums of a phase over all tiles: rows and keys that are read, w words of each.
  struct Sums {
    Words rows, keys, footprint, prefetch;
  };
  Sums sums(const Sizes& x, PairTiling t) const {
    if (t.form() == Panel::rows) return of_row_panels(x, t.a);
    if (t.form() == Panel::keys) return of_key_panels(x, t.b);
    const Pattern::Key key{t.a,
                           t.room,
                           x.tile(T, 1, 1),
                           x.tile(A, 1, 1),
                           x.tile(B, 1, 1),
                           x.word(A),
                           x.word(B),
                           passing_in_tiles(x),
                           stats * x.tile(SlowArray::lse, 1, 1)};
    const auto [rows, keys, footprint, prefetch] = x.pattern->found("pair tiles", key, [&] {
      const Sums s = walked(x, t);
      return Pattern::Found{s.rows, s.keys, s.footprint, s.prefetch};
    });
    return {rows, keys, footprint, prefetch};
  }
  Words passing_in_tiles(const Sizes& x) const { return std::max(passing_statistic(x), finish(x, Panel::none)); }

  /// A panel of rows, its statistics, and the words of one key.
  Words row_panel(const Sizes& x, index_t rows, index_t pairs) const {
    return x.tile(A, rows, w) + stats * x.tile(SlowArray::lse, rows, 1) +
           (statistic ? x.tile(*statistic, rows, 1) : Words(0)) + x.tile(T, pairs, 1) + past_rows(x);
  }
  Words past_rows(const Sizes& x) const { return std::max(x.word(B), finish(x, Panel::rows)); }
  Sums of_row_panels(const Sizes& x, index_t a) const {
    const auto words = [&](index_t rows, index_t pairs) { return row_panel(x, rows, pairs); };
    return {x.n_q, x.pairs().visited_keys(std::min(a, x.n_q)), pair_blocks_footprint(x, BlocksOf::rows, a, words),
            past_rows(x)};
  }
  /// A panel of keys, what all queries share of their bias or its gradient, and the words of one row.
  Words key_panel(const Sizes& x, index_t keys, index_t pairs) const {
    return x.tile(B, keys, w) + (scores ? shared_row_of_bias(x, keys) : bias_gradient_tile(x, keys)) +
           x.tile(T, pairs, 1) + past_keys(x);
  }
  Words past_keys(const Sizes& x) const { return std::max({x.word(A), passing_statistic(x), finish(x, Panel::keys)}); }
  Sums of_key_panels(const Sizes& x, index_t b) const {
    const auto words = [&](index_t keys, index_t pairs) { return key_panel(x, keys, pairs); };
    return {x.pairs().visited_rows(std::min(b, x.n_k)), x.n_k, pair_blocks_footprint(x, BlocksOf::keys, b, words),
            past_keys(x)};
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
    const auto words = [&](index_t rows, index_t pairs) {
      const Words pass = std::max(RankOne(x.fast, A, B, pairs, 1).least(), passing_in_tiles(x));
      const Words footprint = stats * x.tile(SlowArray::lse, rows, 1) + x.tile(T, pairs, 1) + pass;
      const Phase tile = phase(x, {0, 0, footprint, pass});
      return limits.occupied(tile.footprint, tile.prefetch);
    };
    return words(a, a) <= limits.M || pair_blocks_footprint(x, BlocksOf::rows, a, words) <= limits.M;
  }
  Sums walked(const Sizes& x, PairTiling t) const {
    Sums s, before;  // with the block before the last one
    const Blocks blocks = x.pairs().row_blocks(std::min(t.a, x.n_q));
    const bool alike = x.pattern->rows().all_alike();
    for (index_t i = 0; i < blocks.count(); ++i) {
      const Range I = blocks(i);
      if (alike && i > 0 && I.size() == blocks(i - 1).size()) {
        const Words rows = s.rows - before.rows, keys = s.keys - before.keys;
        before = s;
        s.rows += rows;
        s.keys += keys;
        continue;
      }
      before = s;
      const Words rows = stats * x.tile(SlowArray::lse, I.size(), 1);
      s.footprint = std::max(s.footprint, rows);
      for_like_pair_tiles(*x.pattern, I, t.room, [&](const PairTile& tile, index_t count) {
        s.rows += Words(count) * tile.r;
        s.keys += Words(count) * tile.c;
        const Words factors = RankOne(x.fast, A, B, tile.r, tile.c).least(),
                    pass = std::max(factors, passing_in_tiles(x));
        s.footprint = std::max(s.footprint, rows + x.tile(T, tile.pairs, 1) + pass);
        s.prefetch = std::max(s.prefetch, pass);
      });
    }
    return s;
  }
  Io io(const Sizes& x, PairTiling t, const Sums& s) const {
    Io io;
    io.read(A, s.rows * w).read(B, s.keys * w);
    if (statistic) io.read(*statistic, s.rows);
    const Blocks blocks = t.form() == Panel::keys ? x.pairs().key_blocks(std::min(t.b, x.n_k))
                                                  : x.pairs().row_blocks(std::min(t.a, x.n_q));
    const index_t sweeps = blocks.count();
    return io + (scores ? modifiers_io(x, x.nnz(), s.keys, sweeps) : bias_gradient_io(x, x.nnz(), s.keys));
  }
  Io io(const Sizes& x, PairTiling t) const { return io(x, t, sums(x, t)); }
  Phase phase(const Sizes& x, const Sums& s) const {
    return {s.footprint + (scores ? slopes_tile(x) : Words(0)), s.prefetch};
  }
  Phase phase(const Sizes& x, PairTiling t) const { return phase(x, sums(x, t)); }

  /// The cheapest tiles, or the cheapest panels if these are cheaper still.
  std::optional<PairTiling> choose(const Sizes& x, const Limits& limits) const {
    std::optional<PairTiling> best = choose_tiles(x, limits);
    const Words slopes = scores ? slopes_tile(x) : Words(0);
    const auto cost = [&](const PairTiling& t) { return limits.price.of(io(x, t)); };
    const auto try_panels = [&](BlocksOf side, Words passing, const auto& tiling, const auto& words) {
      const PairBlocks blocks(x, side, limits, passing, words);
      // Blocks of other sizes seldom meet a fifth less than the largest, and the search takes long.
      if (best && 4 * cost(tiling(std::max<index_t>(1, blocks.largest()))) > 5 * cost(*best)) return;
      const index_t size = blocks.choose();
      if (size > 0 && (!best || cost(tiling(size)) < cost(*best))) best = tiling(size);
    };
    try_panels(
        BlocksOf::rows, past_rows(x), [](index_t a) { return PairTiling{a, 2, index_t(Panel::rows)}; },
        [&](index_t rows, index_t pairs) { return row_panel(x, rows, pairs) + slopes; });
    if (!statistic) return best;  // statistics of a block of rows are resident
    try_panels(
        BlocksOf::keys, past_keys(x), [](index_t b) { return PairTiling{1, 2, index_t(Panel::keys), b}; },
        [&](index_t keys, index_t pairs) { return key_panel(x, keys, pairs) + slopes; });
    return best;
  }
  /// About how many rows a tile has that is as long as it is wide, where a share rho of its pairs exists:
  /// rho a^2 + a = M. Larger blocks may be sparser.
  index_t square_tile(const Sizes& x, const Limits& limits) const {
    constexpr int kRounds = 3;
    const double M = (limits.M / std::max<Words>(1, x.word(T))).to_double(), nnz = x.nnz().to_double();
    index_t a = std::clamp<index_t>(static_cast<index_t>(std::sqrt(M)), 1, x.n_q);
    for (int round = 0; round < kRounds; ++round) {
      const double rho = nnz / (x.pairs().visited_keys(a).to_double() * static_cast<double>(a)),
                   wider = (std::sqrt(1 + 4 * rho * M) - 1) / (2 * rho);
      const index_t next = std::min(x.n_q, static_cast<index_t>(wider));
      if (next <= a) break;
      a = next;
    }
    return a;
  }
  /// The cheapest of some sizes of blocks, each with the largest room that fits.
  std::optional<PairTiling> choose_tiles(const Sizes& x, const Limits& limits) const {
    std::optional<PairTiling> best;
    Words cheapest;
    const index_t step = limits.multiple.query;
    const auto try_rows = [&](index_t a) {
      const Words room = limits.M - limits.reserve - stats * x.tile(SlowArray::lse, a, 1) - x.word(B);
      if (room < 2 || !one_key_fits(x, limits, a)) return;
      const Words most = std::min<Words>(room / std::max<Words>(1, x.word(T)), Words(x.pattern->pairs()) + x.n_q);
      const auto costs = [&](PairTiling t, const Sums& s) { return limits.price.of(io(x, t, s)); };
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
    // All sizes where those are few; else as many as there is time for, 2^k and 3 2^k, as blocks of patterns are likely
    // to be, from about that of a square tile on, and then those around the best.
    constexpr index_t kSteps = index_t{1} << 23, kFewest = 3, kMost = 24, kParts = 16;
    const index_t most = ceil_div(x.n_q, step),
                  work = x.pattern->rows().runs_held() + x.pattern->keys().runs_held() + x.n_q + x.n_k,
                  tries = std::clamp(kSteps / work, kFewest, kMost);
    if (most <= kMost * 2) {
      for (index_t k = 1; k <= most; ++k) try_rows(std::min(x.n_q, k * step));
      return best;
    }
    std::vector<index_t> sizes{1};  // the same for any M, so that what is walked is known
    for (index_t k = 2; k < most; k *= 2) {
      sizes.push_back(k);
      if (k / 2 * 3 < most) sizes.push_back(k / 2 * 3);
    }
    sizes.push_back(most);
    const index_t square = square_tile(x, limits) / step, n = std::ssize(sizes),
                  middle = std::ranges::lower_bound(sizes, square) - sizes.begin();
    for (index_t k = 0, left = tries; left > 0 && k < 2 * n; ++k) {
      const index_t at = middle + (k + 1) / 2 * (k % 2 == 0 ? 1 : -1);
      if (at < 0 || at >= n) continue;
      try_rows(std::min(x.n_q, sizes[static_cast<std::size_t>(at)] * step));
      --left;
    }
    if (tries < kMost || !best) return best;
    const index_t around = best->a / step;
    for (index_t part = -kParts / 4; part <= kParts / 4; ++part)
      if (const index_t k = around + around * part / kParts; k > 0) try_rows(balanced(x.n_q, k * step, step));
    return best;
  }
};

}  // namespace redblue::schedule
