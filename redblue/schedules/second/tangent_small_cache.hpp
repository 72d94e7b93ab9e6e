#pragma once
#include "redblue/schedules/second/pair_tiles.hpp"

namespace redblue::schedule {

/// Tangents in a small cache, M < d^2: the weights P and P o H, by which they move (tangent.hpp), are formed once, in
/// tiles of both, and go to slow memory; two products then give tO = (P o H) V + P tV - tlse o O.
///   reads 2 d (B(b) + A(a)) + n_q   [tiles]   + ceil(d_v/c2) 2 nnz + 2 d_v A(a2) + n_q (d_v + 1)   [products]
///   writes 2 nnz + 2 n_q + n_q d_v
///   footprint max(2 a b + 3 a + b + 1, a2 c2 + a2 + min(a2, c2) + 1)
/// Leading (4 sqrt(2) + 4) n^2 d/sqrt(M) + 2 n^2 for d_v = d and M <= d^2.
struct TangentSmallCache : Defaults {
  using Operands = TangentOperands;
  static constexpr std::string_view name = "small_cache";
  static constexpr std::string_view idea = "materialising weights and their tangents once";
  static constexpr Traits traits{
      .keeps_scores = true, .masks = true, .hides = true, .modifiers = true, .any_score = true, .products = 5};
  static constexpr std::array workspace{SlowArray::P, SlowArray::S, SlowArray::Hm};

  struct Tiling {
    TwoTilesTiling weights;
    GemmTiling tO;
    void tile_sizes(const auto& tile_size) {
      tile_size({"a", &Sizes::n_q}, weights.a);
      tile_size({"b", &Sizes::n_k}, weights.b);
      tile_size({"a2", &Sizes::n_q}, tO.b1);
      tile_size({"c2", &Sizes::d_v}, tO.b2);
    }
  };

  static MovingWeightsPhase weights(const TangentOperands& x) {
    return {{x.Q, x.K, x.tK, x.tQ}, x.P, x.S, x.Hm, x.tlse, {SlowArray::Xm}, SlowArray::tBias, SlowArray::tSinks};
  }
  static TwoProducts outputs(const TangentOperands& x) {
    const bool drops = x.shape.modifiers.dropout > 0;
    return {x.tO, {{{x.S, false, drops}, {x.P, false, drops}}}, {x.V, x.tV}, Entries::of_pairs(x.shape)};
  }
  /// The products beside r, and a word of O that passes at the end.
  static Phase outputs_phase(const TangentOperands& x, GemmTiling t) {
    const Sizes& s = x.shape;
    return outputs(x).phase_beside(
        s, t, [&](index_t rows) { return s.statistic(SlowArray::Hm, rows); },
        s.statistics() > 0 ? s.word(SlowArray::O) : Words(0));
  }

  static Tiling smallest(const Sizes& x, const Multiples& m) {
    const index_t q = smallest_tile(x.n_q, m.query);
    return {{q, smallest_tile(x.n_k, m.key)}, {q, smallest_tile(x.d_v, m.feature)}};
  }
  static std::optional<Tiling> choose_tiling(const Sizes& s, const Limits& limits) {
    const TangentOperands x(s, 1);
    const auto tiles = weights(x).choose(s, limits);
    const auto tO = outputs(x).choose(s, limits, limits.multiple.query, limits.multiple.feature,
                                      [&](GemmTiling t) { return outputs_phase(x, t); });
    if (!tiles || !tO) return std::nullopt;
    return Tiling{*tiles, *tO};
  }

  static std::array<Phase, 2> phases(const Sizes& s, const Tiling& t) {
    const TangentOperands x(s, 1);
    return {weights(x).phase(s, t.weights), outputs_phase(x, t.tO)};
  }
  static Words footprint(const Sizes& x, const Tiling& t) { return footprint_of(phases(x, t)); }
  static Words prefetch(const Sizes& x, const Tiling& t) { return prefetch_of(phases(x, t)); }
  static Io io(const Sizes& s, const Tiling& t) {
    const TangentOperands x(s, 1);
    return weights(x).io(s, t.weights) + outputs(x).io(t.tO) +
           Io().read(SlowArray::Hm, s.row_statistics()).read(SlowArray::O, s.row_statistics() * s.d_v);
  }
  static Words macs(const Sizes& s, const Tiling& t) {
    const TangentOperands x(s, 1);
    return weights(x).factors.macs(s, t.weights) + outputs(x).macs();
  }

  template <Machine M>
  static void run(M& m, const TangentOperands& x, const Tiling& t) {
    weights(x).run(m, x, {x.tQ, x.tK, x.tV, x.tBias, x.tSinks, x.tO, x.Hm}, t.weights);
    const TwoProducts products = outputs(x);
    const Blocks rows = products.entries.row_blocks(x.shape.n_q, t.tO.b1);
    m.each(rows.count(), [&](auto& w, index_t i) {
      const Range I = rows(i);
      const auto r_i = w.load(x.Hm.rows(I));
      products.form_rows(
          w, x.shape.fast, I, t.tO.b2,
          [&](auto& of, const auto& tO_ij, Range J) {  // tO = (P o H) V + P tV - r o O
            if (x.shape.statistics() > 0)
              of.compute(kernel::SubtractScaledRows{}, tO_ij, r_i, of.stream(x.O.block(I, J)));
          },
          [&](auto& of, Range of_rows, index_t key, const Arg& weights) {
            drop_weights(of, x, x.shape.place(of_rows.begin, key), weights);
          });
    });
  }
};

}  // namespace redblue::schedule
