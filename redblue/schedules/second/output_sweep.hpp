#pragma once
#include "redblue/schedules/passes/query_pass.hpp"
#include "redblue/schedules/second/tiles.hpp"

/// The first sweep of double backward: LdO, the tangent of O along (gQ, gK, gV), and D, w and x, which the gradients of
/// scores need (theory notes 2k).
namespace redblue::schedule {

/// Keys and values, and the directions in which they move.
inline Io second_keys_io(const Sizes& x, Words visits) {
  return keys_io(x, visits) + Io().read(SlowArray::gK, visits * x.d).read(SlowArray::gV, visits * x.d_v);
}
/// What passes of blocks of Br queries and the keys that they see, without queries.
inline Io second_rows_io(const Sizes& x, index_t Br) {
  const Words visits = x.pairs().visited_keys(Br);
  return modifiers_io(x, x.pairs().pairs_of_rows(Br), visits, x.pairs().row_blocks(Br).count()) +
         second_keys_io(x, visits) +
         Io().read(SlowArray::Q, Words(x.n_q) * x.d)
             .read(SlowArray::gQ, Words(x.n_q) * x.d)
             .read(SlowArray::dO, Words(x.n_q) * x.d_v)
             .read(SlowArray::lse, x.n_q);
}
inline Io output_sweep_io(const Sizes& x, index_t Br) {
  Io io = second_rows_io(x, Br) + lse_gradient_io(x, x.n_q) + Io().read(SlowArray::O, Words(x.n_q) * x.d_v);
  for (const SlowArray a : {SlowArray::D, SlowArray::Hm, SlowArray::Xm}) io.write(a, x.n_q);
  return io.write(SlowArray::LdO, Words(x.n_q) * x.d_v).write(SlowArray::Ldlse, x.lse_gradient ? x.n_q : 0);
}
/// The tiles of a block of queries; then K_j and a streamed word, or V_j, or gV_j; at the end, O or dlse. Second
/// buffers: the next keys and the next streamed word.
inline Phase output_sweep_phase(const Sizes& x, QueryPass t) {
  const Words word = passing_bias(x, x.word(SlowArray::gK)),
              end = std::max(x.word(SlowArray::O), passing_lse_gradient(x));
  const auto arriving = [&](index_t keys) {
    return std::max({x.tile(SlowArray::K, keys, x.d) + word, x.tile(SlowArray::V, keys, x.d_v),
                     x.tile(SlowArray::gV, keys, x.d_v)});
  };
  const Words block = query_blocks_footprint(x, t.Br, [&](index_t rows, index_t kappa) {
    return x.tile(SlowArray::Q, rows, x.d) + x.tile(SlowArray::gQ, rows, x.d) + x.tile(SlowArray::dO, rows, x.d_v) +
           x.tile(SlowArray::LdO, rows, x.d_v) + x.tile(SlowArray::lse, rows, 1) + x.tile(SlowArray::Hm, rows, 1) +
           x.tile(SlowArray::Xm, rows, 1) + x.tile(SlowArray::D, rows, 1) +
           pair_tiles(x, 3, rows, std::min(t.bc, x.n_k)) + slopes_tile(x) +
           std::max(arriving(std::min(t.bc, kappa)), end);
  });
  return {block, arriving(std::min(t.bc, x.n_k))};
}

/// LdO of the queries I: reads dO and O once, writes D, w and x.
template <class W>
void output_sweep(W& w, const SecondOperands& x, Range I, index_t bc) {
  const Sizes& s = x.shape;
  const auto Q_i = w.load(x.Q.rows(I)), gQ_i = w.load(x.gQ.rows(I)), dO_i = w.load(x.dO.rows(I)),
             lse_i = w.load(x.lse.rows(I)), LdO_i = w.alloc(x.LdO.rows(I)), w_i = w.alloc(x.Hm.rows(I)),
             x_i = w.alloc(x.Xm.rows(I)), D_i = w.alloc(x.D.rows(I));
  const Slopes slopes(w, x);
  const Shape tile{I.size(), std::min(bc, s.n_k)};
  const auto P = w.alloc(SlowArray::P, tile), H = w.alloc(SlowArray::P, tile), X = w.alloc(SlowArray::P, tile),
             C = w.alloc(SlowArray::P, softcapped_tile(s, tile)), none = w.alloc(x.lse.array, {I.size(), 0});
  for (const Arg& sum : {LdO_i.arg(), w_i.arg(), x_i.arg()}) w.compute(kernel::Zero{}, sum);
  for_steps(s.pairs().runs_of_keys(I), bc, [&](Range J, index_t) {
    const Place place = s.place(I.begin, J.begin);
    const PairArgs ij{place, P.cols(J.size()), H.cols(J.size()), C.cols(C.shape().cols > 0 ? J.size() : 0)};
    const Arg X_ij = X.cols(J.size());
    {
      const auto K_j = w.load(x.K.rows(J));
      form_tangents(
          w, s, x.scale, ij,
          {Q_i.arg(), gQ_i.arg(), K_j.arg(), Arg::streaming(x.gK.rows(J)), lse_i.arg(), x.bias_of(I, J), slopes.arg()});
    }
    w.compute(kernel::ScoreGradient{s.score, 1, place}, ij.H, ij.P, none);  // H <- P o H
    w.compute(kernel::AddRowSums{}, w_i, ij.H);
    for (const Arg& weights : {ij.P, ij.H}) drop_weights(w, x, place, weights);
    // X = dP, then E: what dropout leaves of P o dP o H, and of P o E, adds to x; LdO += (P o H) V + P gV
    for (const auto& [values, weights] : {std::pair{x.V, ij.H}, {x.gV, ij.P}}) {
      const auto V_j = w.load(values.rows(J));
      w.compute(kernel::Zero{}, X_ij);
      w.compute(kernel::Gemm{false, true}, X_ij, dO_i, V_j);
      w.compute(kernel::AddRowDots{}, x_i, X_ij, weights);
      w.compute(kernel::Gemm{}, LdO_i, weights, V_j);
    }
  });
  w.compute(kernel::RowDotsAndRest{}, D_i, LdO_i, w_i, dO_i, w.stream(x.O.rows(I)));  // LdO -= w o O
  w.compute(kernel::SubtractScaledRows{}, x_i, w_i, D_i);                             // x -= w (2 D - dlse)
  subtract_lse_gradient(w, x, D_i, I);
  w.compute(kernel::SubtractScaledRows{}, x_i, w_i, D_i);
  w.store(LdO_i, x.LdO.rows(I));
  w.store(D_i, x.D.rows(I));
  w.store(w_i, x.Hm.rows(I));
  w.store(x_i, x.Xm.rows(I));
  if (s.lse_gradient) w.store(w_i, x.Ldlse.rows(I));
}

}  // namespace redblue::schedule
