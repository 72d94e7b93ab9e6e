#pragma once
#include "redblue/schedules/second/output_sweep.hpp"
#include "redblue/schedules/second/pair_tiles.hpp"

namespace redblue::schedule {

/// P <- scale dS = scale P o (dP - D) and, in S, P o H <- scale G = scale (P o (H - w) o (dP - D) + P o (E - x)), from
/// tiles of dP = dO V^T and E = dO gV^T that grow column by column. Rows of P and P o H come when a tile is finished.
///   reads d_v (B(b) of dO, A(a) of V and gV each) + 3 n_q + 2 nnz   writes 2 nnz
///   footprint 2 a b + 3 a + max(a + b + 1, 3 b)
struct ScoreGradientsPhase {
  PairFactors factors;

  /// Beside D, w and x; LBias, where it is formed, passes by the rows.
  Phase phase(const Sizes& s, TwoTilesTiling t) const {
    return over_largest_tiles(s, t.a, t.b, [&](index_t a, index_t b) -> Phase {
      const Words columns = factors.columns(s, a, b),
                  rows = s.tile(SlowArray::P, 1, b) + 2 * s.tile(SlowArray::S, 1, b) +
                         (s.modifiers.bias_gradient ? s.word(SlowArray::LBias) : Words(0));
      Words words = 2 * s.tile(SlowArray::P, a, b) + std::max(columns, rows);
      for (const SlowArray of_rows : {SlowArray::D, SlowArray::Hm, SlowArray::Xm}) words += s.tile(of_rows, a, 1);
      return {words, columns};
    });
  }
  std::optional<TwoTilesTiling> choose(const Sizes& s, const Limits& limits) const {
    return factors.choose(s, limits, [&](TwoTilesTiling t) { return phase(s, t); });
  }
  Io io(const Sizes& s, TwoTilesTiling t) const {
    Io io = factors.io(s, t) + bias_gradient_words(s, t);
    for (const SlowArray a : {SlowArray::D, SlowArray::Hm, SlowArray::Xm}) io.read(a, s.n_q);
    for (const SlowArray a : {SlowArray::P, SlowArray::S}) io.read(a, s.nnz()).write(a, s.nnz());
    return io;
  }
  /// LBias is added to row by row, a word for each pair, or for each row of a tile where all keys share it.
  static Io bias_gradient_words(const Sizes& s, TwoTilesTiling t) {
    if (!s.modifiers.bias_gradient) return {};
    const Words words = s.modifiers.bias_over_keys ? s.pairs().visited_rows(t.b) : s.nnz();
    return Io().read(SlowArray::LBias, words).write(SlowArray::LBias, words);
  }

  template <class M>
  void run(M& m, const SecondOperands& x, TwoTilesTiling t) const {
    const Sizes& s = x.shape;
    const Blocks blocks = s.pairs().row_blocks(t.a);
    for_blocks_of_queries(m, s, blocks.count(), [&](auto& w, index_t i) {
      const Range I = blocks(i);
      const auto D_i = w.load(x.D.rows(I)), w_i = w.load(x.Hm.rows(I)), x_i = w.load(x.Xm.rows(I));
      for_boxes_of_rows(s, I, t.b, [&](Shape room, const Box& box) {
        const auto dP_room = w.alloc(x.P.array, room), E_room = w.alloc(x.P.array, room);
        const Shape part{box.rows.size(), box.keys.size()};
        const Arg dP = dP_room.part(part), E = E_room.part(part);
        factors.form(w, room, box, dP, E);
        for (const Arg& tile : {dP, E}) drop_weights(w, x, s.place(box.rows.begin, box.keys.begin), tile);
        const auto P_room = w.alloc(x.P.array, {1, room.cols}), H_room = w.alloc(x.S.array, {1, room.cols}),
                   G_room = w.alloc(x.S.array, {1, room.cols});
        for_visible_rows(s.pairs(), box, [&](Range row, Range keys) {
          const index_t n = keys.size();
          const Arg P = P_room.cols(n), H = H_room.cols(n), G = G_room.cols(n), dS = part_of(dP, box, row, keys),
                    E_row = part_of(E, box, row, keys);
          const auto at = [&](const auto& of_rows) { return of_rows.rows(row.begin - I.begin, 1); };
          const kernel::ScoreGradient times{Score::softmax, x.scale};  // A <- scale B o (A - c)
          w.load_into(P, x.P.block(row, keys));
          w.load_into(H, x.S.block(row, keys));
          w.compute(kernel::SubtractScaledRows{}, H, at(w_i), P);  // P o (H - w)
          w.compute(kernel::Copy{}, G, dS);
          w.compute(times, G, H, at(D_i));
          w.compute(times, E_row, P, at(x_i));
          w.compute(kernel::Add{}, G, E_row);  // scale G = scale (P o (H - w) o (dP - D) + P o (E - x))
          w.compute(times, dS, P, at(D_i));    // scale dS = scale P o (dP - D)
          if (s.modifiers.bias_gradient)
            w.update(kernel::AddBiasGradient{false, 1 / x.scale},
                     s.modifiers.bias_over_keys ? x.LBias.rows(row) : x.of_scores(x.LBias, row, keys), G);
          w.store(dS, x.P.block(row, keys));
          w.store(G, x.S.block(row, keys));
        });
      });
    });
  }

 private:
  /// f(row, keys) for the pairs of the box, row by row.
  template <class F>
  static void for_visible_rows(const Pairs& pairs, const Box& box, const F& f) {
    for (index_t i = box.rows.begin; i < box.rows.end; ++i) for_visible(pairs, {i, i + 1}, box.keys, f);
  }
};

}  // namespace redblue::schedule
