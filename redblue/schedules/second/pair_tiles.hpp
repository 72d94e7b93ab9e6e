#pragma once
#include "redblue/schedules/parts/score_phase.hpp"
#include "redblue/schedules/second/moving_pass.hpp"
#include "redblue/schedules/second/two_products.hpp"

/// What tangents and double backward do in a small cache: matrices over pairs go through slow memory. They are formed
/// in twos, in tiles that grow column by column, and multiplied in twos (two_products.hpp).
namespace redblue::schedule {

struct TwoTilesTiling {
  index_t a = 1;  ///< queries
  index_t b = 1;  ///< keys
};

/// T = Q K^T and U = Q B^T + A K^T for tiles T and U of a x b pairs; U = Q B^T where A has no words. Columns of Q and K
/// are resident, once for both, while those of B and A pass.
///   reads w (B(b) of Q and A each, A(a) of K and B each)   footprint 2 a b + a + b + 1
struct PairFactors {
  SlowMatrix Q, K, B, A;

  bool has_A() const { return A.shape.words() > 0; }
  index_t width() const { return Q.shape.cols; }
  /// Columns beside the tiles, and what passes.
  Words columns(const Sizes& x, index_t a, index_t b) const {
    return x.tile(Q.array, a, 1) + x.tile(K.array, b, 1) +
           std::max(x.word(B.array), has_A() ? x.word(A.array) : Words(0));
  }
  Io io(const Sizes& x, TwoTilesTiling t) const {
    const Words rows = x.pairs().visited_rows(t.b) * width(), keys = x.pairs().visited_keys(t.a) * width();
    return Io().read(Q.array, rows).read(K.array, keys).read(B.array, keys).read(A.array, has_A() ? rows : Words(0));
  }
  Words macs(const Sizes& x, TwoTilesTiling t) const { return box_words(x, t.a, t.b) * (has_A() ? 3 : 2) * width(); }
  template <class PhaseOf>
  std::optional<TwoTilesTiling> choose(const Sizes& x, const Limits& limits, const PhaseOf& phase_of) const {
    const Prices& price = limits.price;
    const Words rows = price.reading(Q.array) + (has_A() ? price.reading(A.array) : Words(0)),
                keys = price.reading(K.array) + price.reading(B.array);
    const auto tile = best_score_tile(x, limits, rows * width(), keys * width(), limits.M / (2 * x.word(SlowArray::P)),
                                      [&](index_t a, index_t b) { return limits.fit(phase_of(TwoTilesTiling{a, b})); });
    if (!tile) return std::nullopt;
    return TwoTilesTiling{(*tile)[0], (*tile)[1]};
  }

  /// T and U are the part of the tiles of the rows I and some keys that holds pairs; columns have room for all.
  template <class W>
  void form(W& w, Shape room, const Box& box, const Arg& T, const Arg& U) const {
    const kernel::Gemm rank_one{false, true};
    const auto q_room = w.alloc(Q.array, {room.rows, 1}), k_room = w.alloc(K.array, {room.cols, 1});
    const Arg q = q_room.rows(0, box.rows.size()), k = k_room.rows(0, box.keys.size());
    for (const Arg& tile : {T, U}) w.compute(kernel::Zero{}, tile);
    for (index_t t = 0; t < width(); ++t) {
      const Range column{t, t + 1};
      w.load_into(q, Q.block(box.rows, column));
      w.load_into(k, K.block(box.keys, column));
      w.compute(rank_one, T, q, k);
      w.compute(rank_one, U, q, w.stream(B.block(box.keys, column)));
      if (has_A()) w.compute(rank_one, U, w.stream(A.block(box.rows, column)), k);
    }
  }
};

/// f(room, box) for the tiles of the rows I that hold pairs, each of `room` pairs, of which those are in the box.
template <class F>
void for_boxes_of_rows(const Sizes& x, Range I, index_t b, const F& f) {
  const Pairs pairs = x.pairs();
  const Blocks keys = pairs.key_blocks(b);
  const Range met = blocks_of(pairs.keys_of(I), b);
  for (index_t j = met.begin; j < met.end; ++j) f(Shape{I.size(), keys(j).size()}, box_of(pairs, I, keys(j)));
}

/// P, the weights, and P o H, how they move, with H as in moving_pass.hpp: each pair is formed once and goes to slow
/// memory, and so do the row sums r of P o H, beside `sums`, an output that takes them, too, where it has words. Where
/// l has words, it takes the sums of all weights, and r is divided by them (`normalised` in moving_pass.hpp).
struct MovingWeightsPhase {
  PairFactors factors;
  SlowMatrix P, moved, r, sums, l;
  SlowArray bias, sinks;  ///< the directions in which these move

  bool normalised() const { return l.shape.words() > 0; }

