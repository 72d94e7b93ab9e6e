#pragma once
#include "redblue/schedules/sparse/gradients.hpp"

namespace redblue::schedule {

/// sE6, near M = d^2 under a pattern: probabilities of the pairs are written once; a pass over blocks of values forms
/// dP and dV together, each word of dO serving both, and writes dS over P.
///   reads 2 n_q d_v + SD(d) + n_k d_v + B(Bc) (d_v + 1) + nnz + SP(d; t4) + SP(d; t5)     SD, SP: backward/sparse.hpp
///   writes n_q + 2 nnz + n_q d + n_k (d + d_v)
///   footprint the largest of 3, SDDMM, the largest 2 |J| d_v + 2 g_J + 1, and those of both SpMM
/// A row of dBias that all queries share is resident with its keys.
/// B(Bc) = SUM_J |R_J|: the queries that blocks of Bc keys meet; g_J: the most pairs of one of them in the block J.
struct SparseValuesBackward : Defaults {
  using Operands = BackwardOperands;
  static constexpr std::string_view name = "sparse_values";
  static constexpr std::string_view label = "sE6";
  static constexpr std::string_view idea = "materialising probabilities of the pairs, dV beside dS";
  static constexpr Traits traits{.keeps_scores = true,
                                 .masks = true,
                                 .patterns = true,
                                 .lists_pairs = true,
                                 .modifiers = true,
                                 .lse_gradient = true,
                                 .products = 5};
  static constexpr std::array workspace{SlowArray::D, SlowArray::P};

  struct Tiling {
    PairTiling P;
    index_t Bc = 1;  ///< values resident at a time
    GemmTiling dQ, dK;
    void tile_sizes(const auto& tile_size) {
      tile_size({"P.panel", nullptr, 0, 2}, P.panel);
      tile_size({"P.a", &Sizes::n_q}, P.a, P.form() != Panel::keys);
      tile_size({"P.room", nullptr, 2}, P.room, P.form() == Panel::none);
      tile_size({"P.b", &Sizes::n_k}, P.b, P.form() == Panel::keys);
      tile_size({"Bc", &Sizes::n_k}, Bc);
      tile_size({"dQ.b1", &Sizes::n_q}, dQ.b1);
      tile_size({"dQ.b2", &Sizes::d}, dQ.b2);
      tile_size({"dK.b1", &Sizes::n_k}, dK.b1);
      tile_size({"dK.b2", &Sizes::d}, dK.b2);
    }
  };

  static std::optional<std::string_view> unsupported(const Sizes& x) { return one_matrix_of_weights(x); }
  static Tiling smallest(const Sizes& x, const Multiples& m) {
    const index_t q = smallest_tile(x.n_q, m.query), k = smallest_tile(x.n_k, m.key), f = smallest_tile(x.d, m.feature);
    return {{q, 2}, k, {q, f}, {k, f}};
  }
  static std::optional<Tiling> choose_tiling(const Sizes& x, const Limits& limits) {
    const Multiples& s = limits.multiple;
    const auto words = [&](index_t b, index_t g) { return pass_words(x, b, g); };
    const index_t Bc = PairBlocks(x, BlocksOf::keys, limits, word(x), words).choose();
    const auto dQ = sparse_query_gradients_cost(x).choose(x, limits, s.query, s.feature);
    const auto dK = sparse_key_gradients_cost(x).choose(x, limits, s.key, s.feature);
    if (Bc == 0 || !dQ || !dK || !limits.fit(output_dots_phase(x))) return std::nullopt;
    const auto P = pair_weights_cost(x).choose(x, limits);
    if (!P) return std::nullopt;
    return Tiling{*P, Bc, *dQ, *dK};
  }

