#pragma once
#include <span>

#include "redblue/kernels/backward.hpp"
#include "redblue/language/machine.hpp"
#include "redblue/problem/operation.hpp"
#include "redblue/schedules/parts/limits.hpp"
#include "redblue/schedules/parts/modifiers.hpp"

namespace redblue::schedule {

/// The operands of every backward schedule: Q, K, V, the outputs O (n_q x d_v) and lse (n_q) of the forward pass and
/// dO (n_q x d_v) -> dQ, dK, dV, shaped like Q, K, V. dlse (n_q), the gradient of lse, has a column where it is given
/// (Sizes::lse_gradient): D - dlse then stands in place of D. Workspace that only schedules which declare it touch: D
/// (n_q), the row sums of dO o O; P (n_q x n_k), first the probabilities, then dS; Z = K^T V and G = Q^T dO (d x d_v),
/// the states of linear attention; dQg, dQ of one group of keys: a schedule keeps as many copies as its tiling says
/// (schedules/parts/workspace.hpp); P_b and dS_b, P and dS with a column for each query and a word for each key that it
/// sees; dNum (n_q x d_v) and dDen (n_q), the gradients of the numerator and of the denominator of polynomial
/// attention. If the score function has no statistics, O, lse and D have no columns, so that they have no words to
/// read.
struct BackwardOperands : ModifierOperands {
  static constexpr Operation operation = Operation::backward;
  static constexpr std::span<const SlowArray> inputs = facts_of(operation).reads;
  static constexpr std::span<const SlowArray> outputs = facts_of(operation).writes;

  Sizes shape;
  double scale = 1;
  SlowMatrix Q, K, V, O, lse, dO, dlse, dQ, dK, dV, D, P, Z, G, dQg, P_b, dS_b, dBias, dSinks, dNum, dDen;

  [[gnu::noinline]] BackwardOperands(const Sizes& s, double scale, index_t instance = 0)
      : ModifierOperands(s, instance),
        shape(s),
        scale(scale),
        Q{SlowArray::Q, {s.n_q, s.d}, instance, s.row0},
        K{SlowArray::K, {s.n_k, s.d}, instance, s.key0},
        V{SlowArray::V, {s.n_k, s.d_v}, instance, s.key0},
        O{SlowArray::O, {s.n_q, s.d_v * s.statistics()}, instance, s.row0},
        lse{SlowArray::lse, {s.n_q, s.statistics()}, instance, s.row0},
        dO{SlowArray::dO, {s.n_q, s.d_v}, instance, s.row0},
        dlse{SlowArray::dlse, {s.n_q, s.lse_gradient ? s.statistics() : 0}, instance, s.row0},
        dQ{SlowArray::dQ, {s.n_q, s.d}, instance, s.row0},
        dK{SlowArray::dK, {s.n_k, s.d}, instance, s.key0},
        dV{SlowArray::dV, {s.n_k, s.d_v}, instance, s.key0},
        D{SlowArray::D, {s.n_q, s.statistics()}, instance, s.row0},
        P(matrix_of_pairs(s, SlowArray::P, instance)),
        Z{SlowArray::Z, {s.d, s.d_v}, instance},
        G{SlowArray::G, {s.d, s.d_v}, instance},
        dQg{SlowArray::dQg, dQ.shape, instance},
        P_b(band_of_pairs(s, SlowArray::P_b, instance)),
        dS_b(band_of_pairs(s, SlowArray::dS_b, instance)),
        dBias(gradient_of_bias(s, instance)),
        dSinks{SlowArray::dSinks, {s.modifiers.sinks_gradient ? s.mask.group : 0, 1}, instance},
        dNum{SlowArray::dNum, dO.shape, instance, s.row0},
        dDen{SlowArray::dDen, {s.n_q, 1}, instance, s.row0} {}

  index_t instance() const { return Q.instance; }
  auto all() const {
    return std::array{Q,  K,     V,      bias, slopes, sinks, O, lse, dO,  dlse, dQ,   dK,
                      dV, dBias, dSinks, D,    P,      Z,     G, dQg, P_b, dS_b, dNum, dDen};
  }
};

/// A gradient that stays resident while its terms are added begins as 0, or as what is given.
template <class W>
Tile<W> begin_gradient(W& w, const Sizes& x, const Block& b) {
  return x.accumulate ? w.load(b) : w.alloc(b);
}
template <class W, class Gradient>
void begin_from_zero(W& w, const Sizes& x, const Gradient& gradient) {
  if (!x.accumulate) w.compute(kernel::Zero{}, gradient);
}
/// What is read of given gradients of queries, and of keys, each word once.
inline Io given_query_gradients_io(const Sizes& x) {
  return x.accumulate ? Io().read(SlowArray::dQ, Words(x.n_q) * x.d) : Io();
}
inline Io given_key_gradients_io(const Sizes& x) {
  if (!x.accumulate) return {};
  return Io().read(SlowArray::dK, Words(x.n_k) * x.d).read(SlowArray::dV, Words(x.n_k) * x.d_v);
}

/// D = rowsum(dO o O), less dlse where it is given, a pass of its own over blocks of rows: dO and O stream side by
/// side.
///   reads 2 n_q d_v   writes n_q   footprint rows + 2
inline Io output_dots_io(const Sizes& x) {
  const Words words = x.row_statistics() * x.d_v;
  return Io().read(SlowArray::dO, words).read(SlowArray::O, words).write(SlowArray::D, x.row_statistics()) +
         lse_gradient_io(x, x.n_q);
}
/// The footprint with one row at a time. Second buffers hold the next word of each stream.
inline Phase output_dots_phase(const Sizes& x) {
  if (x.statistics() == 0) return {0, 0};
  const Words streams = std::max(x.word(SlowArray::dO) + x.word(SlowArray::O), passing_lse_gradient(x));
  return {x.tile(SlowArray::D, 1, 1) + streams, streams};
}

/// The rows at a time: as many as raise the footprint of the schedule neither in words nor in the unit of its sizes, up
/// to a number for which the time of a call no longer matters and there are still blocks for many workers.
template <class Footprint>
[[gnu::noinline]] index_t output_dots_rows(const Sizes& x, const Footprint& footprint) {
  constexpr index_t kRows = 64;
  const auto fitting = [&](const Sizes& s, index_t most) {
    const Words room = footprint(s) - 2 * output_dots_phase(s).prefetch;  // beside two streams and their second buffers
    return std::max<index_t>(1, largest_tile(most, 1, [&](index_t r) { return s.tile(SlowArray::D, r, 1) <= room; }));
  };
  Sizes words = x;
  words.fast = {};
  const index_t rows = fitting(words, std::min(kRows, x.n_q));
  return x.fast == words.fast ? rows : fitting(x, rows);
}

/// footprint(sizes) is that of the whole schedule.
template <class M, class Operands, class Footprint>
void output_dots(M& m, const Operands& x, const Footprint& footprint) {
  if (x.shape.statistics() == 0) return;
  const index_t rows = output_dots_rows(x.shape, footprint);
  m.each(ceil_div(x.shape.n_q, rows), [&](auto& w, index_t i) {
    const Range I{i * rows, std::min((i + 1) * rows, x.shape.n_q)};
    const auto D_i = w.alloc(x.D.rows(I));
    w.compute(kernel::RowDots{}, D_i, w.stream(x.dO.rows(I)), w.stream(x.O.rows(I)));
    subtract_lse_gradient(w, x, D_i, I);
    w.store(D_i, x.D.rows(I));
  });
}

}  // namespace redblue::schedule
