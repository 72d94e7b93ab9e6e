#pragma once
#include "redblue/schedules/forward/flash.hpp"
#include "redblue/schedules/parts/kept_keys.hpp"

namespace redblue::schedule {

/// Flash with rho keys and values that stay resident from block to block. It uses the words that rounding Br leaves
/// free, and is far better than flash when there are few blocks of queries (M close to n d).
///   reads n_q d + (rho + ceil(n_q/Br) (n_k - rho)) (d + d_v)   writes n_q (d_v + 1)
///   footprint rho (d + d_v) + Br (d + d_v + 2 + Bc) + [rho < n_k]
/// The first rho keys are pinned for the whole run; under a mask a block streams those of its kappa_I keys that are not
/// pinned. Under a mask with a left edge the last rho keys of a block stay for the next one instead
/// (parts/kept_keys.hpp):
///   reads n_q d + (n_k + SUM_I max(0, keys that I and the block before it see - rho)) (d + d_v)
/// Never more than without a mask.
struct FlashPinnedForward : Defaults {
  using Operands = ForwardOperands;
  static constexpr std::string_view name = "flash_pinned";
  static constexpr std::string_view idea = "keeping queries and some keys resident";
  static constexpr Traits traits{
      .masks = true, .patterns = true, .intervals = true, .modifiers = true, .accumulates = true};
  static constexpr std::array<SlowArray, 0> workspace{};
  static constexpr bool counts_bias = true;

  struct Tiling {
    index_t Br = 1;   ///< queries resident at a time
    index_t rho = 0;  ///< keys and values that stay: of the multiple of keys, or all
    index_t Bc = 1;   ///< keys per step; a step ends where keys that stay do
    void tile_sizes(const auto& tile_size) {
      tile_size({"Br", &Sizes::n_q}, Br);
      tile_size({"rho", &Sizes::n_k, 0}, rho);
      tile_size({"Bc", &Sizes::n_k}, Bc);
    }
  };

