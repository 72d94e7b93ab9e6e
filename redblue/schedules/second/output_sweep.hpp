#pragma once
#include "redblue/schedules/second/moving_pass.hpp"

/// The first sweep of double backward: LdO, the tangent of O along (gQ, gK, gV), and D, w and x, which the gradients of
/// scores need. Theory notes 2k form x from dP and E. It is the row sums of P o (dP o (H - w) + E), and these are those
/// of dO o LdO: so this sweep forms neither dP nor E, and dO passes once, at its end.
namespace redblue::schedule {

inline constexpr MovingArrays kSecondMoving{SlowArray::gQ,     SlowArray::gK,  SlowArray::gV, SlowArray::gBias,
                                            SlowArray::gSinks, SlowArray::LdO, SlowArray::Hm, true};

/// Keys and values, and the directions in which they move.
inline Io second_keys_io(const Sizes& x, Words visits) { return moving_keys_io(x, kSecondMoving, visits); }
inline Io output_sweep_io(const Sizes& x, index_t Br) {
  Io io = moving_rows_io(x, kSecondMoving, Br) + begin_with_sinks_io(x, kSecondMoving, Br) + lse_gradient_io(x, x.n_q);
  for (const SlowArray a : {SlowArray::dO, SlowArray::O}) io.read(a, Words(x.n_q) * x.d_v);
  for (const SlowArray a : {SlowArray::D, SlowArray::Hm, SlowArray::Xm}) io.write(a, x.n_q);
  return io.write(SlowArray::LdO, Words(x.n_q) * x.d_v).write(SlowArray::Ldlse, x.lse_gradient ? x.n_q : 0);
}
/// D and x are there when all keys have passed; a word of dO and of O, or of dlse, passes then.
inline Phase output_sweep_phase(const Sizes& x, QueryPass t) {
  return moving_phase(
      x, kSecondMoving, t, [&](index_t rows) { return x.tile(SlowArray::D, rows, 1) + x.tile(SlowArray::Xm, rows, 1); },
      std::max(x.word(SlowArray::dO) + x.word(SlowArray::O), passing_lse_gradient(x)));
}

/// LdO of the queries I: reads dO and O once, writes D, w and x.
template <class W>
void output_sweep(W& w, const SecondOperands& x, Range I, index_t bc) {
  const Motion motion{x.gQ, x.gK, x.gV, x.gBias, x.gSinks, x.LdO, x.Hm};
  moving_pass(w, x, motion, kSecondMoving.normalised, I, bc, [&](const auto& LdO_i, const auto& w_i) {
    const auto D_i = w.alloc(x.D.rows(I)), x_i = w.alloc(x.Xm.rows(I));
    w.compute(kernel::RowDotsAndRest{}, D_i, x_i, LdO_i, w_i, w.stream(x.dO.rows(I)), w.stream(x.O.rows(I)));
    subtract_lse_gradient(w, x, D_i, I);
    w.store(LdO_i, x.LdO.rows(I));
    w.store(D_i, x.D.rows(I));
    w.store(w_i, x.Hm.rows(I));
    w.store(x_i, x.Xm.rows(I));
    if (x.shape.lse_gradient) w.store(w_i, x.Ldlse.rows(I));
  });
}

}  // namespace redblue::schedule
