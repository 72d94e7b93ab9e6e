#pragma once
#include "redblue/schedules/operands/backward.hpp"
#include "redblue/schedules/strips/strips.hpp"

namespace redblue::schedule {

/// Strips of P and dS: all pairs of a block of queries are resident at once, then all of a block of keys, and
/// everything else passes column by column. It forms the softmax and D = rowsum(P o dP) itself and reads neither O nor
/// lse. For rows that see few keys, where d is much larger.
///   reads n_q (d + d_v) + A(a) (2 d + d_v) + 2 nnz + B(b) (d + d_v)   writes 2 nnz + n_q d + n_k (d + d_v)
///   footprint the largest of 2 nnz_I + |I| + 1 and nnz_J + |J| + 1
/// nnz_I, nnz_J: the pairs of a block of `a` queries, or of b keys. Theory notes 2j. A softcap keeps its derivative in
/// nnz_I words more. All weights are written; those that are dropped are dropped again as dV is formed.
struct StripsBackward : Defaults {
  using Operands = BackwardOperands;
  static constexpr std::string_view name = "strips";
  static constexpr std::string_view idea = "keeping all pairs of a block of queries, then of keys, resident";
  static constexpr Traits traits{.keeps_scores = true,
                                 .narrow = true,
                                 .own_softmax = true,
                                 .masks = true,
                                 .hides = true,
                                 .modifiers = true,
                                 .lse_gradient = true,
                                 .products = 5};
  static constexpr std::array workspace{SlowArray::P_b, SlowArray::dS_b};

  struct Tiling {
    index_t a = 1;  ///< queries at a time
    index_t b = 1;  ///< keys at a time
    void tile_sizes(const auto& tile_size) {
      tile_size({"a", &Sizes::n_q}, a);
      tile_size({"b", &Sizes::n_k}, b);
    }
  };
  static std::string_view caveat(const Sizes&, Tiling) { return "it forms the softmax itself: o and lse are not read"; }

  static Tiling smallest(const Sizes& x, const Multiples& m) {
    return {smallest_tile(x.n_q, m.query), smallest_tile(x.n_k, m.key)};
  }
  static std::optional<Tiling> choose_tiling(const Sizes& x, const Limits& limits) {
    const auto of_pairs = [&](Words pairs) { return x.tile(SlowArray::P_b, pairs, 1); };
    const auto rows_fit = [&](index_t a) { return limits.fit(rows_footprint(x, a), rows_prefetch(x, a)); };
    const auto keys_fit = [&](index_t b) { return limits.fit(keys_footprint(x, b), keys_prefetch(x)); };
    const index_t a = best_row_strip(
        x, limits.multiple.query,
        [&](index_t rows, Words n) { return limits.fit(std::max(2 * of_pairs(n), x.tile(SlowArray::dQ, rows, 1)), 0); },
        rows_fit);
    const index_t b = best_key_strip(
        x, limits.multiple.key,
        [&](index_t keys, Words n) { return limits.fit(std::max(of_pairs(n), x.tile(SlowArray::dK, keys, 1)), 0); },
        keys_fit);
    if (a == 0 || b == 0) return std::nullopt;
    return Tiling{a, b};
  }

  /// Beside the strips of rows.
  static std::array<Phase, 4> rows_phases(const Sizes& x, index_t rows) {
    return {strip_scores_phase(x, rows), strip_softmax_phase(x, rows),
            strip_phase(x, SlowArray::dO, SlowArray::V, rows),
            Phase{x.tile(SlowArray::D, rows, 1) + passing_lse_gradient(x), 0}};
  }
  static Words rows_footprint(const Sizes& x, index_t a) {
    const index_t derivatives = x.modifiers.softcap > 0 ? 1 : 0;
    const Words bias = passing_pair_bias_gradient(x);
    return row_strips_footprint(x, a, [&](index_t rows, Words pairs) {
      const Words strip = x.tile(SlowArray::P_b, pairs, 1);
      return strip + std::max(derivatives * strip + std::max(strip + footprint_of(rows_phases(x, rows)), bias),
                              strip_product_phase(x, SlowArray::dQ, SlowArray::K, rows).footprint);
    });
  }
  static Words rows_prefetch(const Sizes& x, index_t a) { return prefetch_of(rows_phases(x, std::min(a, x.n_q))); }
  static Words keys_footprint(const Sizes& x, index_t b) {
    return key_strips_footprint(x, b, [&](index_t keys, Words pairs) {
      return x.tile(SlowArray::P_b, pairs, 1) +
             std::max(strip_product_phase(x, SlowArray::dV, SlowArray::dO, keys).footprint,
                      strip_product_phase(x, SlowArray::dK, SlowArray::Q, keys).footprint);
    });
  }
  static Words keys_prefetch(const Sizes& x) { return std::max(x.word(SlowArray::dO), x.word(SlowArray::Q)); }
  static std::array<Phase, 2> phases(const Sizes& x, Tiling t) {
    return {Phase{rows_footprint(x, t.a), rows_prefetch(x, t.a)}, Phase{keys_footprint(x, t.b), keys_prefetch(x)}};
  }
  static Words footprint(const Sizes& x, Tiling t) { return footprint_of(phases(x, t)); }
  static Words prefetch(const Sizes& x, Tiling t) { return prefetch_of(phases(x, t)); }