  /// The keys that stream past, summed over the blocks: of those that a block sees the ones that are not pinned.
  static Words streamed(const Sizes& x, index_t Br, index_t rho) { return x.pairs().visited_keys_beyond(Br, rho); }
  /// Do keys stay from block to block only?
  static bool moves(const Sizes& x) { return x.mask.pattern == nullptr && !x.mask.from_first_key(); }
  static index_t pinned(const Sizes& x, Tiling t) {
    return std::min(t.rho, moves(x) ? most_seen_keys(x, t.Br) : x.n_k);
  }
  static KeptKeys kept_keys(const Sizes& x, Tiling t) { return {x.pairs(), std::min(t.Br, x.n_q), pinned(x, t)}; }
  /// The pinned keys that a query sees.
  static std::vector<Range> seen_of_pinned(const Sizes& x, index_t rho) {
    if (x.mask.pattern == nullptr) return {{0, rho}};
    std::vector<Range> seen;
    x.pattern->keys().for_groups({0, rho}, [&](Range keys, std::span<const Range> runs) {
      if (!runs.empty()) seen.push_back(keys);
    });
    return seen;
  }
  static Tiling smallest(const Sizes& x, const Multiples& m) {
    return {smallest_tile(x.n_q, m.query), 0, smallest_tile(x.n_k, m.key)};
  }
  /// Fewer blocks of queries or more keys that stay? The best Br with as many of these as there is room for. Where all
  /// keys fit, and blocks load nothing else, any Br will do.
  static std::optional<Tiling> choose_tiling(const Sizes& x, const Limits& limits) {
    const index_t step = limits.multiple.query, Bc = smallest_tile(x.n_k, limits.multiple.key);
    if (!moves(x) && query_block_prices(x, limits).block == 0 && x.modifiers.bias == Modifiers::Bias::none) {
      const index_t Br = largest_tile(x.n_q, step, [&](index_t rows) { return fits(x, limits, {rows, x.n_k, Bc}); });
      if (Br > 0) return Tiling{balanced(x.n_q, Br, step), x.n_k, Bc};
    }
    const index_t largest = largest_tile(x.n_q, step, [&](index_t Br) { return fits(x, limits, {Br, 0, Bc}); });
    if (largest == 0) return std::nullopt;
    if (!x.mask.from_first_key()) return likely_tiling(x, limits, largest, Bc);
    const auto pins = [&](index_t Br) { return most_pinned(x, limits, Br, Bc); };
    const index_t Br = best_rows(x, limits, largest, pins);
    return Tiling{Br, pins(Br), Bc};
  }
  static bool fits(const Sizes& x, const Limits& limits, Tiling t) {
    return limits.fit(footprint(x, t), prefetch(x, t));
  }
  /// As many as there is room for.
  static index_t most_pinned(const Sizes& x, const Limits& limits, index_t Br, index_t Bc) {
    if (Br >= x.n_q) return 0;
    if (!moves(x)) return largest_tile(x.n_k, Bc, [&](index_t rho) { return fits(x, limits, {Br, rho, Bc}); });
    // A word that streams past costs one key at most.
    const auto with = [&](index_t rho, Words word) { return limits.fit(tiles(x, {Br, rho, Bc}, rho) + word, word); };
    const index_t useful = std::min(x.n_k, ceil_div(x.pairs().most_kept(Br), Bc) * Bc);
    const index_t most =
        largest_tile(useful, Bc, [&](index_t rho) { return with(rho, FlashForward::passing_beside_keys(x)); });
    if (fits(x, limits, {Br, most, Bc})) return most;
    return largest_tile(useful, Bc, [&](index_t rho) { return with(rho, FlashForward::passing(x)); });
  }
  /// What all blocks of Br queries move.
  static Words cost(const Sizes& x, const Limits& limits, index_t Br, Words visits) {
    return limits.price.of(query_outer_io(x, Br, visits));
  }
  /// Where all see keys from the first on, neither a larger Br nor more pinned keys ever add a visit, and a smaller Br
  /// leaves room for no fewer pinned keys. So the sizes from one to another visit no less than the last of them would
  /// with the pinned keys of the first, and read no less of a bias than its pairs. Where sizes tie, the fewest blocks,
  /// as even as they can be.
  template <class Pins>
  static index_t best_rows(const Sizes& x, const Limits& limits, index_t largest, const Pins& pins) {
    const index_t step = limits.multiple.query;
    const auto size = [&](index_t k) { return std::min(x.n_q, k * step); };
    const Pairs pairs = x.pairs();
    const Words nnz = x.nnz();
    const index_t best = least_of(ceil_div(largest, step), [&](index_t first, index_t last) {
      const index_t Br = size(last);
      const Words visits = visited(x, Br, pins(size(first))), blocks = c(x.n_q, Br);
      if (first == last) return cost(x, limits, Br, visits);
      return limits.price.of(query_outer_io(x, {nnz, pairs.visited_keys(Br), blocks, blocks}, visits));
    });
    return x.mask.full() ? balanced(x.n_q, size(best), step) : size(best);
  }
  /// A tiling where words are not monotone: it tries the sizes of flash, then likely ones. What stays saves each block
  /// but one its visits at most, and each key is read once.
  static Tiling likely_tiling(const Sizes& x, const Limits& limits, index_t largest, index_t Bc) {
    Tiling best{0, 0, Bc};
    Words least;
    const LeastVisits visits(x, LeastVisits::Of::rows, x.nnz());
    const index_t most = largest_tile(x.n_k, Bc, [&](index_t rho) { return limits.fit(keys_tile(x, rho), 0); });
    const auto cannot_win = [&](index_t Br) {  // nor smaller ones
      return best.Br > 0 && !x.modifiers.any() && cost(x, limits, Br, visits.sparing(most, Br)) >= least;
    };
    const auto try_rows = [&](index_t Br) {
      if (cannot_win(Br)) return false;
      const index_t room =
          largest_tile(x.n_k, Bc, [&](index_t rho) { return limits.fit(tiles(x, {Br, rho, Bc}, rho), 0); });
      const Words fewest =
          std::max(Words(0), x.pairs().visited_keys(Br) - (x.pairs().row_blocks(Br).count() - 1) * room);
      if (best.Br > 0 && cost(x, limits, Br, fewest) >= least) return true;
      const index_t rho = most_pinned(x, limits, Br, Bc);
      if (const Words found = cost(x, limits, Br, visited(x, Br, rho)); best.Br == 0 || found < least) {
        best = {Br, rho, Bc};
        least = found;
      }
      return !moves(x) || x.modifiers.bias != Modifiers::Bias::none || least > cost(x, limits, Br, x.n_k);
    };
    if (const auto flash = FlashForward::choose_tiling(x, limits)) try_rows(flash->Br);
    if (x.mask.pattern != nullptr)
      detail::for_pattern_sizes(*x.mask.pattern, largest, limits.multiple.query, try_rows);
    else
      for_many_sizes(x.n_q, largest, limits.multiple.query, try_rows, [&] { return best.Br; });
    return best;
  }

