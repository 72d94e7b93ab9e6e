#pragma once
#include "redblue/kernel/materialised.hpp"
#include "redblue/schedule/gemm.hpp"

namespace redblue::schedule {

/// The small cache, M < d^2: raw scores are written to slow memory once and read back by a second product. After Saha &
/// Ye 2024 (arXiv 2402.07443, Algorithm 1), with one resident tile instead of three (half the constant) and a stable
/// softmax, which costs n_q words each way. Optimal to leading order (docs/proofs/f-prime.md).
///   reads  tile [ceil(n_k/b) n_q d + ceil(n_q/a) n_k d] or panel [n_q d + ceil(n_q/a) n_k d],
///          + ceil(d_v/c2) n_q n_k + ceil(n_q/a2) n_k d_v + n_q
///   writes n_q n_k + n_q + n_q d_v
///   footprint max(tile: a b + min(a, b) + 1 + 2 a | panel: a (d + 2 + b) + 1,  a2 c2 + a2 + min(a2, c2) + 1)
struct SmallCacheForward {
  static constexpr std::string_view name = "small_cache";
  static constexpr bool stable = true;
  static constexpr bool masks = false;
  static constexpr bool rewrites_outputs = false;

  struct Tiling {
    bool panel = false;  ///< phase 1: rows of Q resident over all d, keys stream past
    index_t a = 1;       ///< phase 1: queries
    index_t b = 1;       ///< phase 1: keys
    index_t a2 = 1;      ///< phase 2: queries
    index_t c2 = 1;      ///< phase 2: value columns
    std::vector<Knob> knobs() const {
      if (panel && b == 1) return {{"panel", 1}, {"a", a}, {"a2", a2}, {"c2", c2}};
      if (panel) return {{"panel", 1}, {"a", a}, {"b", b}, {"a2", a2}, {"c2", c2}};
      return {{"a", a}, {"b", b}, {"a2", a2}, {"c2", c2}};
    }
  };

  static Tiling smallest(const ForwardShape& x, const Multiples& m) {
    const index_t q = smallest_tile(x.n_q, m.query);
    return {false, q, smallest_tile(x.n_k, m.key), q, smallest_tile(x.d_v, m.feature)};
  }
  static std::optional<Tiling> choose_tiling(const ForwardShape& x, const Limits& limits) {
    const Multiples& s = limits.multiple;
    const Prices& price = limits.price;
    const Words q_words = price.reading(SlowArray::Q) * x.n_q * x.d,
                k_words = price.reading(SlowArray::K) * x.n_k * x.d;
    const auto tile = best_tile(x.n_q, x.n_k, s.query, s.key, q_words, k_words, limits.M, [&](index_t a, index_t b) {
      return limits.fit(tile_footprint(x, a, b), gemm_prefetch(x.n_q, x.n_k, {a, b}));
    });
    const index_t b = smallest_tile(x.n_k, s.key);  // of a panel: the words do not depend on it
    const index_t panel =
        largest_tile(x.n_q, s.query, [&](index_t a) { return limits.fit(panel_footprint(x, a, b), 1); });
    const auto output =
        best_tile(x.n_q, x.d_v, s.query, s.feature, price.reading(SlowArray::S) * x.N(),
                  price.reading(SlowArray::V) * x.n_k * x.d_v, limits.M, [&](index_t a2, index_t c2) {
                    return limits.fit(output_footprint(x, a2, c2), gemm_prefetch(x.n_q, x.d_v, {a2, c2}));
                  });
    if ((!tile && panel == 0) || !output) return std::nullopt;
    Tiling t;
    t.a2 = (*output)[0];
    t.c2 = (*output)[1];
    const auto scores_cost = [&](index_t visits_q, index_t a) { return q_words * visits_q + k_words * c(x.n_q, a); };
    t.panel = panel > 0 && (!tile || scores_cost(1, panel) < scores_cost(ceil_div(x.n_k, (*tile)[1]), (*tile)[0]));
    t.a = t.panel ? balanced(x.n_q, panel, s.query) : (*tile)[0];
    t.b = t.panel ? b : (*tile)[1];
    return t;
  }

