#pragma once
#include "redblue/methods/maths/approximations.hpp"
#include "redblue/methods/schedules/parts/feature_state.hpp"
#include "redblue/schedules/parts/one_pass.hpp"

namespace redblue::schedule {

/// Performer where the state does not fit: tiles of gs of its m rows (features) and cb of its d_v + 1 columns, a pass
/// over keys and queries for each; every one reads whole rows of K and Q. A first pass over the keys finds the largest
/// logarithm of a feature, c, so that all groups have one unit. Sums go from group to group with the largest logarithm
/// of the row's features so far (ids) and den, as in online softmax; the other blocks of columns read the last ones.
/// With mg = c(m, gs) and h = c(d_v + 1, cb):
///   reads n_k d + h mg d (n_k + n_q) + mg n_k d_v + (mg - 1) n_q (d_v + 2) + (h - 1)(mg + 1) n_q
///   writes (mg - 1) n_q (d_v + 2) + n_q d_v + 2 [h > 1] n_q
///   footprint gs cb + d + cb + 3 for br = bc = g = 1
/// Without a mask: under one, rows that see early keys only would be in units of later ones.
struct PerformerTiledForward : Defaults {
  using Operands = ForwardOperands;
  static constexpr std::string_view name = "performer_tiled";
  static constexpr std::string_view idea =
      "forming the state of random features in tiles, one pass over the rows for each";
  static constexpr Traits traits{.rewrites_outputs = true, .method = methods::kPerformer};
  static constexpr std::array workspace{SlowArray::den, SlowArray::ids};

  struct Tiling {
    index_t gs = 1;      ///< rows of the state: features
    index_t values = 0;  ///< columns of V in the first block of columns, beside the row sums: cb - 1
    index_t br = 1;      ///< queries per step
    index_t bc = 1;      ///< keys per step
    index_t g = 1;       ///< features at a time
    void tile_sizes(const auto& tile_size) {
      tile_size({"gs"}, gs);
      tile_size({"values", &Sizes::d_v, 0}, values);
      tile_size({"br", &Sizes::n_q}, br);
      tile_size({"bc", &Sizes::n_k}, bc);
      tile_size({"g"}, g);
    }
  };

  static index_t features(const Sizes& x) { return std::get<Performer>(method_of(x)).features; }
  static Tiling smallest(const Sizes& x, const Multiples& m) {
    return {1, 0, smallest_tile(x.n_q, m.query), smallest_tile(x.n_k, m.key), 1};
  }
  /// The largest groups that fit beside every number of column blocks; then more rows and features per step where there
  /// is room.
  static std::optional<Tiling> choose_tiling(const Sizes& x, const Limits& limits) {
    const auto fits = [&](const Tiling& u) { return schedule::fits<PerformerTiledForward>(x, u, limits); };
    auto best = cheapest_columns<PerformerTiledForward>(x, limits, [&](Tiling t) {
      const index_t most = largest_tile(features(x), 1, [&](index_t gs) {
        t.gs = gs;
        return fits(t);
      });
      return most > 0 ? balanced(features(x), most, 1) : 0;
    });
    if (!best) return best;
    for (index_t enough = 2; enough <= kEnough; enough *= 2) {
      best->g = doubled(
          best->g, best->gs, [&](index_t g) { return fits({best->gs, best->values, best->br, best->bc, g}); }, enough);
      best = doubled_in_turn<PerformerTiledForward>(*best, x, limits, enough, enough);
    }
    return best;
  }

