#pragma once
#include "redblue/schedules/passes/query_pass.hpp"
#include "redblue/schedules/second/tiles.hpp"

/// How outputs move while queries, keys and values do, with queries resident and keys passing: all of the tangent, and
/// the first sweep of double backward. With H = scale (A K^T + Q B^T) + C, where Q moves along A, K along B, V along U,
/// a bias along C, and sinks along c, whose weights are p:
///   r = p c + rowsum(P o H), by which lse moves;  T = (P o H) V + P U, so that O moves along T - r o O
namespace redblue::schedule {

/// What moves: the directions of Q, K, V, the bias and the sinks, T, and r.
struct Motion {
  SlowMatrix Q, K, V, bias, sinks, T, r;
};
/// Their arrays, which say how wide words are. `normalised`: T and r are divided by l = p + rowsum(P), which is 1 but
/// for the rounding of lse. What H - r is formed from needs it: where one key takes all, H - r is 0, and not eps |lse|.
struct MovingArrays {
  SlowArray Q, K, V, bias, sinks, T, r;
  bool normalised = false;
};

/// Keys and values with their directions.
inline Io moving_keys_io(const Sizes& x, const MovingArrays& m, Words visits) {
  return keys_io(x, visits) + Io().read(m.K, visits * x.d).read(m.V, visits * x.d_v);
}
/// What passes of blocks of Br queries and the keys that they see: n_q (2 d + 1) + 2 A(Br) (d + d_v).
inline Io moving_rows_io(const Sizes& x, const MovingArrays& m, index_t Br) {
  const Words visits = x.pairs().visited_keys(Br);
  const Words pairs = x.pairs().pairs_of_rows(Br);
  return modifiers_io(x, pairs, visits, x.pairs().row_blocks(Br).count()) +
         bias_direction_io(x, m.bias, pairs, visits) + moving_keys_io(x, m, visits) +
         Io().read(SlowArray::Q, Words(x.n_q) * x.d)
             .read(m.Q, Words(x.n_q) * x.d)
             .read(SlowArray::lse, x.row_statistics());
}
/// What a number of blocks of queries read of sinks: of those that move, which r begins with, and of all for l.
inline Io begin_with_sinks_io(const Sizes& x, SlowArray direction, bool normalised, Words blocks) {
  if (x.modifiers.sinks_move) return moving_sinks_io(x, direction, blocks);
  return sinks_io(x, normalised ? blocks : Words(0));
}
inline Io begin_with_sinks_io(const Sizes& x, const MovingArrays& m, index_t Br) {
  return begin_with_sinks_io(x, m.sinks, m.normalised, Words(x.pairs().row_blocks(Br).count()));
}
/// The sinks stay while r and l begin, and a word of their direction passes.
inline Words held_sinks(const Sizes& x, SlowArray direction, bool normalised) {
  if (!x.modifiers.sinks || !(normalised || x.modifiers.sinks_move)) return 0;
  return x.tile(SlowArray::sinks, x.mask.group, 1) + (x.modifiers.sinks_move ? x.word(direction) : Words(0));
}
/// The prices of blocks of queries that begin with sinks.
inline VisitPrices prices_with_moving_sinks(const Sizes& x, const MovingArrays& m, const Limits& limits) {
  VisitPrices p = prices_with_modifiers(x, limits, limits.price.of(moving_keys_io(x, m, 1)), Sinks::none);
  p.block += limits.price.of(begin_with_sinks_io(x, m.sinks, m.normalised, Words(1)));
  return p;
}
/// The tiles of a block of queries, and K_j while scores are formed, or `ended(rows)` words when all keys have passed,
/// `passing` of them streamed; and one streamed word. Second buffers: the next keys and streamed words.
template <class Ended>
Phase moving_phase(const Sizes& x, const MovingArrays& m, QueryPass t, const Ended& ended, Words passing) {
  const Words word = passing_moving_bias(x, m.bias, x.word(m.K)), values = std::max(x.word(SlowArray::V), x.word(m.V));
  const Words block = query_blocks_footprint(x, t.Br, [&](index_t rows, index_t kappa) {
    return x.tile(SlowArray::Q, rows, x.d) + x.tile(m.Q, rows, x.d) + x.tile(m.T, rows, x.d_v) +
           x.statistic(SlowArray::lse, rows) + (m.normalised ? 2 : 1) * x.statistic(m.r, rows) +
           pair_tiles(x, 2, rows, std::min(t.bc, x.n_k)) + slopes_tile(x) +
           std::max({x.tile(SlowArray::K, std::min(t.bc, kappa), x.d) + word, values,
                     held_sinks(x, m.sinks, m.normalised), Words(ended(rows)) + passing});
  });
  return {block, x.tile(SlowArray::K, std::min(t.bc, x.n_k), x.d) + std::max({word, values, passing})};
}

/// r and l of the queries I, before they have had a key; l has words where they are normalised.
template <class W, class Operands, class Sums>
void begin_moving_sums(W& w, const Operands& x, const Motion& m, Range I, const Tile<W>& lse_i, const Sums& r_i,
                       const Sums& l_i) {
  const bool normalised = l_i.shape().words() > 0, moving = x.shape.modifiers.sinks_move;
  const auto sinks = w.load(normalised || moving ? x.sinks.all() : Block{SlowArray::sinks});
  if (moving)
    w.compute(kernel::BeginWithMovingSinks{I.begin}, r_i, lse_i, sinks, w.stream(m.sinks.all()));
  else if (r_i.shape().words() > 0)
    w.compute(kernel::Zero{}, r_i);
  if (!normalised) return;
  w.compute(kernel::Zero{}, l_i);
  if (x.shape.modifiers.sinks) w.compute(kernel::AddSinkWeights{I.begin}, l_i, lse_i, sinks);
}

/// T and r of the queries I, and then finish(T, r).
template <class W, class Operands, class Finish>
void moving_pass(W& w, const Operands& x, const Motion& m, bool normalised, Range I, index_t bc, const Finish& finish) {
  const Sizes& s = x.shape;
  const auto Q_i = w.load(x.Q.rows(I), Layout::read_only), A_i = w.load(m.Q.rows(I), Layout::read_only),
             lse_i = w.load(x.lse.rows(I)), T_i = w.alloc(m.T.rows(I)), r_i = w.alloc(m.r.rows(I)),
             l_i = w.alloc(normalised ? m.r.rows(I) : Block{m.r.array});
  const Slopes slopes(w, x);
  const Shape tile{I.size(), std::min(bc, s.n_k)};
  const auto P = w.alloc(SlowArray::P, tile, Layout::padded_rows), H = w.alloc(SlowArray::P, tile, Layout::padded_rows),
             C = w.alloc(SlowArray::P, softcapped_tile(s, tile));
  w.compute(kernel::Zero{}, T_i);
  begin_moving_sums(w, x, m, I, lse_i, r_i, l_i);
  for_steps(w, s.pairs().runs_of_keys(I), bc, [&](Range J, index_t) {
    const Place place = s.place(I.begin, J.begin);
    const Arg P_ij = P.cols(J.size()), H_ij = H.cols(J.size()), C_ij = C.cols(C.shape().cols > 0 ? J.size() : 0);
    {
      const auto K_j = w.load(x.K.rows(J), Layout::read_only);
      const MovingArgs args{Q_i.arg(),   A_i.arg(),       K_j.arg(),   Arg::streaming(m.K.rows(J)),
                            lse_i.arg(), x.bias_of(I, J), slopes.arg()};
      form_tangents_of_weights(w, s, x.scale, place, {P_ij, H_ij, C_ij}, args,  // H <- P o H, r += its row sums
                               Arg::streaming(x.of_scores(m.bias, I, J)), r_i.arg());
    }
    if (normalised) w.compute(kernel::AddRowSums{}, l_i, P_ij);
    for (const Arg& weights : {P_ij, H_ij}) drop_weights(w, x, place, weights);
    w.compute(kernel::Gemm{}, T_i, H_ij, w.stream(x.V.rows(J)));
    w.compute(kernel::Gemm{}, T_i, P_ij, w.stream(m.V.rows(J)));
  });
  if (normalised)
    for (const Arg& sum : {T_i.arg(), r_i.arg()}) w.compute(kernel::DivideRows{}, sum, l_i);
  finish(T_i, r_i);
}

}  // namespace redblue::schedule
