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
/// Their arrays, which say how wide words are.
struct MovingArrays {
  SlowArray Q, K, V, bias, sinks, T, r;
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
/// Sinks that move, which each block of queries begins with.
inline Io moving_row_sinks_io(const Sizes& x, const MovingArrays& m, index_t Br) {
  return moving_sinks_io(x, m.sinks, x.pairs().row_blocks(Br).count());
}
/// The prices of blocks of queries that begin with sinks that move.
inline VisitPrices prices_with_moving_sinks(const Sizes& x, const MovingArrays& m, const Limits& limits) {
  VisitPrices p = prices_with_modifiers(x, limits, limits.price.of(moving_keys_io(x, m, 1)), Sinks::none);
  p.block += limits.price.of(moving_sinks_io(x, m.sinks, 1));
  return p;
}
/// The tiles of a block of queries, and K_j while scores are formed, or `ended(rows)` words when all keys have passed,
/// `passing` of them streamed; and one streamed word. Second buffers: the next keys and streamed words.
template <class Ended>
Phase moving_phase(const Sizes& x, const MovingArrays& m, QueryPass t, const Ended& ended, Words passing) {
  const Words word = passing_moving_bias(x, m.bias, x.word(m.K)),
              values = std::max({x.word(SlowArray::V), x.word(m.V), passing_moving_sinks(x, m.sinks)});
  const Words block = query_blocks_footprint(x, t.Br, [&](index_t rows, index_t kappa) {
    return x.tile(SlowArray::Q, rows, x.d) + x.tile(m.Q, rows, x.d) + x.tile(m.T, rows, x.d_v) +
           x.statistic(SlowArray::lse, rows) + x.statistic(m.r, rows) + pair_tiles(x, 2, rows, std::min(t.bc, x.n_k)) +
           slopes_tile(x) +
           std::max({x.tile(SlowArray::K, std::min(t.bc, kappa), x.d) + word, values, Words(ended(rows)) + passing});
  });
  return {block, x.tile(SlowArray::K, std::min(t.bc, x.n_k), x.d) + std::max({word, values, passing})};
}

/// r of the queries I begins with their sinks, where these move.
template <class W, class Operands, class Sums>
void begin_moving_sums(W& w, const Operands& x, const Motion& m, Range I, const Sums& lse_i, const Sums& r_i) {
  if (x.shape.modifiers.sinks_move)
    w.compute(kernel::BeginWithMovingSinks{I.begin}, r_i, lse_i, w.stream(x.sinks.all()), w.stream(m.sinks.all()));
  else if (x.shape.statistics() > 0)
    w.compute(kernel::Zero{}, r_i);
}

/// T and r of the queries I, and then finish(T, r).
template <class W, class Operands, class Finish>
void moving_pass(W& w, const Operands& x, const Motion& m, Range I, index_t bc, const Finish& finish) {
  const Sizes& s = x.shape;
  const auto Q_i = w.load(x.Q.rows(I), Layout::read_only), A_i = w.load(m.Q.rows(I), Layout::read_only),
             lse_i = w.load(x.lse.rows(I)), T_i = w.alloc(m.T.rows(I)), r_i = w.alloc(m.r.rows(I));
  const Slopes slopes(w, x);
  const Shape tile{I.size(), std::min(bc, s.n_k)};
  const auto P = w.alloc(SlowArray::P, tile, Layout::padded_rows), H = w.alloc(SlowArray::P, tile, Layout::padded_rows),
             C = w.alloc(SlowArray::P, softcapped_tile(s, tile));
  w.compute(kernel::Zero{}, T_i);
  begin_moving_sums(w, x, m, I, lse_i, r_i);
  for_steps(w, s.pairs().runs_of_keys(I), bc, [&](Range J, index_t) {
    const Place place = s.place(I.begin, J.begin);
    const Arg P_ij = P.cols(J.size()), H_ij = H.cols(J.size()), C_ij = C.cols(C.shape().cols > 0 ? J.size() : 0);
    {
      const auto K_j = w.load(x.K.rows(J), Layout::read_only);
      const MovingArgs args{Q_i.arg(),   A_i.arg(),       K_j.arg(),    Arg::streaming(m.K.rows(J)),
                            lse_i.arg(), x.bias_of(I, J), slopes.arg(), Arg::streaming(x.of_scores(m.bias, I, J))};
      form_tangents(w, s, x.scale, place, P_ij, H_ij, C_ij, args, {true, r_i.arg()});  // H <- P o H, r += its row sums
    }
    for (const Arg& weights : {P_ij, H_ij}) drop_weights(w, x, place, weights);
    w.compute(kernel::Gemm{}, T_i, H_ij, w.stream(x.V.rows(J)));
    w.compute(kernel::Gemm{}, T_i, P_ij, w.stream(m.V.rows(J)));
  });
  finish(T_i, r_i);
}

}  // namespace redblue::schedule