  /// The footprint of a block of b values with a query that has g pairs in it.
  static Words pass_words(const Sizes& x, index_t b, index_t g) {
    return x.tile(SlowArray::V, b, x.d_v) + x.tile(SlowArray::dV, b, x.d_v) + bias_gradient_tile(x, b) +
           2 * x.tile(SlowArray::P, g, 1) + word(x);
  }
  static Words word(const Sizes& x) {
    return std::max({x.word(SlowArray::dO), x.word(SlowArray::D), passing_bias_gradient(x)});
  }
  static std::array<Phase, 5> phases(const Sizes& x, const Tiling& t) {
    const Words pass =
        pair_blocks_footprint(x, BlocksOf::keys, t.Bc, [&](index_t b, index_t g) { return pass_words(x, b, g); });
    return {output_dots_phase(x), pair_weights_cost(x).phase(x, t.P), Phase{pass, word(x)},
            sparse_query_gradients_cost(x).phase(x, t.dQ), sparse_key_gradients_cost(x).phase(x, t.dK)};
  }
  static Words footprint(const Sizes& x, const Tiling& t) { return footprint_of(phases(x, t)); }
  static Words prefetch(const Sizes& x, const Tiling& t) { return prefetch_of(phases(x, t)); }
  static Io io(const Sizes& x, const Tiling& t) {
    const Words visits = x.pairs().visited_rows(std::min(t.Bc, x.n_k));
    return output_dots_io(x) + pair_weights_io(x, t.P) + sparse_query_gradients_cost(x).io(t.dQ) +
           sparse_key_gradients_cost(x).io(t.dK) + bias_gradient_io(x, x.nnz(), x.n_k) +
           Io().read(SlowArray::V, Words(x.n_k) * x.d_v)
               .read(SlowArray::dO, visits * x.d_v)
               .read(SlowArray::D, visits)
               .read(SlowArray::P, x.nnz())
               .write(SlowArray::P, x.nnz())
               .write(SlowArray::dV, Words(x.n_k) * x.d_v);
  }
  static Words macs(const Sizes& x, const Tiling&) { return x.nnz() * (Words(3) * x.d + Words(2) * x.d_v); }
  /// Weights are written, become dS in place, and are read for dQ and dK.
  static Io least_io(const Sizes& x) {
    const Words pairs = visible_pairs(x);
    return Io().read(SlowArray::P, 3 * pairs).write(SlowArray::P, 2 * pairs);
  }
  static IndexWords index(const Sizes& x, const Tiling& t) {
    return index_of_phases({sddmm_index(x, t.P), key_pass_index(x, t.Bc).words(),
                            spmm_index(x, sparse_query_gradients_cost(x), t.dQ, false),
                            spmm_index(x, sparse_key_gradients_cost(x), t.dK, true)});
  }

  template <Machine M>
  static void run(M& m, const BackwardOperands& x, const Tiling& t) {
    const Sizes& s = x.shape;
    output_dots(m, x, [&](const Sizes& sizes) { return footprint(sizes, t); });  // D = rowsum(dO o O)
    pair_weights(m, x, t.P);                                                     // P = exp(scale Q K^T - lse)
    const Blocks blocks = s.pairs().key_blocks(std::min(t.Bc, s.n_k));
    m.each(blocks.count(), [&](auto& w, index_t j) {
      const Range J = blocks(j);
      const auto V_j = w.load(x.V.rows(J)), dV_j = w.alloc(x.dV.rows(J)),
                 dBias_j = w.load(x.shared_gradient(x.dBias, J));
      w.compute(kernel::Zero{}, dV_j);
      for_rows_of(x, J, [&](index_t i, const Block& P_block) {
        const auto P_ij = w.load(P_block), dP = w.alloc(P_block);
        const kernel::PairValueGradients gradients{{s.mask, i, J.begin}, drop_of_pairs(s, x.instance())};
        w.compute(kernel::Zero{}, dP);
        w.compute(gradients, dP, dV_j, P_ij, V_j, w.stream(x.dO.rows({i, i + 1})));
        pair_score_gradients(w, x, box_of_row(s, i, J), dP, P_ij, dBias_j);  // dS = scale P o (dP - D)
        w.store(dP, P_block);
      });
      w.store(dV_j, x.dV.rows(J));
      if (x.keeps_bias_gradient) w.store(dBias_j, x.shared_gradient(x.dBias, J));
    });
    spmm(m, s, x.dQ, x.P, false, x.K, t.dQ);  // dQ = dS K
    spmm(m, s, x.dK, x.P, true, x.Q, t.dK);   // dK = dS^T Q
  }
};

}  // namespace redblue::schedule
