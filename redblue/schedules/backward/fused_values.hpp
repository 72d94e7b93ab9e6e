#pragma once
#include "redblue/schedules/passes/key_pass.hpp"
#include "redblue/schedules/passes/probabilities.hpp"

namespace redblue::schedule {

/// e6, probabilities materialised. The pass that turns them into dS, with values resident, also forms dV, so that one
/// read of dO serves both. Best around M = d^2/4 .. 1.3 d^2.
///   reads 2 n_q d_v + n_q + Rs(d; t1) + n_k d_v + B(Bc) (d_v + 1) + nnz + R_mm(n_q, n_k, d; t4)
///         + R_mm(n_k, n_q, d; t5)     B(Bc): queries that see a block of keys; Rs: score_phase.hpp, R_mm: gemm.hpp
///   writes n_q + 2 nnz + n_k d_v + n_q d + n_k d
///   footprint the largest of 3, the score phase, Bc (2 d_v + 2 br) + br + 1, and the two products
/// Under dropout a third tile of br x Bc holds the weights that are kept. A dBias reads and writes a word for each pair
/// of the blocks, or n_k words where all queries share a row; a softcap reads lse, bias and slopes once more.
/// Given gradients (Sizes::accumulate) are n_q d + n_k (d + d_v) words more to read.
struct FusedValuesBackward : Defaults {
  using Operands = BackwardOperands;
  static constexpr std::string_view name = "fused_values";
  static constexpr std::string_view label = "e6";
  static constexpr std::string_view idea = "materialising probabilities, dV fused into the pass for dS";
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
    ScoreTiling P;
    index_t Bc = 1;  ///< values resident at a time
    index_t br = 1;  ///< queries per step
    GemmTiling dQ, dK;
    void tile_sizes(const auto& tile_size) {
      tile_size({"P.panel", nullptr, 0, 1}, P.panel);
      tile_size({"P.a", &Sizes::n_q}, P.a);
      tile_size({"P.b", &Sizes::n_k}, P.b);
      tile_size({"Bc", &Sizes::n_k}, Bc);
      tile_size({"br", &Sizes::n_q}, br);
      tile_size({"dQ.b1", &Sizes::n_q}, dQ.b1);
      tile_size({"dQ.b2", &Sizes::d}, dQ.b2);
      tile_size({"dK.b1", &Sizes::n_k}, dK.b1);
      tile_size({"dK.b2", &Sizes::d}, dK.b2);
    }
  };

  static std::optional<std::string_view> unsupported(const Sizes& x) { return softcap_of_softmax(x); }
  static Tiling smallest(const Sizes& x, const Multiples& m) {
    const index_t q = smallest_tile(x.n_q, m.query), k = smallest_tile(x.n_k, m.key), f = smallest_tile(x.d, m.feature);
    return {{false, q, k}, k, q, {q, f}, {k, f}};
  }
  static std::optional<Tiling> choose_tiling(const Sizes& x, const Limits& limits) {
    const Multiples& s = limits.multiple;
    const index_t br = smallest_tile(x.n_q, s.query);
    const auto P = probabilities_cost(x, SlowArray::Q, SlowArray::K).choose(x, limits);
    const index_t Bc = choose_key_block(x, s.key, [&](index_t b) { return limits.fit(value_pass(x, b, br)); });
    const auto dQ = query_gradients_cost(x).choose(x, limits, s.query, s.feature);
    const auto dK = key_gradients_cost(x).choose(x, limits, s.key, s.feature);
    if (!P || Bc == 0 || !dQ || !dK || !limits.fit(output_dots_phase(x))) return std::nullopt;
    return Tiling{*P, Bc, br, *dQ, *dK};
  }

