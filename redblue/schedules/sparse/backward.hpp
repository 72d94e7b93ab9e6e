#pragma once
#include "redblue/schedules/sparse/gradients.hpp"

namespace redblue::schedule {

/// sE5, the small cache under a pattern: probabilities and dS of the pairs go through slow memory once; two SDDMM and
/// three SpMM.
///   reads 2 n_q d_v + SD(d) + SD(d_v) + nnz + SP(d_v; t3) + SP(d; t4) + SP(d; t5)
///         SD(w): tiles SUM ((w + 1) r + w c), panels of rows (w + 1) n_q + w A(a), of keys w n_k + (w + 1) B(b)
///         SP: parts/sparse.hpp
///   writes n_q + 2 nnz + n_q d + n_k (d + d_v)   footprint the largest of 3 and those of the five phases
struct SparseBackward : Defaults {
  using Operands = BackwardOperands;
  static constexpr std::string_view name = "sparse";
  static constexpr std::string_view label = "sE5";
  static constexpr std::string_view idea = "materialising probabilities of the pairs, then dS";
  static constexpr Traits traits{.keeps_scores = true,
                                 .masks = true,
                                 .patterns = true,
                                 .lists_pairs = true,
                                 .modifiers = true,
                                 .lse_gradient = true,
                                 .products = 5};
  static constexpr std::array workspace{SlowArray::D, SlowArray::P};

  struct Tiling {
    PairTiling P, dS;
    GemmTiling dV, dQ, dK;
    void tile_sizes(const auto& tile_size) {
      tile_size({"P.panel", nullptr, 0, 2}, P.panel);
      tile_size({"P.a", &Sizes::n_q}, P.a, P.form() != Panel::keys);
      tile_size({"P.room", nullptr, 2}, P.room, P.form() == Panel::none);
      tile_size({"P.b", &Sizes::n_k}, P.b, P.form() == Panel::keys);
      tile_size({"dS.panel", nullptr, 0, 2}, dS.panel);
      tile_size({"dS.a", &Sizes::n_q}, dS.a, dS.form() != Panel::keys);
      tile_size({"dS.room", nullptr, 2}, dS.room, dS.form() == Panel::none);
      tile_size({"dS.b", &Sizes::n_k}, dS.b, dS.form() == Panel::keys);
      tile_size({"dV.b1", &Sizes::n_k}, dV.b1);
      tile_size({"dV.b2", &Sizes::d_v}, dV.b2);
      tile_size({"dQ.b1", &Sizes::n_q}, dQ.b1);
      tile_size({"dQ.b2", &Sizes::d}, dQ.b2);
      tile_size({"dK.b1", &Sizes::n_k}, dK.b1);
      tile_size({"dK.b2", &Sizes::d}, dK.b2);
    }
  };

  static std::optional<std::string_view> unsupported(const Sizes& x) { return one_matrix_of_weights(x); }
  static Tiling smallest(const Sizes& x, const Multiples& m) {
    const index_t q = smallest_tile(x.n_q, m.query), k = smallest_tile(x.n_k, m.key), f = smallest_tile(x.d, m.feature),
                  fv = smallest_tile(x.d_v, m.feature);
    return {{q, 2}, {q, 2}, {k, fv}, {q, f}, {k, f}};
  }
  static std::optional<Tiling> choose_tiling(const Sizes& x, const Limits& limits) {
    const Multiples& s = limits.multiple;
    const auto dV = sparse_value_gradients_cost(x).choose(x, limits, s.key, s.feature);
    const auto dQ = sparse_query_gradients_cost(x).choose(x, limits, s.query, s.feature);
    const auto dK = sparse_key_gradients_cost(x).choose(x, limits, s.key, s.feature);
    if (!dV || !dQ || !dK || !limits.fit(output_dots_phase(x))) return std::nullopt;
    const auto P = pair_weights_cost(x).choose(x, limits);
    const auto dS = pair_gradients_cost(x).choose(x, limits);
    if (!P || !dS) return std::nullopt;
    return Tiling{*P, *dS, *dV, *dQ, *dK};
  }

  static std::array<Phase, 6> phases(const Sizes& x, const Tiling& t) {
    return {output_dots_phase(x),
            pair_weights_cost(x).phase(x, t.P),
            sparse_value_gradients_cost(x).phase(x, t.dV),
            pair_gradients_cost(x).phase(x, t.dS),
            sparse_query_gradients_cost(x).phase(x, t.dQ),
            sparse_key_gradients_cost(x).phase(x, t.dK)};
  }
  static Words footprint(const Sizes& x, const Tiling& t) { return footprint_of(phases(x, t)); }
  static Words prefetch(const Sizes& x, const Tiling& t) { return prefetch_of(phases(x, t)); }
  static Io io(const Sizes& x, const Tiling& t) {
    return output_dots_io(x) + pair_weights_io(x, t.P) + sparse_value_gradients_cost(x).io(t.dV) +
           pair_gradients_io(x, t.dS) + sparse_query_gradients_cost(x).io(t.dQ) + sparse_key_gradients_cost(x).io(t.dK);
  }
  static Words macs(const Sizes& x, const Tiling&) { return x.nnz() * (Words(3) * x.d + Words(2) * x.d_v); }
  /// Weights are written and read for dV, become dS in place, and are read for dQ and dK.
  static Io least_io(const Sizes& x) {
    const Words pairs = visible_pairs(x);
    return Io().read(SlowArray::P, 4 * pairs).write(SlowArray::P, 2 * pairs);
  }
  static IndexWords index(const Sizes& x, const Tiling& t) {
    return index_of_phases({sddmm_index(x, t.P), spmm_index(x, sparse_value_gradients_cost(x), t.dV, true),
                            sddmm_index(x, t.dS), spmm_index(x, sparse_query_gradients_cost(x), t.dQ, false),
                            spmm_index(x, sparse_key_gradients_cost(x), t.dK, true)});
  }

  template <Machine M>
  static void run(M& m, const BackwardOperands& x, const Tiling& t) {
    const Sizes& s = x.shape;
    output_dots(m, x, [&](const Sizes& sizes) { return footprint(sizes, t); });  // D = rowsum(dO o O)
    pair_weights(m, x, t.P);                                                     // P = exp(scale Q K^T - lse)
    spmm(m, s, x.dV, x.P, true, x.dO, t.dV, drop_of_pairs(s, x.instance()));     // dV = P^T dO
    pair_gradients(m, x, t.dS);                                                  // P <- dS = scale P o (dO V^T - D)
    spmm(m, s, x.dQ, x.P, false, x.K, t.dQ);                                     // dQ = dS K
    spmm(m, s, x.dK, x.P, true, x.Q, t.dK);                                      // dK = dS^T Q
  }
};

}  // namespace redblue::schedule
