#pragma once
#include "redblue/schedules/passes/key_pass.hpp"
#include "redblue/schedules/second/output_sweep.hpp"

/// The sweeps of double backward that form G, the gradient of scores, from what the first one leaves: LQ with queries
/// resident, LK and LV with keys resident (theory notes 2k).
namespace redblue::schedule {

/// What the first sweep leaves of some queries.
struct SecondStatistics {
  Arg D, w, x;
};

/// X <- dP = dO V^T and Y <- E = dO gV^T, without what dropout takes; then H <- scale G, and X <- scale dS.
template <class W>
void form_second_gradients(W& w, const SecondOperands& x, const PairArgs& t, const Arg& X, const Arg& Y, const Arg& dO,
                           const Arg& V, const Arg& gV, const SecondStatistics& of) {
  const double softcap = x.shape.modifiers.softcap;
  for (const auto& [tile, values] : {std::pair{X, V}, {Y, gV}}) {
    w.compute(kernel::Zero{}, tile);
    w.compute(kernel::Gemm{false, true}, tile, dO, values);
    drop_weights(w, x, t.place, tile);
  }
  w.compute(kernel::SecondGradient{x.scale, softcap}, t.H, t.P, X, Y, of.D, of.w, of.x, t.C);
  w.compute(kernel::ScoreGradient{x.shape.score, x.scale, t.place}, X, t.P, of.D);
  if (softcap > 0) w.compute(kernel::ThroughSoftcap{softcap}, X, t.C);
}

inline Io query_sweep_io(const Sizes& x, index_t Br) {
  Io io = second_rows_io(x, Br);
  for (const SlowArray a : {SlowArray::D, SlowArray::Hm, SlowArray::Xm}) io.read(a, x.n_q);
  return io.write(SlowArray::LQ, Words(x.n_q) * x.d);
}
/// The tiles of a block of queries, K_j and gK_j, and one streamed word.
inline Phase query_sweep_phase(const Sizes& x, QueryPass t) {
  const Words word = passing_bias(x, std::max(x.word(SlowArray::V), x.word(SlowArray::gV)));
  const auto arriving = [&](index_t keys) {
    return x.tile(SlowArray::K, keys, x.d) + x.tile(SlowArray::gK, keys, x.d) + word;
  };
  const Words block = query_blocks_footprint(x, t.Br, [&](index_t rows, index_t kappa) {
    return x.tile(SlowArray::Q, rows, x.d) + x.tile(SlowArray::gQ, rows, x.d) + x.tile(SlowArray::dO, rows, x.d_v) +
           x.tile(SlowArray::LQ, rows, x.d) + x.tile(SlowArray::lse, rows, 1) + x.tile(SlowArray::D, rows, 1) +
           x.tile(SlowArray::Hm, rows, 1) + x.tile(SlowArray::Xm, rows, 1) +
           pair_tiles(x, 4, rows, std::min(t.bc, x.n_k)) + slopes_tile(x) + arriving(std::min(t.bc, kappa));
  });
  return {block, arriving(std::min(t.bc, x.n_k))};
}

/// LQ of the queries I.
template <class W>
void query_sweep(W& w, const SecondOperands& x, Range I, index_t bc) {
  const Sizes& s = x.shape;
  const auto Q_i = w.load(x.Q.rows(I)), gQ_i = w.load(x.gQ.rows(I)), dO_i = w.load(x.dO.rows(I)),
             lse_i = w.load(x.lse.rows(I)), D_i = w.load(x.D.rows(I)), w_i = w.load(x.Hm.rows(I)),
             x_i = w.load(x.Xm.rows(I)), LQ_i = w.alloc(x.LQ.rows(I));
  const Slopes slopes(w, x);
  const Shape tile{I.size(), std::min(bc, s.n_k)};
  const auto P = w.alloc(SlowArray::P, tile), H = w.alloc(SlowArray::P, tile), X = w.alloc(SlowArray::P, tile),
             Y = w.alloc(SlowArray::P, tile), C = w.alloc(SlowArray::P, softcapped_tile(s, tile));
  w.compute(kernel::Zero{}, LQ_i);
  for_steps(s.pairs().runs_of_keys(I), bc, [&](Range J, index_t) {
    const PairArgs ij{s.place(I.begin, J.begin), P.cols(J.size()), H.cols(J.size()),
                      C.cols(C.shape().cols > 0 ? J.size() : 0)};
    const Arg X_ij = X.cols(J.size());
    const auto K_j = w.load(x.K.rows(J)), gK_j = w.load(x.gK.rows(J));
    form_tangents(w, s, x.scale, ij,
                  {Q_i.arg(), gQ_i.arg(), K_j.arg(), gK_j.arg(), lse_i.arg(), x.bias_of(I, J), slopes.arg()});
    form_second_gradients(w, x, ij, X_ij, Y.cols(J.size()), dO_i.arg(), Arg::streaming(x.V.rows(J)),
                          Arg::streaming(x.gV.rows(J)), {D_i.arg(), w_i.arg(), x_i.arg()});
    w.compute(kernel::Gemm{}, LQ_i, ij.H, K_j);
    w.compute(kernel::Gemm{}, LQ_i, X_ij, gK_j);
  });
  w.store(LQ_i, x.LQ.rows(I));
}

/// What a block of keys reads of queries that see it.
inline Io second_queries_io(const Sizes& x, Words visits) {
  Io io = Io().read(SlowArray::Q, visits * x.d).read(SlowArray::gQ, visits * x.d).read(SlowArray::dO, visits * x.d_v);
  for (const SlowArray a : {SlowArray::lse, SlowArray::D, SlowArray::Hm, SlowArray::Xm}) io.read(a, visits);
  return io;
}
inline Io key_sweep_io(const Sizes& x, const KeyVisits& v) {
  return modifiers_io(x, v.pairs, x.n_k, v.blocks) + second_keys_io(x, x.n_k) + second_queries_io(x, v.queries) +
         Io().write(SlowArray::LK, Words(x.n_k) * x.d).write(SlowArray::LV, Words(x.n_k) * x.d_v);
}
/// The tiles of a block of keys, those of the arriving queries, and a word of a bias, or `also(rows)` words of the
/// schedule's own work on queries.
template <class Also>
Phase key_sweep_phase(const Sizes& x, KeyPass t, const Also& also) {
  const auto arriving = [&](index_t rows) {
    return x.tile(SlowArray::Q, rows, x.d) + x.tile(SlowArray::gQ, rows, x.d) + x.tile(SlowArray::dO, rows, x.d_v) +
           x.tile(SlowArray::lse, rows, 1) + x.tile(SlowArray::D, rows, 1) + x.tile(SlowArray::Hm, rows, 1) +
           x.tile(SlowArray::Xm, rows, 1) + std::max(passing_bias_of_pairs(x), also(rows));
  };
  const Words block = key_blocks_footprint(x, t.Bc, [&](index_t keys, index_t rho) {
    Words words = pair_tiles(x, 4, std::min(t.br, rho), keys) + shared_row_of_bias(x, keys) + slopes_tile(x) +
                  arriving(std::min(t.br, rho));
    for (const SlowArray a : {SlowArray::K, SlowArray::gK, SlowArray::LK}) words += x.tile(a, keys, x.d);
    for (const SlowArray a : {SlowArray::V, SlowArray::gV, SlowArray::LV}) words += x.tile(a, keys, x.d_v);
    return words;
  });
  return {block, arriving(std::min(t.br, x.n_q))};
}
/// The cheapest Bc, where a query that is visited moves these words.
template <class PhaseOf>
std::optional<KeyPass> choose_second_keys(const Sizes& x, const Limits& limits, const PhaseOf& phase, const Io& visit) {
  const index_t br = smallest_tile(x.n_q, limits.multiple.query);
  const index_t Bc = choose_key_block(
      x, limits.multiple.key, [&](index_t b) { return limits.fit(phase(KeyPass{b, br})); },
      prices_with_modifiers(x, limits, limits.price.of(visit), Sinks::none));
  if (Bc == 0) return std::nullopt;
  return KeyPass{Bc, br};
}

/// LK and LV of the keys J. also(w, I, G, dS, K_j, gK_j) is the schedule's own work on the queries I; G and dS have the
/// factor scale.
template <class W, class Also>
void key_sweep(W& w, const SecondOperands& x, Range J, index_t br, const Also& also) {
  const Sizes& s = x.shape;
  const Runs seeing = s.pairs().runs_of_rows(J);
  const auto K_j = w.load(x.K.rows(J)), gK_j = w.load(x.gK.rows(J)), V_j = w.load(x.V.rows(J)),
             gV_j = w.load(x.gV.rows(J)), LK_j = w.alloc(x.LK.rows(J)), LV_j = w.alloc(x.LV.rows(J)),
             bias = w.load(x.shared_bias(J));
  const Slopes slopes(w, x);
  const Shape tile{std::min(br, seeing.longest()), J.size()};
  const auto P = w.alloc(SlowArray::P, tile), H = w.alloc(SlowArray::P, tile), X = w.alloc(SlowArray::P, tile),
             Y = w.alloc(SlowArray::P, tile), C = w.alloc(SlowArray::P, softcapped_tile(s, tile));
  for (const Arg& sum : {LK_j.arg(), LV_j.arg()}) w.compute(kernel::Zero{}, sum);
  for_steps(seeing, br, [&](Range I, index_t) {
    const Shape pairs{I.size(), J.size()};
    const PairArgs ij{s.place(I.begin, J.begin), P.part(pairs), H.part(pairs), C.part(softcapped_tile(s, pairs))};
    const Arg X_ij = X.part(pairs), Y_ij = Y.part(pairs);
    const auto Q_i = w.load(x.Q.rows(I)), gQ_i = w.load(x.gQ.rows(I)), dO_i = w.load(x.dO.rows(I)),
               lse_i = w.load(x.lse.rows(I)), D_i = w.load(x.D.rows(I)), w_i = w.load(x.Hm.rows(I)),
               x_i = w.load(x.Xm.rows(I));
    form_tangents(w, s, x.scale, ij,
                  {Q_i.arg(), gQ_i.arg(), K_j.arg(), gK_j.arg(), lse_i.arg(),
                   x.bias_of_keys ? bias.arg() : x.bias_of(I, J), slopes.arg()});
    w.compute(kernel::Copy{}, Y_ij, ij.H);  // LV += (P o (H - w))^T dO, P without what was dropped
    w.compute(kernel::ScoreGradient{s.score, 1, ij.place}, Y_ij, ij.P, w_i);
    drop_weights(w, x, ij.place, Y_ij);
    w.compute(kernel::Gemm{true, false}, LV_j, Y_ij, dO_i);
    form_second_gradients(w, x, ij, X_ij, Y_ij, dO_i.arg(), V_j.arg(), gV_j.arg(), {D_i.arg(), w_i.arg(), x_i.arg()});
    w.compute(kernel::Gemm{true, false}, LK_j, ij.H, Q_i);
    w.compute(kernel::Gemm{true, false}, LK_j, X_ij, gQ_i);
    also(w, I, ij.H, X_ij, K_j, gK_j);
  });
  w.store(LK_j, x.LK.rows(J));
  w.store(LV_j, x.LV.rows(J));
}

}  // namespace redblue::schedule
