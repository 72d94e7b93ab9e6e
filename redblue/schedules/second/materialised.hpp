#pragma once
#include "redblue/schedules/operands/backward.hpp"
#include "redblue/schedules/second/output_sweep.hpp"
#include "redblue/schedules/second/score_gradients.hpp"

namespace redblue::schedule {

/// Gradients of gradients in a small cache, M < d^2: with the letters of three_sweeps.hpp, P and P o H go through slow
/// memory once, then scale dS and scale G over them, and everything is a product in tiles.
///   1  D = rowsum(dO o O)
///   2  P and P o H, in tiles of both, w, and l, the sums of the weights, where x will be
///   3  LdO = ((P o H) V + P gV) / l - w o O, and x = rowsum(dO o LdO)
///   4  LV = (P o H - w o P)^T dO
///   5  scale G and scale dS from tiles of dP and E, over P o H and P
///   6  LQ = scale (G K + dS gK);  LK = scale (G^T Q + dS^T gQ)
/// Leading (16 + 6 sqrt(2)) n^2 d/sqrt(M) + 6 n^2 for d_v = d and M <= d^2/2.
struct SecondMaterialised : Defaults {
  using Operands = SecondOperands;
  static constexpr std::string_view name = "materialised";
  static constexpr std::string_view idea = "materialising weights and their tangents, then gradients of scores";
  static constexpr Traits traits{
      .keeps_scores = true, .masks = true, .hides = true, .modifiers = true, .lse_gradient = true, .products = 12};
  static constexpr std::array workspace{SlowArray::D, SlowArray::Hm, SlowArray::Xm, SlowArray::P, SlowArray::S};

  struct Tiling {
    TwoTilesTiling H, G;
    GemmTiling LdO, LV, LQ, LK;
    void tile_sizes(const auto& tile_size) {
      tile_size({"H.a", &Sizes::n_q}, H.a);
      tile_size({"H.b", &Sizes::n_k}, H.b);
      tile_size({"G.a", &Sizes::n_q}, G.a);
      tile_size({"G.b", &Sizes::n_k}, G.b);
      tile_size({"LdO.b1", &Sizes::n_q}, LdO.b1);
      tile_size({"LdO.b2", &Sizes::d_v}, LdO.b2);
      tile_size({"LV.b1", &Sizes::n_k}, LV.b1);
      tile_size({"LV.b2", &Sizes::d_v}, LV.b2);
      tile_size({"LQ.b1", &Sizes::n_q}, LQ.b1);
      tile_size({"LQ.b2", &Sizes::d}, LQ.b2);
      tile_size({"LK.b1", &Sizes::n_k}, LK.b1);
      tile_size({"LK.b2", &Sizes::d}, LK.b2);
    }
  };

  static std::optional<std::string_view> unsupported(const Sizes& x) {
    if (x.modifiers.softcap > 0) return "takes no softcap: it keeps weights, and not the scores that pass through one";
    return std::nullopt;
  }

  // What is formed, of what.
  static MovingWeightsPhase weights(const SecondOperands& x) {
    return {{x.Q, x.K, x.gK, x.gQ}, x.P, x.S, x.Hm, x.Ldlse, x.Xm, SlowArray::gBias, SlowArray::gSinks};
  }
  static TwoProducts outputs(const SecondOperands& x) {
    const bool drops = x.shape.modifiers.dropout > 0;
    return {x.LdO, {{{x.S, false, drops}, {x.P, false, drops}}}, {x.V, x.gV}, Entries::of_pairs(x.shape)};
  }
  static GemmCost values(const SecondOperands& x) {
    const Sizes& s = x.shape;
    GemmCost cost{SlowArray::LV, SlowArray::S, SlowArray::dO, s.n_k, s.n_q, s.d_v, Entries::of_transposed_pairs(s),
                  true};
    cost.beside = SlowArray::P, cost.words_beside = s.nnz();
    cost.of_terms = SlowArray::Hm, cost.words_of_term = 1;
    return cost;
  }
  static ScoreGradientsPhase gradients(const SecondOperands& x) { return {{x.dO, x.V, x.gV, {}}}; }
  static TwoProducts queries(const SecondOperands& x) {
    return {x.LQ, {{{x.S}, {x.P}}}, {x.K, x.gK}, Entries::of_pairs(x.shape)};
  }
  static TwoProducts keys(const SecondOperands& x) {
    return {x.LK, {{transposed(x.S), transposed(x.P)}}, {x.Q, x.gQ}, Entries::of_transposed_pairs(x.shape)};
  }

  // What that holds.
  /// The products beside w, l, x and its terms, and a word of O or dO that passes at the end.
  static Phase outputs_phase(const SecondOperands& x, GemmTiling t) {
    const Sizes& s = x.shape;
    return outputs(x).phase_beside(
        s, t, [&](index_t rows) { return s.tile(SlowArray::Hm, rows, 1) + 3 * s.tile(SlowArray::Xm, rows, 1); },
        std::max(s.word(SlowArray::O), s.word(SlowArray::dO)));
  }
  /// A row of P o H stays while P passes by it, and then while dO does.
  static Phase values_phase(const SecondOperands& x, GemmTiling t) {
    const Sizes& s = x.shape;
    const index_t b1 = std::min(t.b1, s.n_k), b2 = std::min(t.b2, s.d_v);
    const Words row = s.tile(SlowArray::S, b1, 1) +
                      std::max(s.word(SlowArray::dO), s.tile(SlowArray::Hm, 1, 1) + s.word(SlowArray::P));
    return {s.tile(SlowArray::LV, b1, b2) + row, row};
  }