  static Words tile_footprint(const ForwardShape& x, index_t a, index_t b) {
    return gemm_footprint(x.n_q, x.n_k, {a, b}) + Words(2) * std::min(a, x.n_q);
  }
  static Words panel_footprint(const ForwardShape& x, index_t a, index_t b) {
    return Words(std::min(a, x.n_q)) * (Words(x.d) + 2 + std::min(b, x.n_k)) + 1;
  }
  static Words output_footprint(const ForwardShape& x, index_t a2, index_t c2) {
    return gemm_footprint(x.n_q, x.d_v, {a2, c2}) + std::min(a2, x.n_q);
  }
  static Words scores_footprint(const ForwardShape& x, Tiling t) {
    return t.panel ? panel_footprint(x, t.a, t.b) : tile_footprint(x, t.a, t.b);
  }
  static Words footprint(const ForwardShape& x, Tiling t) {
    return std::max(scores_footprint(x, t), output_footprint(x, t.a2, t.c2));
  }
  /// What second buffers add to the footprint: the phases do not overlap.
  static Words prefetch(const ForwardShape& x, Tiling t) {
    const Words scores = scores_footprint(x, t) + (t.panel ? Words(1) : gemm_prefetch(x.n_q, x.n_k, {t.a, t.b}));
    const Words output = output_footprint(x, t.a2, t.c2) + gemm_prefetch(x.n_q, x.d_v, {t.a2, t.c2});
    return std::max(scores, output) - footprint(x, t);
  }
  static Io io(const ForwardShape& x, Tiling t) {
    return Io()
        .read(SlowArray::Q, (t.panel ? Words(1) : c(x.n_k, t.b)) * x.n_q * x.d)
        .read(SlowArray::K, c(x.n_q, t.a) * x.n_k * x.d)
        .write(SlowArray::S, x.N())
        .write(SlowArray::lse, x.n_q)
        .read(SlowArray::lse, x.n_q)
        .read(SlowArray::S, c(x.d_v, t.c2) * x.N())
        .read(SlowArray::V, c(x.n_q, t.a2) * x.n_k * x.d_v)
        .write(SlowArray::O, Words(x.n_q) * x.d_v);
  }
  static Words workspace(const ForwardShape& x) { return x.N(); }
  static Words macs(const ForwardShape& x, Tiling) { return x.N() * (Words(x.d) + x.d_v); }

  template <Machine M>
  static void run(M& m, const Forward& x, Tiling t) {
    scores(m, x, t);
    output(m, x, t);
  }

  /// Phase 1: raw scores and lse.
  template <Machine M>
  static void scores(M& m, const Forward& x, Tiling t) {
    const auto Q = tiled(x.Q, t.a), K = tiled(x.K, t.b), lse = tiled(x.lse, t.a), S = tiled(x.S, t.a, t.b);
    m.each(S.rows(), [&](auto& w, index_t i) {
      const auto m_i = w.alloc(lse(i).shape), l_i = w.alloc(lse(i).shape);
      w.compute(kernel::StatisticsInit{}, m_i, l_i);
      const auto finish = [&](const auto& T, const Block& S_ij) {
        w.compute(kernel::StatisticsAdd{}, m_i, l_i, T);
        w.store(T, S_ij);
      };
      if (t.panel) {
        const auto Q_i = w.load(Q(i));
        for (index_t j = 0; j < S.cols(); ++j) {
          const auto T = w.alloc(S(i, j).shape);
          w.compute(kernel::Scores{x.scale}, T, Q_i, w.stream(K(j)));
          finish(T, S(i, j));
        }
      } else {
        for (index_t j = 0; j < S.cols(); ++j) {
          const auto T = w.alloc(S(i, j).shape);
          w.compute(kernel::Zero{}, T);
          accumulate_product(w, T, {x.Q}, S(i, j).row, transposed(x.K), S(i, j).col);
          w.compute(kernel::Scale{x.scale}, T);
          finish(T, S(i, j));
        }
      }
      w.compute(kernel::LogSum{}, m_i, l_i);  // m <- lse
      w.store(m_i, lse(i));
    });
  }

  /// Phase 2: O = exp(S - lse) V, the exponential taken as scores pass.
  template <Machine M>
  static void output(M& m, const Forward& x, Tiling t) {
    const auto O = tiled(x.O, t.a2, t.c2), lse = tiled(x.lse, t.a2);
    m.each(O.rows(), [&](auto& w, index_t i) {
      const auto lse_i = w.load(lse(i));
      for (index_t k = 0; k < O.cols(); ++k) {
        const auto O_ik = w.alloc(O(i, k).shape);
        w.compute(kernel::Zero{}, O_ik);
        for_rank_one(w, O_ik.shape(), {x.S}, O(i, k).row, {x.V}, O(i, k).col,
                     [&](const auto& s, const auto& v) { w.compute(kernel::ExpAccumulate{}, O_ik, s, lse_i, v); });
        w.store(O_ik, O(i, k));
      }
    });
  }
};

}  // namespace redblue::schedule
