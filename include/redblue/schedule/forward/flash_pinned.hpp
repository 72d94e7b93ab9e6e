#pragma once
#include "redblue/schedule/forward/flash.hpp"

namespace redblue::schedule {

/// Flash with the first rho keys and values pinned for the whole run. It uses the words that rounding Br leaves free,
/// and is far better than flash when there are few blocks of queries (M close to n d).
///   reads n_q d + (rho + ceil(n_q/Br) (n_k - rho)) (d + d_v)   writes n_q (d_v + 1)
///   footprint rho (d + d_v) + Br (d + d_v + 2 + Bc) + [rho < n_k]
/// Under a mask a block streams those of its kappa_I keys that are not pinned; n_k - rho without one, so no mask makes
/// it dearer.
struct FlashPinnedForward : Defaults {
  using Operands = ForwardOperands;
  static constexpr std::string_view name = "flash_pinned";
  static constexpr std::string_view idea = "keeping queries resident and some keys pinned";
  static constexpr Traits traits{.masks = true, .patterns = true, .modifiers = true};
  static constexpr std::array<SlowArray, 0> workspace{};

  struct Tiling {
    index_t Br = 1;   ///< queries resident at a time
    index_t rho = 0;  ///< keys and values resident throughout: a multiple of Bc, or all
    index_t Bc = 1;   ///< keys per step
    void knobs(const auto& knob) {
      knob({"Br", &Sizes::n_q}, Br);
      knob({"rho", &Sizes::n_k, 0}, rho);
      knob({"Bc", &Sizes::n_k}, Bc);
    }
  };

  /// The keys that stream past, summed over the blocks: of those that a block sees the ones that are not pinned.
  static Words streamed(const Sizes& x, index_t Br, index_t rho) {
    if (x.mask.pattern != nullptr) return blocks_met(x.pattern->keys(), {rho, x.n_k}, x.n_q, Br, true);
    return Pairs{x.mask.from(0, rho), x.n_q, x.n_k - rho}.visited_keys(Br);
  }
  static index_t pinned(const Sizes& x, Tiling t) { return std::min(t.rho, x.n_k); }
  /// Those of the pinned keys that a query sees.
  static std::vector<Range> seen_of_pinned(const Sizes& x, index_t rho) {
    if (x.mask.pattern == nullptr) return {{0, rho}};
    std::vector<Range> seen;
    x.pattern->keys().for_groups({0, rho}, [&](Range keys, std::span<const Range> runs) {
      if (!runs.empty()) seen.push_back(keys);
    });
    return seen;
  }
  /// Steps begin where the keys of a block do, or runs of a pattern, and must not end beyond the pinned keys.
  static bool allows(const Sizes& x, Tiling t) {
    return t.rho >= x.n_k || (x.mask.from_first_key() ? t.rho % t.Bc == 0 : t.rho == 0 || t.Bc == 1);
  }
  static Tiling smallest(const Sizes& x, const Multiples& m) {
    return {smallest_tile(x.n_q, m.query), 0, smallest_tile(x.n_k, m.key)};
  }
  /// Fewer blocks of queries or more pinned keys? Tries every distinct Br from the largest down, until even a full fast
  /// memory could not win: T blocks visit T n_k - (T-1) rho keys, and Br >= n_q/T leaves room for few pinned keys.
  static std::optional<Tiling> choose_tiling(const Sizes& x, const Limits& limits) {
    const index_t step = limits.multiple.query, Bc = smallest_tile(x.n_k, limits.multiple.key);
    const auto fits = [&](index_t Br, index_t rho) {
      return limits.fit(footprint(x, {Br, rho, Bc}), prefetch(x, {Br, rho, Bc}));
    };
    const index_t all_pinned = largest_tile(x.n_q, step, [&](index_t Br) { return fits(Br, x.n_k); });
    if (all_pinned > 0) return Tiling{balanced(x.n_q, all_pinned, step), x.n_k, Bc};
    const index_t largest = largest_tile(x.n_q, step, [&](index_t Br) { return fits(Br, 0); });
    if (largest == 0) return std::nullopt;
    std::optional<Tiling> best;
    Words fewest;
    if (!x.mask.full()) {  // every Br up to 1024; of larger ones two for each number of blocks
      constexpr index_t kMost = 1024;
      const Pattern* pattern = x.mask.pattern;  // which takes time: then as many as there is time for
      const index_t tries = pattern == nullptr ? kMost : std::min(kMost, detail::pattern_tries(*pattern)),
                    stride = pattern == nullptr ? step : std::max<index_t>(1, ceil_div(largest, tries * step)) * step;
      const auto next = [&](index_t Br) {
        if (Br <= kMost || pattern != nullptr) return (Br - 1) / stride * stride;
        const index_t even = balanced(x.n_q, Br, step);  // the same number of blocks, and more room for pinned keys
        return even < Br ? even : next_smaller(x.n_q, Br, step);
      };
      for (index_t Br = largest; Br > 0; Br = next(Br)) {
        index_t rho = Br >= x.n_q ? 0 : largest_tile(x.n_k, Bc, [&](index_t r) { return fits(Br, r); });
        if (!allows(x, {Br, rho, Bc})) rho = 0;
        const Words visits = visited(x, Br, rho);
        if (best && visits >= fewest) continue;
        best = {Br, rho, Bc};
        fewest = visits;
      }
      return best;
    }
    // A key and a row take at least this much each; padding adds to it.
    const Words key = x.word(SlowArray::K) * x.d + x.word(SlowArray::V) * x.d_v,
                row = x.word(SlowArray::Q) * x.d + x.word(SlowArray::O) * x.d_v + 2 * x.word(SlowArray::lse) +
                      x.word(SlowArray::S),
                room = limits.M - limits.reserve - FlashForward::passing(x);
    const auto at_least = [&](Words T) { return key * x.n_k + (T - 1) * (key * x.n_k - room + row * x.n_q / T); };
    for (index_t Br = balanced(x.n_q, largest, step);; Br = balanced(x.n_q, (ceil_div(Br, step) - 1) * step, step)) {
      const index_t T = ceil_div(x.n_q, Br);
      const index_t rho = T == 1 ? 0 : largest_tile(x.n_k, Bc, [&](index_t r) { return fits(Br, r); });
      const Words visits = visited(x, Br, rho);
      if (!best || visits < fewest) {
        best = {Br, rho, Bc};
        fewest = visits;
      }
      if (T == 1 || Br <= smallest_tile(x.n_q, step)) break;
      if (key * fewest <= std::min(at_least(T + 1), at_least(x.n_q))) break;  // at_least has its minimum at an end
    }
    return best;
  }