  Phase phase(const Sizes& x, TwoTilesTiling t) const {
    return over_largest_tiles(x, t.a, t.b, [&](index_t a, index_t b) -> Phase {
      const Words columns = factors.columns(x, a, b),
                  tiles = pair_tiles(x, 2, a, b) + std::max(columns, passing_moving_bias(x, bias, 0));
      return {x.statistic(SlowArray::lse, a) + x.statistic(r.array, a) +
                  (normalised() ? x.statistic(l.array, a) : Words(0)) + slopes_tile(x) +
                  std::max(tiles, held_sinks(x, sinks, normalised())),
              columns};
    });
  }
  std::optional<TwoTilesTiling> choose(const Sizes& x, const Limits& limits) const {
    return factors.choose(x, limits, [&](TwoTilesTiling t) { return phase(x, t); });
  }
  Io io(const Sizes& x, TwoTilesTiling t) const {
    Io io = factors.io(x, t) + begin_with_sinks_io(x, sinks, normalised(), x.pairs().row_blocks(t.a).count());
    if (x.modifiers.any()) io = io + box_modifiers_io(x, t.a, t.b);
    if (x.modifiers.bias_moves)
      io = io + bias_direction_io(x, bias, box_words(x, t.a, t.b), x.pairs().visited_keys(t.a));
    return io.read(SlowArray::lse, x.row_statistics())
        .write(P.array, x.nnz())
        .write(moved.array, x.nnz())
        .write(r.array, x.row_statistics())
        .write(l.array, normalised() ? x.row_statistics() : Words(0))
        .write(sums.array, sums.shape.words());
  }

  /// x has the operands, m the directions.
  template <class M, class Operands>
  void run(M& machine, const Operands& x, const Motion& m, TwoTilesTiling t) const {
    const Sizes& s = x.shape;
    const Blocks blocks = s.pairs().row_blocks(t.a);
    machine.each(blocks.count(), [&](auto& w, index_t i) {
      const Range I = blocks(i);
      const auto lse_i = w.load(x.lse.rows(I)), r_i = w.alloc(r.rows(I)),
                 l_i = w.alloc(normalised() ? l.rows(I) : Block{l.array});
      const Slopes slopes(w, x);
      begin_moving_sums(w, x, m, I, lse_i, r_i, l_i);
      for_boxes_of_rows(s, I, t.b, [&](Shape room, const Box& box) {
        const auto P_room = w.alloc(P.array, room), H_room = w.alloc(moved.array, room),
                   C_room = w.alloc(P.array, softcapped_tile(s, room));
        const Shape part{box.rows.size(), box.keys.size()};
        const Arg P_ij = P_room.part(part), H_ij = H_room.part(part), C_ij = C_room.part(softcapped_tile(s, part));
        factors.form(w, room, box, P_ij, H_ij);
        const index_t first = box.rows.begin - I.begin, rows = box.rows.size();
        weigh(w, x, m, box, {P_ij, H_ij, C_ij, lse_i.rows(first, rows), r_i.rows(first, rows), slopes.arg()});
        if (normalised())
          for_visible(s.pairs(), box.rows, box.keys, [&](Range seeing, Range keys) {
            w.compute(kernel::AddRowSums{}, l_i.rows(seeing.begin - I.begin, seeing.size()),
                      part_of(P_ij, box, seeing, keys));
          });
        store_visible(w, s, P_ij, P, box);
        store_visible(w, s, H_ij, moved, box);
      });
      if (normalised()) {
        w.compute(kernel::DivideRows{}, r_i, l_i);
        w.store(l_i, l.rows(I));
      }
      w.store(r_i, r.rows(I));
      if (sums.shape.words() > 0) w.store(r_i, sums.rows(I));
    });
  }

 private:
  struct Tiles {
    Arg P, H, C, lse, r, slopes;
  };
  /// From Q K^T and A K^T + Q B^T to P and P o H, as kernel::MovingWeights does.
  template <class W, class Operands>
  static void weigh(W& w, const Operands& x, const Motion& m, const Box& box, const Tiles& t) {
    const Sizes& s = x.shape;
    const Place place = s.place(box.rows.begin, box.keys.begin);
    const bool capped = t.C.shape().words() > 0;
    w.compute(kernel::Scale{x.scale}, t.P);
    if (capped) {
      w.compute(kernel::Copy{}, t.C, t.P);
      w.compute(kernel::ModifyScores{s.modifiers.softcap}, t.C, kNoWords, kNoWords, kNoWords);
    }
    hide_formed(w, s, t.P, box);
    modify(w, x, t.P, box, t.slopes);
    w.compute(kernel::Weights{s.score}, t.P, t.lse);
    w.compute(kernel::Scale{x.scale}, t.H);
    if (capped) w.compute(kernel::ThroughSoftcap{s.modifiers.softcap}, t.H, t.C);
    if (s.modifiers.bias_moves)
      w.compute(kernel::ModifyScores{.place = place}, t.H, kNoWords,
                Arg::streaming(x.of_scores(m.bias, box.rows, box.keys)), kNoWords);
    w.compute(kernel::ScoreGradient{s.score, 1, place}, t.H, t.P, kNoWords);
    if (t.r.shape().words() > 0) w.compute(kernel::AddRowSums{}, t.r, t.H);
  }
};

}  // namespace redblue::schedule