  static Io io(const Sizes& x, Tiling t) {
    const Words keys = x.pairs().visited_keys(t.a), rows = x.pairs().visited_rows(t.b);
    const Io modifiers = strip_scores_io(x, t.a) + bias_gradient_io(x, x.nnz(), keys) + lse_gradient_io(x, x.n_q);
    return modifiers + Io().read(SlowArray::Q, (x.n_q + rows) * x.d)
                           .read(SlowArray::K, 2 * keys * x.d)
                           .read(SlowArray::V, keys * x.d_v)
                           .read(SlowArray::dO, (x.n_q + rows) * x.d_v)
                           .read(SlowArray::P_b, x.nnz())
                           .read(SlowArray::dS_b, x.nnz())
                           .write(SlowArray::P_b, x.nnz())
                           .write(SlowArray::dS_b, x.nnz())
                           .write(SlowArray::dQ, Words(x.n_q) * x.d)
                           .write(SlowArray::dK, Words(x.n_k) * x.d)
                           .write(SlowArray::dV, Words(x.n_k) * x.d_v);
  }
  static Words macs(const Sizes& x, Tiling) { return x.nnz() * (Words(3) * x.d + Words(2) * x.d_v); }

  template <Machine M>
  static void run(M& m, const BackwardOperands& x, Tiling t) {
    const Blocks rows = x.shape.pairs().row_blocks(t.a), keys = x.shape.pairs().key_blocks(t.b);
    for_blocks_of_queries(m, x.shape, rows.count(),
                          [&](auto& w, index_t i) { query_gradients(w, x, strip_of_rows(x.shape, rows(i))); });
    m.each(keys.count(), [&](auto& w, index_t j) {
      const Strip strip = strip_of_keys(x.shape, keys(j));
      product_over_rows(w, x, strip, x.dV, x.P_b, x.dO);  // dV = P^T dO, without the weights that are dropped
      product_over_rows(w, x, strip, x.dK, x.dS_b, x.Q);  // dK = dS^T Q
    });
  }

  /// dQ of a block of queries; P and dS go to slow memory.
  template <class W>
  static void query_gradients(W& w, const BackwardOperands& x, const Strip& strip) {
    const Sizes& s = x.shape;
    const kernel::PairBox box = strip.box(s);
    const auto store = [&](const auto& tile, const SlowMatrix& band) {
      for_rows_of_strip(s, tile, strip, band, [&](const Arg& part, const Block& row) { w.store(part, row); });
    };
    const auto dS = w.alloc(x.dS_b.array, strip.words());
    {
      const bool capped = s.modifiers.softcap > 0;
      const auto F = w.alloc(x.P_b.array, capped ? strip.words() : Shape{0, 1});
      {
        const auto P = w.alloc(x.P_b.array, strip.words());
        form_strip(w, s, P, strip, x.Q, x.K);
        modify_strip(w, x, P, strip, F);
        {
          const auto lse_i = w.alloc(SlowArray::lse, {strip.rows.size(), 1});
          w.compute(kernel::PairSoftmax(box), P, lse_i, w.stream(x.sinks.all()));
        }
        store(P, x.P_b);
        form_strip(w, s, dS, strip, x.dO, x.V);  // dP = dO V^T
        drop_pairs(w, x, box, dS);
        const auto D_i = w.alloc(SlowArray::D, {strip.rows.size(), 1});
        w.compute(kernel::PairRowDots(box), D_i, P, dS);
        subtract_lse_gradient(w, x, D_i, strip.rows);
        w.compute(kernel::PairSubtract(box), dS, D_i);
        w.compute(kernel::ScaleByWeights{x.scale}, dS, P);  // dS = scale P o (dP - D)
      }
      if (s.modifiers.bias_gradient) add_pair_bias_gradient(w, x, box, dS);
      if (capped) w.compute(kernel::Multiply{}, dS, F);
    }
    store(dS, x.dS_b);
    multiply_strip(w, s, x.dQ, dS, strip, false, x.K);  // dQ = dS K
  }

  /// Y = Z^T X for a block of keys, whose words of Z are loaded.
  template <class W>
  static void product_over_rows(W& w, const BackwardOperands& x, const Strip& strip, const SlowMatrix& Y,
                                const SlowMatrix& Z, const SlowMatrix& X) {
    const auto Z_j = w.alloc(Z.array, strip.words());
    for_rows_of_strip(x.shape, Z_j, strip, Z, [&](const Arg& part, const Block& row) { w.load_into(part, row); });
    if (Z.array == SlowArray::P_b) drop_pairs(w, x, strip.box(x.shape), Z_j);
    multiply_strip(w, x.shape, Y, Z_j, strip, true, X);
  }
};

}  // namespace redblue::schedule
