#pragma once
#include "redblue/schedules/passes/key_pass.hpp"
#include "redblue/schedules/sparse/gradients.hpp"

namespace redblue::schedule {

/// sE4, above M = d^2 / 2 under a pattern: a pass over blocks of keys forms dK and dV with dS, which goes through slow
/// memory once for dQ = dS K.
///   reads 2 n_q d_v + n_k (d + d_v) + B(Bc) (d + d_v + 2) + SP(d)    writes n_q + nnz + n_q d + n_k (d + d_v)
///   footprint the largest of 3, the largest 2 |J| (d + d_v) + 2 g_J + d + 1, and that of SpMM (parts/sparse.hpp)
/// B(Bc) and g_J as in backward/sparse_values.hpp. A softcap takes one more of the g_J words.
struct SparseSpilledBackward : Defaults {
  using Operands = BackwardOperands;
  static constexpr std::string_view name = "sparse_spilled";
  static constexpr std::string_view label = "sE4";
  static constexpr std::string_view idea = "keeping keys resident, spilling dS of the pairs";
  static constexpr Traits traits{
      .masks = true, .patterns = true, .lists_pairs = true, .modifiers = true, .lse_gradient = true, .products = 5};
  static constexpr std::array workspace{SlowArray::D, SlowArray::P};

  struct Tiling {
    index_t Bc = 1;  ///< keys and values resident at a time
    GemmTiling dQ;
    void tile_sizes(const auto& tile_size) {
      tile_size({"Bc", &Sizes::n_k}, Bc);
      tile_size({"dQ.b1", &Sizes::n_q}, dQ.b1);
      tile_size({"dQ.b2", &Sizes::d}, dQ.b2);
    }
  };

  static Tiling smallest(const Sizes& x, const Multiples& m) {
    return {smallest_tile(x.n_k, m.key), {smallest_tile(x.n_q, m.query), smallest_tile(x.d, m.feature)}};
  }
  static std::optional<Tiling> choose_tiling(const Sizes& x, const Limits& limits) {
    const Multiples& s = limits.multiple;
    const auto words = [&](index_t b, index_t g) { return pass_words(x, b, g); };
    const index_t Bc = PairBlocks(x, BlocksOf::keys, limits, arriving(x), words).choose();
    const auto dQ = sparse_query_gradients_cost(x).choose(x, limits, s.query, s.feature);
    if (Bc == 0 || !dQ || !limits.fit(output_dots_phase(x))) return std::nullopt;
    return Tiling{Bc, *dQ};
  }

  /// The footprint of a block of b keys with a query that has g pairs in it.
  static Words pass_words(const Sizes& x, index_t b, index_t g) {
    return x.tile(SlowArray::K, b, x.d) + x.tile(SlowArray::V, b, x.d_v) + x.tile(SlowArray::dK, b, x.d) +
           x.tile(SlowArray::dV, b, x.d_v) + (x.modifiers.softcap > 0 ? 3 : 2) * x.tile(SlowArray::P, g, 1) +
           bias_tiles(x, b) + slopes_tile(x) + arriving(x);
  }
  /// A query and a word that passes.
  static Words arriving(const Sizes& x) {
    return x.tile(SlowArray::Q, 1, x.d) + std::max({x.word(SlowArray::lse), x.word(SlowArray::dO), x.word(SlowArray::D),
                                                    passing_bias_of_pairs(x), passing_bias_gradient(x)});
  }
  static std::array<Phase, 3> phases(const Sizes& x, const Tiling& t) {
    const Words pass =
        pair_blocks_footprint(x, BlocksOf::keys, t.Bc, [&](index_t b, index_t g) { return pass_words(x, b, g); });
    return {output_dots_phase(x), Phase{pass, arriving(x)}, sparse_query_gradients_cost(x).phase(x, t.dQ)};
  }
  static Words footprint(const Sizes& x, const Tiling& t) { return footprint_of(phases(x, t)); }
  static Words prefetch(const Sizes& x, const Tiling& t) { return prefetch_of(phases(x, t)); }
  static Io io(const Sizes& x, const Tiling& t) {
    const Words visits = x.pairs().visited_rows(std::min(t.Bc, x.n_k));
    const Words blocks = x.pairs().key_blocks(std::min(t.Bc, x.n_k)).count();
    return output_dots_io(x) + sparse_query_gradients_cost(x).io(t.dQ) + modifiers_io(x, x.nnz(), x.n_k, blocks) +
           bias_gradient_io(x, x.nnz(), x.n_k) +
           Io().read(SlowArray::K, Words(x.n_k) * x.d)
               .read(SlowArray::V, Words(x.n_k) * x.d_v)
               .read(SlowArray::Q, visits * x.d)
               .read(SlowArray::lse, visits)
               .read(SlowArray::dO, visits * x.d_v)
               .read(SlowArray::D, visits)
               .write(SlowArray::P, x.nnz())
               .write(SlowArray::dK, Words(x.n_k) * x.d)
               .write(SlowArray::dV, Words(x.n_k) * x.d_v);
  }
  static Words macs(const Sizes& x, const Tiling&) { return x.nnz() * (Words(3) * x.d + Words(2) * x.d_v); }
  /// dS is written once, and read once at least.
  static Io least_io(const Sizes& x) {
    const Words pairs = visible_pairs(x);
    return Io().read(SlowArray::P, pairs).write(SlowArray::P, pairs);
  }
  static IndexWords index(const Sizes& x, const Tiling& t) {
    return index_of_phases(
        {key_pass_index(x, t.Bc).words(), spmm_index(x, sparse_query_gradients_cost(x), t.dQ, false)});
  }

