#pragma once
#include "redblue/schedules/pairs/index_words.hpp"
#include "redblue/schedules/passes/query_pass.hpp"
#include "redblue/schedules/second/tiles.hpp"

namespace redblue::schedule {

/// Tangents in one sweep, with queries and their tangents resident while keys and values pass with theirs: with
/// H = scale (tQ K^T + Q tK^T),  tlse = rowsum(P o H),  tO = (P o H) V + P tV - tlse o O.
/// O and lse of the forward pass are given; O passes once, at the end.
///   reads n_q (2 d + d_v + 1) + 2 A(Br) (d + d_v)   writes n_q (d_v + 1)
///   footprint Br (2 d + d_v + 2 + 2 bc) + bc d + 1
/// A(Br) = SUM_I kappa_I: keys that the blocks see; without a mask ceil(n_q/Br) n_k. Leading 12 n^2 d^2/M, for d_v = d.
struct TangentQueryOuter : Defaults {
  using Operands = TangentOperands;
  static constexpr std::string_view name = "query_outer";
  static constexpr std::string_view idea = "keeping a block of queries and their tangents resident";
  static constexpr Traits traits{.masks = true, .patterns = true, .modifiers = true, .any_score = true, .products = 5};
  static constexpr std::array<SlowArray, 0> workspace{};

  using Tiling = QueryPass;

  static Tiling smallest(const Sizes& x, const Multiples& m) {
    return {smallest_tile(x.n_q, m.query), smallest_tile(x.n_k, m.key)};
  }
  static std::optional<Tiling> choose_tiling(const Sizes& x, const Limits& limits) {
    return choose_query_pass(
        x, limits, [&](QueryPass t) { return phase(x, t); },
        prices_with_modifiers(x, limits, limits.price.of(moving_keys_io(x, 1)), Sinks::none));
  }

  static Words footprint(const Sizes& x, Tiling t) { return phase(x, t).footprint; }
  static Words prefetch(const Sizes& x, Tiling t) { return phase(x, t).prefetch; }
  /// The tiles of a block of queries, K_j while scores are formed, and one streamed word.
  static Phase phase(const Sizes& x, Tiling t) {
    const Words word = passing_bias(x, x.word(SlowArray::tK)), O = x.statistics() > 0 ? x.word(SlowArray::O) : Words(0),
                later = std::max({x.word(SlowArray::V), x.word(SlowArray::tV), O});
    const Words block = query_blocks_footprint(x, t.Br, [&](index_t rows, index_t kappa) {
      return x.tile(SlowArray::Q, rows, x.d) + x.tile(SlowArray::tQ, rows, x.d) + x.tile(SlowArray::tO, rows, x.d_v) +
             x.statistic(SlowArray::lse, rows) + x.statistic(SlowArray::tlse, rows) +
             pair_tiles(x, 2, rows, std::min(t.bc, x.n_k)) + slopes_tile(x) +
             std::max(x.tile(SlowArray::K, std::min(t.bc, kappa), x.d) + word, later);
    });
    return {block, x.tile(SlowArray::K, std::min(t.bc, x.n_k), x.d) + std::max(word, later)};
  }
  static Io moving_keys_io(const Sizes& x, Words visits) {
    return keys_io(x, visits) + Io().read(SlowArray::tK, visits * x.d).read(SlowArray::tV, visits * x.d_v);
  }
  static Io io(const Sizes& x, Tiling t) {
    const Words visits = x.pairs().visited_keys(t.Br);
    return modifiers_io(x, x.pairs().pairs_of_rows(t.Br), visits, x.pairs().row_blocks(t.Br).count()) +
           moving_keys_io(x, visits) +
           Io().read(SlowArray::Q, Words(x.n_q) * x.d)
               .read(SlowArray::tQ, Words(x.n_q) * x.d)
               .read(SlowArray::O, x.row_statistics() * x.d_v)
               .read(SlowArray::lse, x.row_statistics())
               .write(SlowArray::tO, Words(x.n_q) * x.d_v)
               .write(SlowArray::tlse, x.row_statistics());
  }
  static Words macs(const Sizes& x, Tiling t) {
    return x.pairs().pairs_of_rows(t.Br) * (Words(3) * x.d + Words(2) * x.d_v);
  }
  static IndexWords index(const Sizes& x, Tiling t) { return row_pass_index(x, t.Br).words(); }

  template <Machine M>
  static void run(M& m, const TangentOperands& x, Tiling t) {
    const Sizes& s = x.shape;
    const Pairs pairs = s.pairs();
    const Blocks blocks = pairs.row_blocks(t.Br);
    m.each(blocks.count(), [&](auto& w, index_t i) {
      const Range I = blocks(i);
      const auto Q_i = w.load(x.Q.rows(I)), tQ_i = w.load(x.tQ.rows(I)), lse_i = w.load(x.lse.rows(I)),
                 tO_i = w.alloc(x.tO.rows(I)), r_i = w.alloc(x.tlse.rows(I));
      const Slopes slopes(w, x);
      const Shape tile{I.size(), std::min(t.bc, s.n_k)};
      const auto P = w.alloc(SlowArray::P, tile), H = w.alloc(SlowArray::P, tile),
                 C = w.alloc(SlowArray::P, softcapped_tile(s, tile)), none = w.alloc(x.lse.array, {I.size(), 0});
      w.compute(kernel::Zero{}, tO_i);
      if (s.statistics() > 0) w.compute(kernel::Zero{}, r_i);
      for_steps(pairs.runs_of_keys(I), t.bc, [&](Range J, index_t) {
        const Place place = s.place(I.begin, J.begin);
        const PairArgs ij{place, P.cols(J.size()), H.cols(J.size()), C.cols(C.shape().cols > 0 ? J.size() : 0)};
        {
          const auto K_j = w.load(x.K.rows(J));
          form_tangents(w, s, x.scale, ij,
                        {Q_i.arg(), tQ_i.arg(), K_j.arg(), Arg::streaming(x.tK.rows(J)), lse_i.arg(), x.bias_of(I, J),
                         slopes.arg()});
        }
        w.compute(kernel::ScoreGradient{s.score, 1, place}, ij.H, ij.P, none);  // H <- P o H
        if (s.statistics() > 0) w.compute(kernel::AddRowSums{}, r_i, ij.H);
        for (const Arg& weights : {ij.P, ij.H}) drop_weights(w, x, place, weights);
        w.compute(kernel::Gemm{}, tO_i, ij.H, w.stream(x.V.rows(J)));
        w.compute(kernel::Gemm{}, tO_i, ij.P, w.stream(x.tV.rows(J)));
      });
      if (s.statistics() > 0) w.compute(kernel::SubtractScaledRows{}, tO_i, r_i, w.stream(x.O.rows(I)));
      w.store(tO_i, x.tO.rows(I));
      w.store(r_i, x.tlse.rows(I));
    });
  }
};

}  // namespace redblue::schedule