  /// With these columns, beside c: keys of the first pass; the state, and keys that enter, queries that read, or their
  /// sums as they are divided.
  static std::array<Phase, 4> phases(const Sizes& x, Tiling t, StateColumns columns) {
    const index_t rows = std::min(t.gs, features(x)), step = std::min(t.g, rows), br = std::min(t.br, x.n_q);
    const Words state = x.tile(SlowArray::Z, rows, columns.values) + x.tile(SlowArray::Z, rows, columns.sums);
    Phase keys = features_of_keys(x, t.bc, columns.values, step), queries = features_of_queries(x, t.br, columns, step);
    const Words K = x.tile(SlowArray::K, keys_entering(x, t.bc), x.d), c = x.tile(SlowArray::den, 1, 1);
    const Phase first{c + K + x.tile(SlowArray::S, keys_entering(x, t.bc), step), K};
    keys.footprint += state;
    queries.footprint += state + c;
    const Words den = columns.sums > 0 ? Words(0) : x.word(SlowArray::den);
    const Phase dividing{state + c + x.tile(SlowArray::O, br, columns.values) + x.tile(SlowArray::den, br, 1) +
                             x.tile(SlowArray::den, br, columns.sums) + den,
                         den};
    return {first, keys, queries, dividing};
  }
  static Phase largest(const Sizes& x, Tiling t) {
    return ColumnBlocks(x.d_v, t.values).phase([&](StateColumns c) { return phases(x, t, c); });
  }
  static Words footprint(const Sizes& x, Tiling t) { return largest(x, t).footprint; }
  static Words prefetch(const Sizes& x, Tiling t) { return largest(x, t).prefetch; }
  static Io io(const Sizes& x, Tiling t) {
    const Words h = ColumnBlocks(x.d_v, t.values).count(), groups = c(features(x), t.gs), rows = x.n_q;
    return io_of_passes(x, h, groups, groups * x.d) + Io().read(SlowArray::K, Words(x.n_k) * x.d)
                                                          .read(SlowArray::ids, (h * groups - 1) * rows)
                                                          .write(SlowArray::ids, (groups - (h > 1 ? 0 : 1)) * rows);
  }
  static Words macs(const Sizes& x, Tiling t) {
    const Words h = ColumnBlocks(x.d_v, t.values).count();
    return ((Words(x.n_k) + x.n_q) * (h * x.d + x.d_v + 1) + Words(x.n_k) * x.d) * features(x);
  }

  template <Machine M>
  static void run(M& m, const ForwardOperands& x, Tiling t) {
    const ColumnBlocks blocks(x.shape.d_v, t.values);
    const Blocks groups{features(x.shape), t.gs};
    const auto c = m.alloc(SlowArray::den, {1, 1});
    largest_logarithm_of_keys(m, x, c, t.bc, std::min({t.g, t.gs, features(x.shape)}));
    for (index_t C = 0; C < blocks.count(); ++C)
      for (index_t G = 0; G < groups.count(); ++G) pass(m, x, t, c, blocks(C), groups(G));
  }

 private:
  template <class M>
  static void pass(M& m, const ForwardOperands& x, Tiling t, const Tile<M>& c, StateColumns columns, Range G) {
    const bool first = G.begin == 0, last = G.end == features(x.shape), of_sums = columns.sums > 0;
    const bool kept = !last || columns.values < x.shape.d_v;  // somebody needs the row's largest logarithm and sum yet
    const FeatureState<M> state(m, G, columns, t.g);
    for_queries_after_keys(
        x.shape, t.br, t.bc, [&](Range J) { state.add(m, x, c, J); },
        [&](Range I) {
          const Block O_i = x.O.block(I, {columns.first, columns.first + columns.values});
          const auto num = m.alloc(O_i), most = m.alloc(SlowArray::den, {I.size(), 1});
          const auto den = m.alloc(SlowArray::den, {I.size(), columns.sums});
          if (first && of_sums) {
            m.compute(kernel::SoftmaxInit{}, num, most, den);
          } else {
            m.load_into(most, x.ids.rows(I));
            if (first) m.compute(kernel::Zero{}, num);
            if (!first && columns.values > 0) m.load_into(num, O_i);
            if (of_sums) m.load_into(den, x.den.rows(I));
          }
          if (of_sums)
            state.add_to(m, x, I, num, most, den);
          else
            state.add_relative_to(m, x, I, num, most);
          if (last && of_sums) m.compute(kernel::DivideRows{}, num, den);
          if (last && !of_sums) m.compute(kernel::DivideRows{}, num, m.stream(x.den.rows(I)));
          if (columns.values > 0) m.store(num, O_i);
          if (!of_sums || !kept) return;
          m.store(most, x.ids.rows(I));
          m.store(den, x.den.rows(I));
        });
  }
};

}  // namespace redblue::schedule