  template <Machine M>
  static void run(M& m, const BackwardOperands& x, const Tiling& t) {
    const Sizes& s = x.shape;
    output_dots(m, x, [&](const Sizes& sizes) { return footprint(sizes, t); });  // D = rowsum(dO o O)
    const Blocks blocks = s.pairs().key_blocks(std::min(t.Bc, s.n_k));
    m.each(blocks.count(), [&](auto& w, index_t b) {
      const Range J = blocks(b);
      using Worker = std::remove_reference_t<decltype(w)>;
      const KeyTiles<Worker> j(w, x, J, Layout::row_major);
      for_rows_of(x, J, [&](index_t i, const Block& words) {
        const auto Q_i = w.load(x.Q.rows({i, i + 1})), dS_ij = w.alloc(words);
        score_gradients(w, x, i, Q_i, j, dS_ij);
        w.store(dS_ij, words);
        w.compute(kernel::PairAccumulate{{s.mask, i, J.begin}, 0, J.size(), true}, j.dK, dS_ij, Q_i);  // dK += dS^T Q
      });
      j.store(w, x);
    });
    spmm(m, s, x.dQ, x.P, false, x.K, t.dQ);  // dQ = dS K
  }

  /// dS of query i and a block of keys, and what it adds to dV.
  template <class W, class Tile>
  static void score_gradients(W& w, const BackwardOperands& x, index_t i, const Tile& Q_i, const KeyTiles<W>& j,
                              const Tile& dS_ij) {
    const Range row{i, i + 1};
    const Place place{x.shape.mask, i, j.keys.begin};
    const kernel::PairBox box = box_of_row(x.shape, i, j.keys);
    const bool capped = x.shape.modifiers.softcap > 0;
    const auto P_ij = w.alloc(SlowArray::P, dS_ij.shape()),
               F_ij = w.alloc(SlowArray::P, capped ? dS_ij.shape() : Shape{0, 1});
    pair_weights_of_row(w, x, box, P_ij, j.K, Q_i, F_ij, j.bias, j.slopes.arg());  // P = exp(S - lse)
    w.compute(kernel::Zero{}, dS_ij);
    w.compute(kernel::PairValueGradients{place, drop_of_pairs(x.shape, x.instance())}, dS_ij, j.dV, P_ij, j.V,
              w.stream(x.dO.rows(row)));
    pair_score_gradients(w, x, box, dS_ij, P_ij, j.dBias);
    if (capped) w.compute(kernel::Multiply{}, dS_ij, F_ij);
  }
};

}  // namespace redblue::schedule
