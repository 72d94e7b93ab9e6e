#pragma once
#include "redblue/schedules/pairs/index_words.hpp"
#include "redblue/schedules/second/moving_pass.hpp"

namespace redblue::schedule {

/// Tangents in one sweep, with queries and their tangents resident while keys and values pass with theirs: with
/// H = scale (tQ K^T + Q tK^T) + tBias,  tlse = rowsum(P o H),  tO = (P o H) V + P tV - tlse o O.
/// Sinks that move, of weight p, add p tSinks to tlse. O and lse of the forward pass are given; O passes once, at the
/// end.
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
  static constexpr MovingArrays kMoving{SlowArray::tQ,     SlowArray::tK, SlowArray::tV,  SlowArray::tBias,
                                        SlowArray::tSinks, SlowArray::tO, SlowArray::tlse};

  static std::optional<Tiling> choose_tiling(const Sizes& x, const Limits& limits) {
    return choose_query_pass(
        x, limits, [&](QueryPass t) { return phase(x, t); }, prices_with_moving_sinks(x, kMoving, limits));
  }

  static Words footprint(const Sizes& x, Tiling t) { return phase(x, t).footprint; }
  static Words prefetch(const Sizes& x, Tiling t) { return phase(x, t).prefetch; }
  static Phase phase(const Sizes& x, Tiling t) {
    const Words O = x.statistics() > 0 ? x.word(SlowArray::O) : Words(0);
    return moving_phase(x, kMoving, t, [](index_t) { return Words(0); }, O);
  }
  static Io io(const Sizes& x, Tiling t) {
    return moving_rows_io(x, kMoving, t.Br) + begin_with_sinks_io(x, kMoving, t.Br) +
           Io().read(SlowArray::O, x.row_statistics() * x.d_v)
               .write(SlowArray::tO, Words(x.n_q) * x.d_v)
               .write(SlowArray::tlse, x.row_statistics());
  }
  static Words macs(const Sizes& x, Tiling t) {
    return x.pairs().pairs_of_rows(t.Br) * (Words(3) * x.d + Words(2) * x.d_v);
  }
  static IndexWords index(const Sizes& x, Tiling t) { return row_pass_index(x, t.Br).words(); }

  template <Machine M>
  static void run(M& m, const TangentOperands& x, Tiling t) {
    const Blocks blocks = x.shape.pairs().row_blocks(t.Br);
    m.each(blocks.count(), [&](auto& w, index_t i) {
      const Range I = blocks(i);
      moving_pass(w, x, {x.tQ, x.tK, x.tV, x.tBias, x.tSinks, x.tO, x.tlse}, kMoving.normalised, I, t.bc,
                  [&](const auto& tO_i, const auto& r_i) {
                    if (x.shape.statistics() > 0)
                      w.compute(kernel::SubtractScaledRows{}, tO_i, r_i, w.stream(x.O.rows(I)));
                    w.store(tO_i, x.tO.rows(I));
                    w.store(r_i, x.tlse.rows(I));
                  });
    });
  }
};

}  // namespace redblue::schedule