  /// V_j, dV_j, the tiles P and dP (under dropout also P without what was dropped), D of the arriving queries, one
  /// streamed word, and the row of dBias that all queries share; under a softcap also lse, the slopes, and such a row
  /// of the bias. Second buffers: the next P, D, lse, word.
  static Phase value_pass(const Sizes& x, index_t keys, index_t queries) {
    const index_t br = std::min(queries, x.n_q);
    const bool capped = x.modifiers.softcap > 0;
    const index_t tiles = x.modifiers.dropout > 0 ? 3 : 2;
    const Words word =
        std::max({x.word(SlowArray::dO), passing_bias_gradient(x), capped ? passing_bias_of_pairs(x) : Words(0)});
    const auto arriving = [&](index_t rows) {
      return x.statistic(SlowArray::D, rows) + (capped ? x.statistic(SlowArray::lse, rows) : Words(0)) + word;
    };
    const auto block = [&](index_t Bc, index_t rho) {
      return x.tile(SlowArray::V, Bc, x.d_v) + x.tile(SlowArray::dV, Bc, x.d_v) + bias_gradient_tile(x, Bc) +
             (capped ? shared_row_of_bias(x, Bc) + slopes_tile(x) : Words(0)) + tiles * x.tile(SlowArray::P, br, Bc) +
             arriving(std::min(br, rho));
    };
    return {key_blocks_footprint(x, keys, block), x.tile(SlowArray::P, br, std::min(keys, x.n_k)) + arriving(br)};
  }
  static std::array<Phase, 5> phases(const Sizes& x, const Tiling& t) {
    return {output_dots_phase(x), probabilities_cost(x, SlowArray::Q, SlowArray::K).phase(x, t.P),
            value_pass(x, t.Bc, t.br), query_gradients_cost(x).phase(x, t.dQ), key_gradients_cost(x).phase(x, t.dK)};
  }
  static Words footprint(const Sizes& x, const Tiling& t) { return footprint_of(phases(x, t)); }
  static Words prefetch(const Sizes& x, const Tiling& t) { return prefetch_of(phases(x, t)); }
  /// What modifiers move in that pass: dBias, and under a softcap what its derivative is found from.
  static Io value_pass_modifiers_io(const Sizes& x, Words pairs, Words visits, Words blocks) {
    const Io gradient = bias_gradient_io(x, pairs, x.n_k, visits);
    if (x.modifiers.softcap == 0) return gradient;
    return gradient + modifiers_io(x, pairs, x.n_k, blocks) + Io().read(SlowArray::lse, visits);
  }
  static Io io(const Sizes& x, const Tiling& t) {
    const Words visits = x.pairs().visited_rows(t.Bc);
    return output_dots_io(x) + probabilities_io(x, SlowArray::Q, SlowArray::K, t.P) +
           value_pass_modifiers_io(x, x.pairs().pairs_of_keys(t.Bc), visits, ceil_div(x.n_k, t.Bc)) +
           Io().read(SlowArray::V, Words(x.n_k) * x.d_v)
               .read(SlowArray::dO, visits * x.d_v)
               .read(SlowArray::D, visits * x.statistics())
               .read(SlowArray::P, x.nnz())
               .write(SlowArray::P, x.nnz())
               .read(SlowArray::dV, x.accumulate ? Words(x.n_k) * x.d_v : Words(0))
               .write(SlowArray::dV, Words(x.n_k) * x.d_v) +
           query_gradients_cost(x).io(t.dQ) + key_gradients_cost(x).io(t.dK);
  }
  static Words macs(const Sizes& x, const Tiling& t) {
    return probabilities_cost(x, SlowArray::Q, SlowArray::K).macs(x, t.P) + x.pairs().pairs_of_keys(t.Bc) * x.d_v * 2 +
           query_gradients_cost(x).macs() + key_gradients_cost(x).macs();
  }

  template <Machine M>
  static void run(M& m, const BackwardOperands& x, const Tiling& t) {
    output_dots(m, x, [&](const Sizes& s) { return footprint(s, t); });  // D = rowsum(dO o O)
    probabilities(m, x, t.P);                                            // P = exp(scale Q K^T - lse)
    const Pairs pairs = x.shape.pairs();
    const Blocks blocks = pairs.key_blocks(t.Bc);
    const bool drops = x.shape.modifiers.dropout > 0, capped = x.shape.modifiers.softcap > 0;
    for_blocks_of_keys(m, x.shape, blocks.count(), [&](auto& w, index_t j) {
      const Range J = blocks(j), seeing = pairs.rows_of(J);
      const auto V_j = w.load(x.V.rows(J)), dV_j = begin_gradient(w, x.shape, x.dV.rows(J)),
                 dBias_j = w.load(x.shared_gradient(x.dBias, J)),
                 bias_j = w.load(capped ? x.shared_bias(J) : Block{x.bias.array});
      const Slopes slopes(w, x, capped);
      begin_from_zero(w, x.shape, dV_j);
      const auto P_j = w.alloc(SlowArray::P, {std::min(t.br, x.shape.n_q), J.size()}),
                 dP_j = w.alloc(SlowArray::P, P_j.shape()),
                 kept_j = w.alloc(SlowArray::P, drops ? P_j.shape() : Shape{0, 0});
      for (index_t i = seeing.begin; i < seeing.end; i += t.br) {
        const Range I{i, std::min(i + t.br, seeing.end)};
        const Arg P_ij = P_j.rows(0, I.size()), dS_ij = dP_j.rows(0, I.size());
        const Arg kept_ij = drops ? kept_j.rows(0, I.size()) : P_ij;  // without the weights that are dropped
        const auto D_i = w.load(x.D.rows(I)), lse_i = w.load(x.lse.rows(capped ? I : Range{I.begin, I.begin}));
        const Place place = x.shape.place(I.begin, J.begin);
        load_visible(w, x.shape, P_ij, x.P, {I, J});
        if (drops) w.compute(kernel::Copy{}, kept_ij, P_ij);
        drop_weights(w, x, place, kept_ij);
        w.compute(kernel::Zero{}, dS_ij);
        w.compute(kernel::ValueGradients{}, dS_ij, dV_j, kept_ij, V_j, w.stream(x.dO.rows(I)));  // dP, dV as dO passes
        drop_weights(w, x, place, dS_ij);
        w.compute(kernel::ScoreGradient{x.shape.score, x.scale, place}, dS_ij, P_ij, D_i);  // dS = scale P o (dP - D)
        if (x.shape.modifiers.bias_gradient) add_bias_gradient(w, x, x.dBias, I, J, dBias_j.arg(), dS_ij);
        if (capped)
          w.compute(kernel::SoftcapGradient{modify_scores(x.shape, place)}, dS_ij, P_ij, lse_i.arg(),
                    x.bias_of_keys ? bias_j.arg() : x.bias_of(I, J), slopes.arg());
        store_visible(w, x.shape, dS_ij, x.P, {I, J});
      }
      w.store(dV_j, x.dV.rows(J));
      if (x.keeps_bias_gradient) w.store(dBias_j, x.shared_gradient(x.dBias, J));
    });
    query_gradients(m, x, t.dQ);  // dQ = dS K
    key_gradients(m, x, t.dK);    // dK = dS^T Q
  }
};

}  // namespace redblue::schedule
