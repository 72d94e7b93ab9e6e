#pragma once
#include "redblue/schedules/forward/flash.hpp"
#include "redblue/schedules/ring/pinned_queries.hpp"
#include "redblue/schedules/ring/steps.hpp"
#include "redblue/schedules/ring/tiling.hpp"

namespace redblue::schedule {

/// Keys and values in a ring: each is loaded when the first query comes that sees it, and stays as long as queries see
/// it. For windows: there the words are those that every schedule moves (docs/proofs/trivial.md) and those of lse,
/// whatever M, once fast memory holds a window. Under a pattern queries that see much more than others, such as global
/// tokens, may be pinned: they are resident for the whole run, and attend to each key when it is loaded.
///   reads n_q d + n_k (d + d_v)   writes n_q (d_v + 1)   footprint s (d + d_v) + Br (d + d_v + 2 + Bc)
/// and G (d + d_v + 2) + min(Br, G) Bc for G pinned queries that are neighbours. s: the most keys that one block of
/// queries and the next both see, or Bc if that is more; under a pattern those that stay from one block to the next
/// (parts/ring_side.hpp). Theory notes 2g.
struct RingForward : Defaults {
  using Operands = ForwardOperands;
  static constexpr std::string_view name = "ring";
  static constexpr std::string_view label = "forward ring";
  static constexpr std::string_view idea = "keeping the keys of a window resident in a ring";
  static constexpr Traits traits{
      .windows = true, .masks = true, .patterns = true, .modifiers = true, .any_score = true};
  static constexpr std::array<SlowArray, 0> workspace{};

  struct Tiling {
    index_t Br = 1;      ///< queries resident at a time
    index_t Bc = 1;      ///< keys per step
    index_t pinned = 0;  ///< queries resident throughout, of a pattern
    void tile_sizes(const auto& tile_size) {
      tile_size({"Br", &Sizes::n_q}, Br);
      tile_size({"Bc", &Sizes::n_k}, Bc);
      tile_size({"pinned", &Sizes::n_q, 0}, pinned, pinned > 0);
    }
  };

  static Tiling smallest(const Sizes& x, const Multiples& m) {
    return {smallest_tile(x.n_q, m.query), smallest_tile(x.n_k, m.key)};
  }
  /// Br is doubled while there is room, and Bc likewise (parts/ring_tiling.hpp).
  static std::optional<Tiling> choose_tiling(const Sizes& x, const Limits& limits) {
    return ring_tiling<RingForward>(x, limits, {SlowArray::Q, &Tiling::Br, Sinks::of_rows}, [&](Tiling t) {
      const auto fits_with = [&](Tiling u) { return fits<RingForward>(x, u, limits); };
      t.Br = doubled_block(x, t.Br, x.n_q, [&](index_t rows) { return fits_with({rows, t.Bc, t.pinned}); });
      t.Bc = doubled(t.Bc, x.n_k, [&](index_t keys) { return fits_with({t.Br, keys, t.pinned}); });
      return t;
    });
  }

  /// The keys that pass, and how many the ring holds.
  static RingSide side(const Sizes& x, Tiling t) {
    return RingSide::of_keys(x.pairs(), std::min(t.Br, x.n_q), pinned_rows(x, t.pinned));
  }
  static index_t places(const Sizes& x, Tiling t) { return side(x, t).places(t.Bc); }
  static Words footprint(const Sizes& x, Tiling t) {
    const RingSide keys = side(x, t);
    const index_t s = keys.places(t.Bc), Bc = std::min(t.Bc, x.n_k);
    const RingSide::Largest largest = keys.largest();
    const auto block = [&](index_t rows, Words passing) {
      return pinned_queries_tile(x, rows) + x.tile(SlowArray::S, rows, Bc) + slopes_tile(x) + passing;
    };
    return x.tile(SlowArray::K, s, x.d) + x.tile(SlowArray::V, s, x.d_v) + pinned_queries_tile(x, keys.pinned) +
           std::max({block(largest.all, passing_sink(x, 0)), block(largest.meeting, passing_bias(x, 0)),
                     block(largest.entered, passing_bias(x, 0)) +
                         x.tile(SlowArray::S, std::min(keys.longest_pin(), std::min(t.Br, x.n_q)), Bc)});
  }
  /// The keys and values of the next step, or a word of what modifies scores.
  static Words prefetch(const Sizes& x, Tiling t) {
    const index_t keys = std::min(t.Bc, x.n_k);
    return x.tile(SlowArray::K, keys, x.d) + x.tile(SlowArray::V, keys, x.d_v) + passing_modifiers(x);
  }
  static Io io(const Sizes& x, Tiling t) {
    const RingSide keys = side(x, t);
    const RingSide::Sums sums = keys.sums();
    const Words blocks = keys.blocks.count(), pins = static_cast<index_t>(keys.blocks.pins().size());
    return query_outer_io(x, {sums.pairs, sums.visits, blocks, blocks + pins}, keys.items_met());
  }
  static IndexWords index(const Sizes& x, Tiling t) { return side(x, t).index(x); }
  static Words macs(const Sizes& x, Tiling t) { return side(x, t).sums().pairs * (Words(x.d) + x.d_v); }

  template <Machine M>
  static void run(M& m, const ForwardOperands& x, Tiling t) {
    const RingSide keys = side(x.shape, t);
    RingSteps steps(keys, places(x.shape, t), t.Bc, RingOrder::reading);
    const auto K_ring = m.alloc(SlowArray::K, {steps.places(), x.shape.d}),
               V_ring = m.alloc(SlowArray::V, {steps.places(), x.shape.d_v});
    const PinnedQueries<M> pinned(m, x, keys.blocks.pins(), std::min(t.Br, x.shape.n_q), std::min(t.Bc, x.shape.n_k));
    for (index_t i = 0; i < keys.blocks.count(); ++i) {
      const Range I = keys.blocks(i);
      const std::vector<RingStep>& of_block = steps.next();
      const RingStep* j = of_block.data();
      const auto ring = [&](auto& w, const Block& b) {
        const Arg place = (b.array == x.K.array ? K_ring : V_ring).rows(j->rows.begin, j->rows.size());
        if (j->enters) w.load_into(place, b);
        return place;
      };
      const auto meet = [&](auto& w, Range J, const Arg& K_j, const Arg& V_j, const Arg& slopes) {
        if (j->enters) pinned.attend(w, x, J, K_j, V_j, slopes);
        ++j;
      };
      FlashForward::attend(m, x, {I, x.O.rows(I), x.lse.rows(I)}, items_of(of_block), t.Bc, ring, meet);
    }
    pinned.store(m, x);
  }
};

}  // namespace redblue::schedule