  static Words footprint(const Sizes& x, Tiling t) { return tiles(x, t, pinned(x, t)) + passing(x, t); }
  /// The footprint without what streams past.
  static Words tiles(const Sizes& x, Tiling t, index_t rho) {
    return keys_tile(x, rho) + FlashForward::footprint(x, {t.Br, t.Bc}) - FlashForward::passing(x);
  }
  static Words keys_tile(const Sizes& x, index_t rho) {
    return x.tile(SlowArray::K, rho, x.d) + x.tile(SlowArray::V, rho, x.d_v);
  }
  /// A word that streams past a block of Br queries, if any does.
  static Words passing(const Sizes& x, Tiling t) {
    return streams(x, t) ? FlashForward::passing(x) : FlashForward::passing_beside_keys(x);
  }
  /// Under a pattern it may be that smaller blocks alone see keys that are not pinned: they take less room.
  static bool streams(const Sizes& x, Tiling t) {
    if (moves(x)) return kept_keys(x, t).streams();
    if (t.rho >= x.n_k || x.mask.pattern == nullptr) return t.rho < x.n_k;
    const index_t rows = std::min(t.Br, x.n_q);
    return x.mask.pattern->found("streams past pins", {rows, t.rho}, [&] {
      const Blocks blocks = x.pairs().row_blocks(rows);
      bool any = false;
      for (index_t i = 0; i < blocks.count() && !any; ++i)
        any = blocks(i).size() == rows && envelope_of(x.mask.pattern->rows(), blocks(i), {t.rho, x.n_k}).size() > 0;
      return Pattern::Found{any ? 1 : 0};
    })[0] > 0;
  }
  /// The next one.
  static Words prefetch(const Sizes& x, Tiling t) { return passing(x, t); }
  static Io io(const Sizes& x, Tiling t) { return query_outer_io(x, t.Br, visited(x, t.Br, pinned(x, t))); }
  /// Keys that are loaded or stream past, summed over the blocks.
  static Words visited(const Sizes& x, index_t Br, index_t rho) {
    if (moves(x)) return kept_keys(x, {Br, rho}).visits();
    Words seen;
    for (const Range& run : seen_of_pinned(x, rho)) seen += run.size();
    return seen + streamed(x, Br, rho);
  }
  static Words macs(const Sizes& x, Tiling t) { return FlashForward::macs(x, {t.Br, t.Bc}); }
  static IndexWords index(const Sizes& x, Tiling t) { return FlashForward::index(x, {t.Br, t.Bc}); }
  static IndexWords index_of_intervals(const Sizes& x, Tiling t) {
    return row_pass_index(x, Blocks{x.n_q, t.Br, true}, x.pattern->keys_visited_by_intervals(t.Br)).words();
  }

  template <Machine M>
  static void run(M& m, const ForwardOperands& x, Tiling t) {
    if (moves(x.shape) && t.rho > 0)
      run_with_keys_that_stay(m, x, t);
    else
      run_with_pinned_keys(m, x, t);
  }

 private:
  template <Machine M>
  static void run_with_keys_that_stay(M& m, const ForwardOperands& x, Tiling t) {
    const KeptKeys kept = kept_keys(x.shape, t);
    const index_t rho = pinned(x.shape, t);
    const auto K_kept = m.alloc(x.K.rows(0, rho)), V_kept = m.alloc(x.V.rows(0, rho));
    const Blocks blocks = x.shape.pairs().row_blocks(t.Br);
    for (index_t i = 0; i < blocks.count(); ++i) {
      const auto pass = [&](auto& w, const Block& b) {
        const index_t key = b.row - x.K.first_row;
        const KeptKeys::Way way = kept.way(i, key);
        if (way == KeptKeys::Way::streams) return Arg::streaming(b);
        const Arg rows = (b.array == x.K.array ? K_kept : V_kept).rows(kept.row_of(key), b.shape.rows);
        if (way == KeptKeys::Way::enters) w.load_into(rows, b);
        return rows;
      };
      const Range I = blocks(i);
      FlashForward::attend(m, x, {I, x.O.rows(I), x.lse.rows(I)}, kept.parts(i), t.Bc, pass);
    }
  }
  template <Machine M>
  static void run_with_pinned_keys(M& m, const ForwardOperands& x, Tiling t) {
    const index_t rho = pinned(x.shape, t);
    const std::vector<Range> seen = seen_of_pinned(x.shape, rho);
    const auto K_pin = m.alloc(x.K.rows(0, rho));
    for (const Range& run : seen) m.load_into(K_pin.rows(run.begin, run.size()), x.K.rows(run));
    const auto V_pin = m.alloc(x.V.rows(0, rho));
    for (const Range& run : seen) m.load_into(V_pin.rows(run.begin, run.size()), x.V.rows(run));
    const auto pass = [&](auto&, const Block& b) {
      const index_t key = b.row - x.K.first_row;
      return key >= rho ? Arg::streaming(b) : (b.array == x.K.array ? K_pin : V_pin).rows(key, b.shape.rows);
    };
    const Pairs pairs = x.shape.pairs();
    const Blocks blocks = pairs.row_blocks(t.Br);
    m.each(blocks.count(), [&](auto& w, index_t i) {
      const Range I = blocks(i);
      FlashForward::attend(w, x, {I, x.O.rows(I), x.lse.rows(I)}, cut_at(pairs.runs_of_keys(I), rho), t.Bc, pass);
    });
  }
};

}  // namespace redblue::schedule
