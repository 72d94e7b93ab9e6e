#pragma once
#include "redblue/schedules/passes/key_pass.hpp"
#include "redblue/schedules/second/output_sweep.hpp"

/// The sweeps of double backward that form G, the gradient of scores, from what the first one leaves: LQ with queries
/// resident, LK and LV with keys resident (theory notes 2k).
namespace redblue::schedule {

/// Tiles of pairs: P, H, which becomes scale G, X for dP and scale dS, Y for E and P o (H - w), and C, which becomes
/// scale G without the softcap where the gradient of a bias needs it.
struct SecondTileArgs {
  Arg P, H, X, Y, C;
};
template <class W>
struct SecondTiles {
  Tile<W> P, H, X, Y, C;

  SecondTiles(W& w, const Sizes& s, Shape tile)
      : P(w, SlowArray::P, tile, Layout::padded_rows),
        H(w, SlowArray::P, tile, Layout::padded_rows),
        X(w, SlowArray::P, tile, Layout::padded_rows),
        Y(w, SlowArray::P, tile, Layout::padded_rows),
        C(w, SlowArray::P, softcapped_tile(s, tile), Layout::row_major) {}
  SecondTileArgs part(Shape s) const {
    return {P.part(s), H.part(s), X.part(s), Y.part(s), C.part(C.shape().words() > 0 ? s : Shape{0, 0})};
  }
};

/// What gradients of scores are made of: what the first sweep leaves of some queries, and the direction of a bias.
struct SecondArgs {
  Arg dO, V, gV, D, w, x, gBias;
};
/// H <- scale G, X <- scale dS, Y <- P o (H - w); `apart`: C <- scale G without the softcap.
template <class W>
void form_second_gradients(W& w, const SecondOperands& x, const Place& place, const SecondTileArgs& t,
                           const SecondArgs& i, bool apart = false) {
  w.compute(
      kernel::SecondGradients{{x.scale, x.shape.modifiers.softcap, apart}, drop(x.shape, x.instance(), place), place},
      t.H, t.X, t.Y, t.C, t.P, i.dO, i.V, i.gV, i.D, i.w, i.x, i.gBias);
}

inline Io query_sweep_io(const Sizes& x, index_t Br) {
  Io io = moving_rows_io(x, kSecondMoving, Br).read(SlowArray::dO, Words(x.n_q) * x.d_v);
  for (const SlowArray a : {SlowArray::D, SlowArray::Hm, SlowArray::Xm}) io.read(a, x.n_q);
  return io.write(SlowArray::LQ, Words(x.n_q) * x.d);
}
/// The tiles of a block of queries, K_j and gK_j, and one streamed word.
inline Phase query_sweep_phase(const Sizes& x, QueryPass t) {
  const Words word = passing_moving_bias(x, SlowArray::gBias, std::max(x.word(SlowArray::V), x.word(SlowArray::gV)));
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
  const auto Q_i = w.load(x.Q.rows(I), Layout::read_only), gQ_i = w.load(x.gQ.rows(I), Layout::read_only),
             dO_i = w.load(x.dO.rows(I), Layout::read_only), lse_i = w.load(x.lse.rows(I)), D_i = w.load(x.D.rows(I)),
             w_i = w.load(x.Hm.rows(I)), x_i = w.load(x.Xm.rows(I)), LQ_i = w.alloc(x.LQ.rows(I));
  const Slopes slopes(w, x);
  const SecondTiles tiles(w, s, {I.size(), std::min(bc, s.n_k)});
  w.compute(kernel::Zero{}, LQ_i);
  for_steps(w, s.pairs().runs_of_keys(I), bc, [&](Range J, index_t) {
    const Place place = s.place(I.begin, J.begin);
    const SecondTileArgs ij = tiles.part({I.size(), J.size()});
    const auto K_j = w.load(x.K.rows(J), Layout::read_only), gK_j = w.load(x.gK.rows(J), Layout::read_only);
    form_tangents(w, s, x.scale, place, {ij.P, ij.H, ij.C},
                  {Q_i.arg(), gQ_i.arg(), K_j.arg(), gK_j.arg(), lse_i.arg(), x.bias_of(I, J), slopes.arg()});
    form_second_gradients(w, x, place, ij,
                          {dO_i.arg(), Arg::streaming(x.V.rows(J)), Arg::streaming(x.gV.rows(J)), D_i.arg(), w_i.arg(),
                           x_i.arg(), Arg::streaming(x.of_scores(x.gBias, I, J))});
    w.compute(kernel::Gemm{}, LQ_i, ij.H, K_j);
    w.compute(kernel::Gemm{}, LQ_i, ij.X, gK_j);
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
  return modifiers_io(x, v.pairs, x.n_k, v.blocks) + bias_direction_io(x, SlowArray::gBias, v.pairs, x.n_k) +
         bias_gradient_io(x, v.pairs, x.n_k, v.queries) + second_keys_io(x, x.n_k) + second_queries_io(x, v.queries) +
         Io().write(SlowArray::LK, Words(x.n_k) * x.d).write(SlowArray::LV, Words(x.n_k) * x.d_v);
}
/// The row of a bias that all queries share, with its direction and its gradient.
inline Words shared_rows_of_bias(const Sizes& x, Words keys) {
  const bool moves = x.modifiers.bias == Modifiers::Bias::of_keys && x.modifiers.bias_moves;
  return shared_row_of_bias(x, keys) + bias_gradient_tile(x, keys) +
         (moves ? x.tile(SlowArray::gBias, 1, keys) : Words(0));
}
/// A word of a bias, its direction or its gradient that passes by a block of keys.
inline Words passing_bias_of_second(const Sizes& x) {
  const bool moves = x.modifiers.bias == Modifiers::Bias::of_pairs && x.modifiers.bias_moves;
  return std::max({passing_bias_of_pairs(x), passing_bias_gradient(x), moves ? x.word(SlowArray::gBias) : Words(0)});
}
/// The tiles of a block of keys, those of the arriving queries, and a word of a bias, or `also(rows)` words of the
/// schedule's own work on queries. Second buffers: the next queries.
template <class Also>
struct KeySweepWords {
  const Sizes& x;
  index_t br;
  Also also;
  KeySweepWords(const Sizes& x, KeyPass t, const Also& also) : x(x), br(std::min(t.br, x.n_q)), also(also) {}
  Words arriving(index_t rows) const {
    return x.tile(SlowArray::Q, rows, x.d) + x.tile(SlowArray::gQ, rows, x.d) + x.tile(SlowArray::dO, rows, x.d_v) +
           x.tile(SlowArray::lse, rows, 1) + x.tile(SlowArray::D, rows, 1) + x.tile(SlowArray::Hm, rows, 1) +
           x.tile(SlowArray::Xm, rows, 1) + std::max(passing_bias_of_second(x), also(rows));
  }
  /// The footprint of a block of keys that rho queries see one after another.
  Words block(index_t keys, index_t rho) const {
    Words words = pair_tiles(x, 4, std::min(br, rho), keys) + shared_rows_of_bias(x, keys) + slopes_tile(x) +
                  arriving(std::min(br, rho));
    for (const SlowArray a : {SlowArray::K, SlowArray::gK, SlowArray::LK}) words += x.tile(a, keys, x.d);
    for (const SlowArray a : {SlowArray::V, SlowArray::gV, SlowArray::LV}) words += x.tile(a, keys, x.d_v);
    return words;
  }
  Words prefetch() const { return arriving(br); }
};
template <class Also>
Phase key_sweep_phase(const Sizes& x, KeyPass t, const Also& also) {
  const KeySweepWords words(x, t, also);
  return {key_blocks_footprint(x, t.Bc, [&](index_t keys, index_t rho) { return words.block(keys, rho); }),
          words.prefetch()};
}
/// LQ of queries that pass, which is resident while it is added to.
inline auto room_for_lq(const Sizes& x) {
  return [&x](index_t rows) { return x.tile(SlowArray::LQ, rows, x.d); };
}
/// What a query moves that passes a block of keys which adds to its LQ.
inline Io second_queries_and_lq_io(const Sizes& x) {
  return second_queries_io(x, 1) + Io().read(SlowArray::LQ, x.d).write(SlowArray::LQ, x.d);
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
  constexpr Layout kKeys = Layout::key_panels;
  const auto K_j = w.load(x.K.rows(J), kKeys), gK_j = w.load(x.gK.rows(J), kKeys), V_j = w.load(x.V.rows(J), kKeys),
             gV_j = w.load(x.gV.rows(J), kKeys), LK_j = w.alloc(x.LK.rows(J)), LV_j = w.alloc(x.LV.rows(J)),
             bias = w.load(x.shared_bias(J)), gBias = w.load(x.shared_row(x.gBias, J)),
             LBias = w.load(x.shared_gradient(x.LBias, J));
  const Slopes slopes(w, x);
  const SecondTiles tiles(w, s, {std::min(br, seeing.longest()), J.size()});
  for (const Arg& sum : {LK_j.arg(), LV_j.arg()}) w.compute(kernel::Zero{}, sum);
  for_steps(w, seeing, br, [&](Range I, index_t) {
    const Place place = s.place(I.begin, J.begin);
    const SecondTileArgs ij = tiles.part({I.size(), J.size()});
    const auto Q_i = w.load(x.Q.rows(I), Layout::read_only), gQ_i = w.load(x.gQ.rows(I), Layout::read_only),
               dO_i = w.load(x.dO.rows(I), Layout::read_only), lse_i = w.load(x.lse.rows(I)), D_i = w.load(x.D.rows(I)),
               w_i = w.load(x.Hm.rows(I)), x_i = w.load(x.Xm.rows(I));
    const bool shared = x.bias_of_keys;
    form_tangents(w, s, x.scale, place, {ij.P, ij.H, ij.C},
                  {Q_i.arg(), gQ_i.arg(), K_j.arg(), gK_j.arg(), lse_i.arg(), shared ? bias.arg() : x.bias_of(I, J),
                   slopes.arg()});
    form_second_gradients(w, x, place, ij,
                          {dO_i.arg(), V_j.arg(), gV_j.arg(), D_i.arg(), w_i.arg(), x_i.arg(),
                           shared ? gBias.arg() : Arg::streaming(x.of_scores(x.gBias, I, J))},
                          s.modifiers.derivative_apart());
    if (s.modifiers.bias_gradient)
      add_bias_gradient(w, x, x.LBias, I, J, LBias.arg(), s.modifiers.derivative_apart() ? ij.C : ij.H);
    drop_weights(w, x, place, ij.Y);  // LV += (P o (H - w))^T dO, P without what was dropped
    w.compute(kernel::Gemm{true, false}, LV_j, ij.Y, dO_i);
    w.compute(kernel::Gemm{true, false}, LK_j, ij.H, Q_i);
    w.compute(kernel::Gemm{true, false}, LK_j, ij.X, gQ_i);
    also(w, I, ij.H, ij.X, K_j, gK_j);
  });
  w.store(LK_j, x.LK.rows(J));
  w.store(LV_j, x.LV.rows(J));
  if (x.keeps_bias_gradient) w.store(LBias, x.shared_gradient(x.LBias, J));
}

/// LQ += G K_j + dS gK_j for the queries I. for_parts(f) calls f(part of I, first, block) where the block has LQ of
/// that part; first: it has had no key yet.
template <class W, class KeyTile, class ForParts>
void add_to_lq(W& w, const SecondOperands& x, Range I, const Arg& G, const Arg& dS, const KeyTile& K_j,
               const KeyTile& gK_j, const ForParts& for_parts) {
  const auto LQ_i = w.alloc(x.LQ.rows(I));
  const auto of = [&](Range part) { return LQ_i.rows(part.begin - I.begin, part.size()); };
  for_parts([&](Range part, bool first, const Block& block) {
    if (first)
      w.compute(kernel::Zero{}, of(part));
    else
      w.load_into(of(part), block);
  });
  w.compute(kernel::Gemm{}, LQ_i, G, K_j);
  w.compute(kernel::Gemm{}, LQ_i, dS, gK_j);
  for_parts([&](Range part, bool, const Block& block) { w.store(of(part), block); });
}

}  // namespace redblue::schedule
