#pragma once
#include "redblue/schedules/passes/probabilities.hpp"

namespace redblue::schedule {

/// e5, the small cache: probabilities and dS go through slow memory once, everything is a product in tiles. Best below
/// M = d^2/4.
///   reads 2 n_q d_v + 2 n_q + Rs(d; t1) + Rs(d_v; t2) + nnz + R_mm(n_k, n_q, d_v; t3) + R_mm(n_q, n_k, d; t4)
///         + R_mm(n_k, n_q, d; t5)                          Rs: score_phase.hpp, R_mm: gemm.hpp
///   writes n_q + 2 nnz + n_k d_v + n_q d + n_k d
///   footprint the largest of 3 and those of the five phases
/// Leading 10 n^2 d/sqrt(M) + 3 n^2 for M <= d^2/4. A dBias with a row for each query reads and writes nnz
/// more; a softcap reads nnz + n_q more, and bias and slopes once more.
/// Given gradients (Sizes::accumulate) are n_q d + n_k (d + d_v) words more to read.
struct MaterialisedBackward : Defaults {
  using Operands = BackwardOperands;
  static constexpr std::string_view name = "materialised";
  static constexpr std::string_view label = "e5";
  static constexpr std::string_view idea = "materialising probabilities, then dS";
  static constexpr Traits traits{.keeps_scores = true,
                                 .masks = true,
                                 .hides = true,
                                 .modifiers = true,
                                 .any_score = true,
                                 .lse_gradient = true,
                                 .accumulates = true,
                                 .products = 5};
  static constexpr std::array workspace{SlowArray::D, SlowArray::P};

  struct Tiling {
    ScoreTiling P, dS;
    GemmTiling dV, dQ, dK;
    void tile_sizes(const auto& tile_size) {
      tile_size({"P.panel", nullptr, 0, 1}, P.panel);
      tile_size({"P.a", &Sizes::n_q}, P.a);
      tile_size({"P.b", &Sizes::n_k}, P.b);
      tile_size({"dS.panel", nullptr, 0, 1}, dS.panel);
      tile_size({"dS.a", &Sizes::n_q}, dS.a);
      tile_size({"dS.b", &Sizes::n_k}, dS.b);
      tile_size({"dV.b1", &Sizes::n_k}, dV.b1);
      tile_size({"dV.b2", &Sizes::d_v}, dV.b2);
      tile_size({"dQ.b1", &Sizes::n_q}, dQ.b1);
      tile_size({"dQ.b2", &Sizes::d}, dQ.b2);
      tile_size({"dK.b1", &Sizes::n_k}, dK.b1);
      tile_size({"dK.b2", &Sizes::d}, dK.b2);
    }
  };

  static std::optional<std::string_view> unsupported(const Sizes& x) {
    const Modifiers& m = x.modifiers;
    if (m.bias_gradient && !m.bias_with_all_words()) return "forms no gradient of a bias that queries or keys share";
    if (m.softcap > 0 && m.bias == Modifiers::Bias::of_keys) return "takes no softcap beside a bias that queries share";
    return softcap_of_softmax(x);
  }
  static Tiling smallest(const Sizes& x, const Multiples& m) {
    const index_t q = smallest_tile(x.n_q, m.query), k = smallest_tile(x.n_k, m.key), f = smallest_tile(x.d, m.feature),
                  fv = smallest_tile(x.d_v, m.feature);
    return {{false, q, k}, {false, q, k}, {k, fv}, {q, f}, {k, f}};
  }
  static std::optional<Tiling> choose_tiling(const Sizes& x, const Limits& limits) {
    const Multiples& s = limits.multiple;
    const auto P = probabilities_cost(x, SlowArray::Q, SlowArray::K).choose(x, limits);
    const auto dS = score_gradients_cost(x, SlowArray::V).choose(x, limits);
    const auto dV = value_gradients_cost(x).choose(x, limits, s.key, s.feature);
    const auto dQ = query_gradients_cost(x).choose(x, limits, s.query, s.feature);
    const auto dK = key_gradients_cost(x).choose(x, limits, s.key, s.feature);
    if (!P || !dS || !dV || !dQ || !dK || !limits.fit(output_dots_phase(x))) return std::nullopt;
    return Tiling{*P, *dS, *dV, *dQ, *dK};
  }

  static std::array<Phase, 6> phases(const Sizes& x, const Tiling& t) {
    return {output_dots_phase(x),
            probabilities_cost(x, SlowArray::Q, SlowArray::K).phase(x, t.P),
            value_gradients_cost(x).phase(x, t.dV),
            score_gradients_cost(x, SlowArray::V).phase(x, t.dS),
            query_gradients_cost(x).phase(x, t.dQ),
            key_gradients_cost(x).phase(x, t.dK)};
  }
  static Words footprint(const Sizes& x, const Tiling& t) { return footprint_of(phases(x, t)); }
  static Words prefetch(const Sizes& x, const Tiling& t) { return prefetch_of(phases(x, t)); }
  static Io io(const Sizes& x, const Tiling& t) {
    return output_dots_io(x) + probabilities_io(x, SlowArray::Q, SlowArray::K, t.P) + value_gradients_cost(x).io(t.dV) +
           score_gradients_io(x, SlowArray::V, t.dS) + query_gradients_cost(x).io(t.dQ) +
           key_gradients_cost(x).io(t.dK);
  }
  static Words macs(const Sizes& x, const Tiling& t) {
    return probabilities_cost(x, SlowArray::Q, SlowArray::K).macs(x, t.P) +
           score_gradients_cost(x, SlowArray::V).macs(x, t.dS) + value_gradients_cost(x).macs() +
           query_gradients_cost(x).macs() + key_gradients_cost(x).macs();
  }

  template <Machine M>
  static void run(M& m, const BackwardOperands& x, const Tiling& t) {
    output_dots(m, x, [&](const Sizes& s) { return footprint(s, t); });  // D = rowsum(dO o O)
    probabilities(m, x, t.P);                                            // P = exp(scale Q K^T - lse)
    value_gradients(m, x, t.dV);                                         // dV = P^T dO
    score_gradients(m, x, t.dS);                                         // P <- dS = scale P o (dO V^T - D)
    query_gradients(m, x, t.dQ);                                         // dQ = dS K
    key_gradients(m, x, t.dK);                                           // dK = dS^T Q
  }
};

}  // namespace redblue::schedule