  static Words footprint(const Sizes& x, Tiling t) {
    return x.tile(SlowArray::K, pinned(x, t), x.d) + x.tile(SlowArray::V, pinned(x, t), x.d_v) +
           FlashForward::footprint(x, {t.Br, t.Bc}) - FlashForward::passing(x) + passing(x, t);
  }
  /// A word that streams past, if any does.
  static Words passing(const Sizes& x, Tiling t) {
    return t.rho < x.n_k ? FlashForward::passing(x) : passing_modifiers(x);
  }
  /// The next one.
  static Words prefetch(const Sizes& x, Tiling t) { return passing(x, t); }
  static Io io(const Sizes& x, Tiling t) { return query_outer_io(x, t.Br, visited(x, t.Br, pinned(x, t))); }
  /// Keys that are loaded or stream past, summed over the blocks.
  static Words visited(const Sizes& x, index_t Br, index_t rho) {
    Words seen;
    for (const Range& run : seen_of_pinned(x, rho)) seen += run.size();
    return seen + streamed(x, Br, rho);
  }
  static Words macs(const Sizes& x, Tiling t) { return FlashForward::macs(x, {t.Br, t.Bc}); }
  static IndexWords index(const Sizes& x, Tiling t) { return FlashForward::index(x, {t.Br, t.Bc}); }

  template <Machine M>
  static void run(M& m, const ForwardOperands& x, Tiling t) {
    const index_t rho = pinned(x.shape, t);
    const std::vector<Range> seen = seen_of_pinned(x.shape, rho);
    const auto K_pin = m.alloc(x.K.rows(0, rho));
    for (const Range& run : seen) m.load_into(K_pin.rows(run.begin, run.size()), x.K.rows(run));
    const auto V_pin = m.alloc(x.V.rows(0, rho));
    for (const Range& run : seen) m.load_into(V_pin.rows(run.begin, run.size()), x.V.rows(run));
    FlashForward::run(m, x, {t.Br, t.Bc}, [&](auto&, const Block& b) {
      const index_t key = b.row - x.K.first_row;
      return key >= rho ? Arg::streaming(b) : (b.array == x.K.array ? K_pin : V_pin).rows(key, b.shape.rows);
    });
  }
};

}  // namespace redblue::schedule
