#pragma once
#include "redblue/schedules/operands/backward.hpp"
#include "redblue/schedules/parts/visible.hpp"

/// Gradients with a block of keys and values resident and queries passing: dK_j = SUM_i dS_ij^T Q_i and
/// dV_j = SUM_i P_ij^T dO_i. Every schedule whose outer loop goes over keys adds its own beginning and end to this
/// text.
namespace redblue::schedule {

struct KeyPass {
  index_t Bc = 1;  ///< keys and values resident at a time
  index_t br = 1;  ///< queries per step
  void tile_sizes(const auto& tile_size) {
    tile_size({"Bc", &Sizes::n_k}, Bc);
    tile_size({"br", &Sizes::n_q}, br);
  }
};

/// One row of the bias, and of its gradient, for the keys of a block.
inline Words bias_tiles(const Sizes& x, Words keys) {
  return shared_row_of_bias(x, keys) + bias_gradient_tile(x, keys);
}
/// The tiles of a block of keys, the arriving queries with their statistics, and one streamed word: of dO, or of the
/// schedule's own work, which takes `also`. Second buffers: the next queries and the next streamed word.
struct KeyPassWords {
  const Sizes& x;
  index_t br, tiles;
  Words word;
  KeyPassWords(const Sizes& x, KeyPass t, Words also)
      : x(x),
        br(std::min(t.br, x.n_q)),
        tiles(TilesOfWeights(x.modifiers).count()),
        word(std::max({x.word(SlowArray::dO), passing_bias_of_pairs(x), passing_bias_gradient(x), also})) {}
  Words arriving(index_t rows) const {
    return x.tile(SlowArray::Q, rows, x.d) + x.statistic(SlowArray::lse, rows) + x.statistic(SlowArray::D, rows);
  }
  /// The footprint of a block of keys that rho queries see one after another.
  Words block(index_t keys, index_t rho) const {
    return x.tile(SlowArray::K, keys, x.d) + x.tile(SlowArray::V, keys, x.d_v) + x.tile(SlowArray::dK, keys, x.d) +
           x.tile(SlowArray::dV, keys, x.d_v) + tiles * x.tile(SlowArray::P, std::min(br, rho), keys) +
           bias_tiles(x, keys) + slopes_tile(x) + arriving(std::min(br, rho)) + word;
  }
  Words prefetch() const { return arriving(br) + word; }
};
inline Phase key_pass_phase(const Sizes& x, KeyPass t, Words also = 0) {
  const KeyPassWords words(x, t, also);
  return {key_blocks_footprint(x, t.Bc, [&](index_t keys, index_t rho) { return words.block(keys, rho); }),
          words.prefetch()};
}
/// What blocks of keys meet: the queries that see them, the pairs in their envelopes, and their number.
struct KeyVisits {
  Words queries, pairs, blocks;
  void add(const Sizes& x, index_t Bc) {
    queries += x.pairs().visited_rows(Bc);
    pairs += x.pairs().pairs_of_keys(Bc);
    blocks += x.pairs().key_blocks(Bc).count();
  }
};
inline KeyVisits key_visits(const Sizes& x, index_t Bc) {
  KeyVisits v;
  v.add(x, Bc);
  return v;
}
/// What blocks of keys read of the queries that see them.
inline Io queries_io(const Sizes& x, Words visits) {
  return Io()
      .read(SlowArray::Q, visits * x.d)
      .read(SlowArray::dO, visits * x.d_v)
      .read(SlowArray::lse, visits * x.statistics())
      .read(SlowArray::D, visits * x.statistics());
}
/// What blocks of keys move where they also add to the gradients of these queries.
inline Io revisited_queries_io(const Sizes& x) {
  return queries_io(x, 1) + Io().read(SlowArray::dQ, x.d).write(SlowArray::dQ, x.d);
}
/// What they read and write together: reads n_k (d + d_v) + B(Bc) (d + d_v + 2), writes n_k (d + d_v).
inline Io key_pass_io(const Sizes& x, const KeyVisits& v) {
  const Words visits = v.queries;
  return modifiers_io(x, v.pairs, x.n_k, v.blocks) + bias_gradient_io(x, v.pairs, x.n_k, visits) +
         given_key_gradients_io(x) +
         Io().read(SlowArray::K, Words(x.n_k) * x.d)
             .read(SlowArray::V, Words(x.n_k) * x.d_v)
             .write(SlowArray::dK, Words(x.n_k) * x.d)
             .write(SlowArray::dV, Words(x.n_k) * x.d_v) +
         queries_io(x, visits);
}

/// The cheapest Bc, where a query that is visited moves these words.
inline std::optional<KeyPass> choose_key_pass(const Sizes& x, const Limits& limits, const Io& visit, Words also = 0) {
  const index_t br = smallest_tile(x.n_q, limits.multiple.query);
  const index_t Bc = choose_key_block(
      x, limits.multiple.key, [&](index_t b) { return limits.fit(key_pass_phase(x, {b, br}, also)); },
      prices_with_modifiers(x, limits, limits.price.of(visit), Sinks::none));
  if (Bc == 0) return std::nullopt;
  return KeyPass{Bc, br};
}

/// Some keys, with their values, gradients and what modifies their scores.
struct KeyArgs {
  Range keys;
  Arg K, V, dK, dV, bias, dBias, slopes;
};
/// A block of keys that stays while queries pass, with its values, their gradients, and what modifies its scores.
template <class W>
struct KeyTiles {
  Range keys;
  Tile<W> K, V, dK, dV, bias, dBias;
  Slopes<W> slopes;
  KeyTiles(W& w, const BackwardOperands& x, Range J, Layout layout = kernel::KeyGradients::K)
      : keys(J),
        K(w.load(x.K.rows(J), layout)),
        V(w.load(x.V.rows(J), layout)),
        dK(begin_gradient(w, x.shape, x.dK.rows(J))),
        dV(begin_gradient(w, x.shape, x.dV.rows(J))),
        bias(w.load(x.shared_bias(J))),
        dBias(w.load(x.shared_gradient(x.dBias, J))),
        slopes(w, x) {
    begin_from_zero(w, x.shape, dK);
    begin_from_zero(w, x.shape, dV);
  }
  KeyArgs args() const { return {keys, K.arg(), V.arg(), dK.arg(), dV.arg(), bias.arg(), dBias.arg(), slopes.arg()}; }
  void store(W& w, const BackwardOperands& x) const {
    w.store(dK, x.dK.rows(keys));
    w.store(dV, x.dV.rows(keys));
    if (x.keeps_bias_gradient) w.store(dBias, x.shared_gradient(x.dBias, keys));
  }
};
/// The weights of queries and keys, and their gradients.
template <class W>
struct PairTiles {
  Tile<W> P, dS, G, F;
  PairTiles(W& w, const Modifiers& m, Shape s)
      : P(w.alloc(SlowArray::P, s, kernel::KeyGradients::P)),
        dS(w.alloc(SlowArray::P, s, kernel::KeyGradients::dS)),
        G(w.alloc(SlowArray::P, TilesOfWeights(m).G ? s : Shape{0, 0}, kernel::KeyGradients::dS)),
        F(w.alloc(SlowArray::P, TilesOfWeights(m).F ? s : Shape{0, 0}, kernel::KeyGradients::dS)) {}
};
/// Some queries, with their statistics.
struct QueryArgs {
  Arg Q, lse, D, dO;
};

/// What the queries I add to the gradients of these keys; those of the next step begin at `next`. Returns dS.
template <class W>
Arg key_step(W& w, const BackwardOperands& x, Range I, index_t next, const QueryArgs& i, const KeyArgs& j,
             const PairTiles<W>& ij) {
  const Sizes& s = x.shape;
  const TilesOfWeights tiles(s.modifiers);
  const Shape pairs{I.size(), j.keys.size()};
  const Arg P_ij = ij.P.part(pairs), dS_ij = ij.dS.part(pairs);
  const Place place = s.place(I.begin, j.keys.begin);
  // P = exp(S - lse); dV += P^T dO; dS = scale P o (dO V^T - D); dK += dS^T Q
  const kernel::KeyGradients step{{x.scale, place}, weights_of_tile(s, x.instance(), place), next - I.begin};
  w.compute(step, P_ij, dS_ij, j.dK, j.dV, i.Q, j.K, j.V, i.lse, i.D, i.dO, ij.G.part(tiles.G ? pairs : Shape{0, 0}),
            ij.F.part(tiles.F ? pairs : Shape{0, 0}), x.bias_of_keys ? j.bias : x.bias_of(I, j.keys), j.slopes);
  if (s.modifiers.bias_gradient) add_bias_gradient(w, x, x.dBias, I, j.keys, j.dBias, tiles.F ? P_ij : dS_ij);
  return dS_ij;
}

/// dK and dV of the keys J, written when all queries that see one have passed. also(w, I, dS_ij, K_j) is the schedule's
/// own work on the queries I.
template <class W, class Also>
void key_pass(W& w, const BackwardOperands& x, Range J, index_t br, const Also& also) {
  const Runs seeing = x.shape.pairs().runs_of_rows(J);
  const KeyTiles<W> j(w, x, J);
  const PairTiles<W> ij(w, x.shape.modifiers, {std::min(br, seeing.longest()), J.size()});
  for_steps(w, seeing, br, [&](Range I, index_t next) {
    const auto lse_i = w.load(x.lse.rows(I)), D_i = w.load(x.D.rows(I));
    const auto Q_i = w.load(x.Q.rows(I), kernel::KeyGradients::Q);
    const QueryArgs i{Q_i.arg(), lse_i.arg(), D_i.arg(), Arg::streaming(x.dO.rows(I))};
    const Arg dS_ij = key_step(w, x, I, next, i, j.args(), ij);
    also(w, I, dS_ij, j.K);
  });
  j.store(w, x);
}

/// dQ += dS K in slow memory for a part of the queries I. `dQ` is the block of this part; first: it has had no key yet.
template <class W, class KeyTile>
void add_query_gradients(W& w, const BackwardOperands& x, const Box& box, Range part, bool first, const Block& dQ,
                         const Arg& dS_ij, const KeyTile& K_j) {
  w.update(kernel::GemmOver{false, false, first, {x.shape.mask, part.begin, box.keys.begin}}, dQ,
           part_of(dS_ij, box, part, box.keys), K_j);
}

}  // namespace redblue::schedule