  static Tiling smallest(const Sizes& x, const Multiples& m) {
    const index_t q = smallest_tile(x.n_q, m.query), k = smallest_tile(x.n_k, m.key), f = smallest_tile(x.d, m.feature),
                  fv = smallest_tile(x.d_v, m.feature);
    return {{q, k}, {q, k}, {q, fv}, {k, fv}, {q, f}, {k, f}};
  }
  static std::optional<Tiling> choose_tiling(const Sizes& s, const Limits& limits) {
    const SecondOperands x(s, 1);
    const auto [query, key, feature] = limits.multiple;
    const auto H = weights(x).choose(s, limits);
    const auto G = gradients(x).choose(s, limits);
    const auto LdO = outputs(x).choose(s, limits, query, feature, [&](GemmTiling t) { return outputs_phase(x, t); });
    const auto LV = values(x).choose(s, limits, key, feature, [&](GemmTiling t) { return values_phase(x, t); });
    const auto LQ = queries(x).choose(s, limits, query, feature);
    const auto LK = keys(x).choose(s, limits, key, feature);
    if (!H || !G || !LdO || !LV || !LQ || !LK || !limits.fit(output_dots_phase(s))) return std::nullopt;
    return Tiling{*H, *G, *LdO, *LV, *LQ, *LK};
  }

  static std::array<Phase, 7> phases(const Sizes& s, const Tiling& t) {
    const SecondOperands x(s, 1);
    return {output_dots_phase(s),       weights(x).phase(s, t.H),  outputs_phase(x, t.LdO), values_phase(x, t.LV),
            gradients(x).phase(s, t.G), queries(x).phase(s, t.LQ), keys(x).phase(s, t.LK)};
  }
  static Words footprint(const Sizes& x, const Tiling& t) { return footprint_of(phases(x, t)); }
  static Words prefetch(const Sizes& x, const Tiling& t) { return prefetch_of(phases(x, t)); }
  static Io io(const Sizes& s, const Tiling& t) {
    const SecondOperands x(s, 1);
    return output_dots_io(s) + weights(x).io(s, t.H) + outputs(x).io(t.LdO) + values(x).io(t.LV) +
           gradients(x).io(s, t.G) + queries(x).io(t.LQ) + keys(x).io(t.LK) +
           Io().read(SlowArray::Hm, s.n_q)
               .read(SlowArray::Xm, s.n_q)
               .write(SlowArray::Xm, s.n_q)
               .read(SlowArray::O, Words(s.n_q) * s.d_v)
               .read(SlowArray::dO, Words(s.n_q) * s.d_v);
  }
  static Words macs(const Sizes& s, const Tiling& t) {
    const SecondOperands x(s, 1);
    return weights(x).factors.macs(s, t.H) + gradients(x).factors.macs(s, t.G) + outputs(x).macs() + values(x).macs() +
           queries(x).macs() + keys(x).macs();
  }

  template <Machine M>
  static void run(M& m, const SecondOperands& x, const Tiling& t) {
    output_dots(m, x, [&](const Sizes& s) { return footprint(s, t); });
    weights(x).run(m, x, {x.gQ, x.gK, x.gV, x.gBias, x.gSinks, x.LdO, x.Hm}, t.H);
    form_outputs(m, x, t.LdO);
    form_values(m, x, t.LV);
    gradients(x).run(m, x, t.G);
    queries(x).run(m, x.shape.fast, t.LQ);
    keys(x).run(m, x.shape.fast, t.LK);
  }

  /// LdO, and x, whose terms come with blocks of columns.
  template <Machine M>
  static void form_outputs(M& m, const SecondOperands& x, GemmTiling t) {
    const TwoProducts products = outputs(x);
    const Blocks rows = products.entries.row_blocks(x.shape.n_q, t.b1);
    m.each(rows.count(), [&](auto& w, index_t i) {
      const Range I = rows(i);
      const auto w_i = w.load(x.Hm.rows(I)), l_i = w.load(x.Xm.rows(I)), x_i = w.alloc(x.Xm.rows(I)),
                 terms = w.alloc(SlowArray::Xm, x_i.shape());
      w.compute(kernel::Zero{}, x_i);
      const auto finish = [&](auto& of, const auto& LdO_ij, Range J) {
        of.compute(kernel::DivideRows{}, LdO_ij, l_i);
        of.compute(kernel::SubtractScaledRows{}, LdO_ij, w_i, of.stream(x.O.block(I, J)));
        of.compute(kernel::RowDots{}, terms, of.stream(x.dO.block(I, J)), LdO_ij);
        of.compute(kernel::Add{}, x_i, terms);
      };
      products.form_rows(w, x.shape.fast, I, t.b2, finish,
                         [&](auto& of, Range of_rows, index_t key, const Arg& weights) {
                           drop_weights(of, x, x.shape.place(of_rows.begin, key), weights);
                         });
      w.store(x_i, x.Xm.rows(I));
    });
  }
  /// LV: the row of P o H that is multiplied becomes that of P o (H - w).
  template <Machine M>
  static void form_values(M& m, const SecondOperands& x, GemmTiling t) {
    gemm(m, x.shape.fast, {x.LV}, {x.S, true, true}, {x.dO}, t, values(x).entries, NothingElse{},
         [&](auto& w, Range keys, index_t i, const Arg& moved) {
           const Range row{i, i + 1};
           const auto w_i = w.load(x.Hm.rows(row));
           w.compute(kernel::SubtractScaledRows{}, moved, w_i, w.stream(x.P.block(row, keys)));
           drop_weights(w, x, x.shape.place(i, keys.begin), moved);
         });
  }
};

}  // namespace redblue::schedule
